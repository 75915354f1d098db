package saga

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/protect"
	"github.com/postrider/postrider/saga/internal/machine"
)

// Definition is an orchestrated saga whose data has type D, which is kept as JSON. It is a value: functions can return it, so
// that its steps use what they are given.
type Definition[D any] struct {
	// Name identifies the saga, Version counts its versions from 1. Both are required. Instances continue with the version
	// that they began with, so keep a version registered until none of its instances is running.
	Name    string
	Version int
	// Key names what an instance is about, e.g. "order/42": at most one instance of a key runs at a time. Default: no key.
	Key func(d D) string
	// Deadline is the time that an instance has to pass its pivot, or to end if it has none; then it turns back. After the
	// pivot, the deadline is recorded and has no other effect. Default: none; each step has its own timeout.
	Deadline time.Duration
	// Steps run one after another. Required.
	Steps []Step[D]
	// Upgrade makes the data of an instance that migrates from another version those of this one, as Operation.To asks for. Default:
	// they are read as they are.
	Upgrade func(from int, data json.RawMessage) (D, error)
	// OnCompleted and OnCompensated announce the end, in the transaction that records it. Default: no announcement.
	OnCompleted, OnCompensated Announcement[D]
}

// Announcement makes a message from the data of a saga.
type Announcement[D any] func(d D) (*postrider.Message, error)

// Announce announces the end of a saga with a message of a definition.
func Announce[D, T any](message postrider.Definition[T], data func(d D) T) Announcement[D] {
	return func(d D) (*postrider.Message, error) { return message.New(data(d)) }
}

// Validate checks the definition, as Register does. The error lists everything that is wrong.
func (d Definition[D]) Validate() error {
	_, err := d.Compile()
	return err
}

// Mermaid draws the definition as a Mermaid flowchart. Errors: those of Validate.
func (d Definition[D]) Mermaid() (string, error) {
	m, err := d.Compile()
	if err != nil {
		return "", err
	}
	return m.Mermaid(nil), nil
}

// Graph returns the structure of the definition as JSON, and a hash that changes with the structure but not with timeouts,
// attempts, roles, topics and the version. Errors: those of Validate.
func (d Definition[D]) Graph() (graph []byte, hash string, err error) {
	m, err := d.Compile()
	if err != nil {
		return nil, "", err
	}
	graph, err = json.MarshalIndent(m.Graph(), "", "  ")
	return graph, m.Hash(), err
}

// Compile returns the definition in the form that the engine and sagatest run. Errors: those of Validate.
func (d Definition[D]) Compile() (*machine.Definition, error) {
	m := &machine.Definition{
		Name: d.Name, Version: d.Version, Deadline: d.Deadline, Steps: built(d.Steps), Decode: decode[D], Encode: encode,
		OnCompleted: builder(d.OnCompleted), OnCompensated: builder(d.OnCompensated),
	}
	if d.Key != nil {
		m.Key = func(data any) string { return d.Key(*data.(*D)) }
	}
	if d.Upgrade != nil {
		m.Upgrade = func(from int, data json.RawMessage) (text json.RawMessage, err error) {
			err = protect.Call(func() error {
				upgraded, err := d.Upgrade(from, data)
				if err == nil {
					text, err = encode(&upgraded)
				}
				return err
			}, func(v any, _ string) error { return fmt.Errorf("panic: %v", v) })
			return text, err
		}
	}
	if err := m.Complete(); err != nil {
		return nil, err
	}
	return m, nil
}

func builder[D any](a Announcement[D]) machine.Builder {
	if a == nil {
		return nil
	}
	return func(data any) (*postrider.Message, error) { return a(*data.(*D)) }
}
