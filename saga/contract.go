package saga

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/protect"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/saga/internal/machine"
)

// Contract is what a choreographed saga expects: which services publish which events, in which order, and how each event is undone.
// The services do not know it. A tracker compares what they publish with the contract, see Track.
type Contract struct {
	// Name identifies the saga, Version counts its versions from 1. Both are required. Instances continue with the version
	// that they began with, so keep a version until none of its instances is running.
	Name    string
	Version int
	// Deadline is the time that an instance has to pass its pivot, or to complete if it has none; then it turns back. It begins
	// when the tracker records the first event. Default: none.
	Deadline time.Duration
	// CancelWithin is for how long an instance that has completed can be cancelled, if no pivot has happened: at most Config.KeepEnded,
	// and less than ParticipantConfig.KeepRecords of the services, by which they know what to undo. Default: not at all.
	CancelWithin time.Duration
	// Compensate says who starts the undos. Default: RequestUndos.
	Compensate Compensation
	// Events are in the order in which they happen. Required.
	Events []Event
	// Instance returns what identifies the instance that an event belongs to, "" if it belongs to none, such as a charge that no order
	// asked for. Default: the header "postrider-saga", or else the correlation ID, which Publish fills in inside a handler, or
	// else the event's ID. What is not UTF-8 without NUL is replaced by its readable beginning and a digest. If it panics, an instance that
	// is stuck is made for the event, under the event's ID: correct Instance, replay the event, and abandon that instance.
	Instance func(m *postrider.Message) string
	// OnTimedOut and OnEnded announce that an instance turned back because of time, and how one ended. With Observe, OnTimedOut
	// is "saga.timed-out" by default, since services have to hear of it. Otherwise the default is no announcement.
	OnTimedOut, OnEnded postrider.Definition[Report]
}

// Compensation says who starts the undos of a choreographed saga.
type Compensation string

// The ways to compensate.
const (
	// RequestUndos: when an instance turns back, the tracker publishes the Undo of each event that has or may have happened, in
	// reverse order, one after another, and waits for each Undone. Services answer also if there is nothing to undo;
	// Participant.Undo does.
	RequestUndos Compensation = ""
	// Observe: services undo by themselves when they hear of a failure. The tracker publishes no Undo; it waits for each Undone, and
	// is stuck with the name of the service if one is missing for Config.StuckAfter.
	Observe Compensation = "observe"
)

// Event is an event of a contract. Its name in lists and for operators is its message type.
type Event struct {
	// On is the event. Required.
	On postrider.AnyDefinition
	// Service names who publishes it, for people. Required.
	Service string
	// Start marks the event that all others come after, End those that complete the saga.
	Start, End bool
	// After are the events that must have happened before. Required, except for the Start. OneOf names alternatives.
	After Defs
	// Within is the time for the event, from the moment when the tracker has recorded what it comes after. Default: no limit but
	// the Deadline.
	Within time.Duration
	// Fails are events that say that this one did not happen and will not. Before the pivot, they turn the instance back.
	Fails Defs
	// Undo asks the service to undo the event. Its payload is that of the event, or null if the tracker has not seen it. Undone is the
	// event by which the service confirms. Both are required if anything can fail after the event, unless it is marked NoUndo.
	// With Observe, Undo is not needed.
	Undo, Undone postrider.AnyDefinition
	// NoUndo: the event needs no undo. For a pivot: nobody can find out whether it has happened.
	NoUndo bool
	// Optional: the saga completes without it.
	Optional bool
	// Pivot: once it has happened, the instance does not turn back.
	Pivot bool
	// Items lets the event happen once for each of several items, such as the lines of an order, see ItemsOf. Item says which
	// item an event is about, see ItemOf: it needs a function for On; one for Undone, unless Participant.Undo publishes it on request
	// of the tracker; and one for each of Fails that is about an item.
	Items Items
	Item  ItemFuncs
}

// Defs are definitions of events.
type Defs []postrider.AnyDefinition

// alternatives are definitions of which one suffices.
type alternatives struct {
	postrider.AnyDefinition
	all Defs
}

// OneOf names alternatives in Event.After: one of the events must have happened.
func OneOf(events ...postrider.AnyDefinition) postrider.AnyDefinition {
	if len(events) == 0 {
		return nil
	}
	return alternatives{events[0], events}
}

// Items says for which items an event happens.
type Items struct {
	from string
	of   func(m *postrider.Message) ([]string, error)
}

// ItemsOf reads the items from an event that always comes before, usually the Start. Two items of the same name count as one.
func ItemsOf[T any](from postrider.Definition[T], items func(data T) []string) Items {
	return Items{from.Type(), func(m *postrider.Message) ([]string, error) {
		typed, err := from.Decode(m)
		if err != nil {
			return nil, err
		}
		return items(typed.Data), nil
	}}
}

// ItemFuncs say which item an event is about.
type ItemFuncs []ItemFunc

// ItemFunc is that of one message type.
type ItemFunc struct {
	messageType string
	of          func(m *postrider.Message) (string, error)
}

// ItemOf returns the function for the events of a definition.
func ItemOf[T any](event postrider.Definition[T], item func(data T) string) ItemFunc {
	return ItemFunc{event.Type(), func(m *postrider.Message) (string, error) {
		typed, err := event.Decode(m)
		if err != nil {
			return "", err
		}
		return item(typed.Data), nil
	}}
}

// Report is the data of the announcements of a contract.
type Report = machine.Report

// Validate checks the contract, as Track does. The error lists everything that is wrong.
func (c Contract) Validate() error {
	_, err := c.Compile()
	return err
}

// Mermaid draws the contract as a Mermaid flowchart. Errors: those of Validate.
func (c Contract) Mermaid() (string, error) {
	m, err := c.Compile()
	if err != nil {
		return "", err
	}
	return m.Mermaid(nil), nil
}

// Graph returns the structure of the contract as JSON, and a hash that changes with the structure but not with times, services, topics
// and the version. Errors: those of Validate.
func (c Contract) Graph() (graph []byte, hash string, err error) {
	m, err := c.Compile()
	if err != nil {
		return nil, "", err
	}
	graph, err = json.MarshalIndent(m.Graph(), "", "  ")
	return graph, m.Hash(), err
}

// Compile returns the contract in the form that the tracker and sagatest run. Errors: those of Validate.
func (c Contract) Compile() (*machine.Contract, error) {
	m := &machine.Contract{
		Name: c.Name, Version: c.Version, Deadline: c.Deadline, CancelWithin: c.CancelWithin, Observe: c.Compensate == Observe,
	}
	var invalid error
	if c.Compensate != RequestUndos && c.Compensate != Observe {
		invalid = fmt.Errorf("contract %s v%d: Compensate is %q; it is RequestUndos or Observe", c.Name, c.Version, c.Compensate)
	}
	if m.Observe && c.OnTimedOut.Type() == "" {
		c.OnTimedOut = postrider.Define[Report]("saga.timed-out")
	}
	for _, d := range []struct {
		of *func(Report) (*postrider.Message, error)
		by postrider.Definition[Report]
	}{{&m.OnTimedOut, c.OnTimedOut}, {&m.OnEnded, c.OnEnded}} {
		if d.by.Type() != "" {
			*d.of, invalid = d.by.New, errors.Join(invalid, d.by.Validate())
		}
	}
	for _, e := range c.Events {
		expected := e.compile()
		if m.Observe && expected.Each && expected.Undone != "" && !e.says(expected.Undone) {
			expected.Invalid = errors.Join(expected.Invalid, errors.New("has Items and no ItemOf its Undone: with Observe, no request says which item it is about"))
		}
		m.Events = append(m.Events, expected)
	}
	if err := errors.Join(invalid, m.Complete()); err != nil {
		return nil, err
	}
	return m, nil
}

// compile removes the types of an event. What is wrong with its definitions is in Invalid.
func (e Event) compile() *machine.Expected {
	m := &machine.Expected{
		Service: e.Service, Start: e.Start, End: e.End, Optional: e.Optional, Pivot: e.Pivot, NoUndo: e.NoUndo, Within: e.Within,
	}
	name := func(d postrider.AnyDefinition, what string, topic bool) string {
		if d == nil {
			m.Invalid = errors.Join(m.Invalid, fmt.Errorf("%s is nil", what))
			return ""
		}
		m.Invalid = errors.Join(m.Invalid, d.Validate())
		if topic {
			m.Topics = append(m.Topics, d.Topic())
		}
		return d.Type()
	}
	m.Name = name(e.On, "On", true)
	for _, after := range e.After {
		group := Defs{after}
		if several, is := after.(alternatives); is {
			group = several.all
		}
		var names []string
		for _, d := range group {
			names = append(names, name(d, "a definition in After", false))
		}
		m.After = append(m.After, names)
	}
	for _, d := range e.Fails {
		m.Fails = append(m.Fails, name(d, "a definition in Fails", true))
	}
	if e.Undo != nil {
		m.Undo = machine.UndoRequest{Type: name(e.Undo, "Undo", false), Topic: e.Undo.Topic(), SchemaVersion: e.Undo.SchemaVersion()}
	}
	if e.Undone != nil {
		m.Undone = name(e.Undone, "Undone", true)
	}
	if e.Items.of != nil {
		m.Each, m.ItemsFrom, m.Items, m.Item = true, e.Items.from, e.Items.of, e.itemOf
		if !e.says(m.Name) {
			m.Invalid = errors.Join(m.Invalid, errors.New("has Items and no ItemOf its On, which says which item it is about"))
		}
	}
	return m
}

// says says whether Item has a function for a message type.
func (e Event) says(messageType string) bool {
	return slices.ContainsFunc(e.Item, func(f ItemFunc) bool { return f.messageType == messageType })
}

// itemOf returns the item that an event is about, by what it says, or by the undo that it confirms.
func (e Event) itemOf(m *postrider.Message) (string, error) {
	for _, f := range e.Item {
		if f.messageType == m.Type {
			return f.of(m)
		}
	}
	return machine.ItemOf(m.Headers[headerStep]), nil
}

// identityOf is the identity of the instance that an event belongs to. One that no store takes has a stand-in: the event is no dead letter,
// since other contracts may know it.
// If Instance panics, so has the event itself, and the error says why.
func (c *Contract) identityOf(m *postrider.Message) (identity string, err error) {
	if c.Instance == nil {
		return processOf(m), nil
	}
	err = protect.Call(func() error { identity = c.Instance(m); return nil }, func(v any, stack string) error {
		return fmt.Errorf("panic: %v\n%s", v, stack)
	})
	if err != nil {
		identity = m.ID
	}
	if !storable(identity) {
		return stored.StandIn(identity, postrider.MaxIDBytes), err
	}
	return identity, err
}

// processOf identifies the business process that a message belongs to.
func processOf(m *postrider.Message) string { return cmp.Or(m.Headers[headerID], correlationOf(m)) }

// correlationOf is the correlation ID that messages get that are published while m is handled.
func correlationOf(m *postrider.Message) string {
	return stored.Fit(cmp.Or(m.CorrelationID, m.ID), postrider.MaxCorrelationIDBytes)
}

// tenantOf is the tenant that such messages get.
func tenantOf(m *postrider.Message) string { return stored.Fit(m.Tenant, postrider.MaxTenantBytes) }
