package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Graph is the structure of a definition: what instances that are running depend on.
type Graph struct {
	Saga    string     `json:"saga"`
	Version int        `json:"version"`
	Steps   []StepNode `json:"steps"`
	// OnCompleted and OnCompensated say whether the end is announced.
	OnCompleted   bool `json:"on_completed,omitzero"`
	OnCompensated bool `json:"on_compensated,omitzero"`
	// Deadline is policy, in seconds.
	Deadline float64 `json:"deadline,omitzero"`
}

// StepNode is a step of a Graph.
type StepNode struct {
	Name        string     `json:"name"`
	Kind        Kind       `json:"kind"`
	Message     string     `json:"message,omitzero"`
	Topic       string     `json:"topic,omitzero"`
	Conditional bool       `json:"conditional,omitzero"`
	Pivot       bool       `json:"pivot,omitzero"`
	NoUndo      bool       `json:"no_undo,omitzero"`
	Undoes      bool       `json:"undoes,omitzero"`    // a local step has an undo
	Continues   bool       `json:"continues,omitzero"` // after a refusal or timeout
	Options     []string   `json:"options,omitempty"`
	Cases       []Node     `json:"cases,omitempty"`
	Branches    []StepNode `json:"branches,omitempty"`
	Each        []StepNode `json:"each,omitempty"` // of every item
	// Timeout in seconds, Attempts, Roles and Window are policy: running instances follow the definition of the process.
	Timeout  float64  `json:"timeout,omitzero"`
	Attempts int      `json:"attempts,omitzero"`
	Roles    []string `json:"roles,omitempty"`
	Window   int      `json:"window,omitzero"`
}

// Node is a case of a Choose.
type Node struct {
	Name        string     `json:"name"`
	Conditional bool       `json:"conditional,omitzero"`
	Steps       []StepNode `json:"steps,omitempty"`
}

// Graph returns the structure of the definition.
func (d *Definition) Graph() Graph {
	return Graph{
		Saga: d.Name, Version: d.Version, Steps: nodes(d.Steps, true), OnCompleted: d.OnCompleted != nil,
		OnCompensated: d.OnCompensated != nil, Deadline: seconds(d.Deadline),
	}
}

// Hash identifies the structure of the definition, without its policy: timeouts, attempts, roles, topics, windows and the version.
func (d *Definition) Hash() string { return d.hash }

func (d *Definition) computeHash() string {
	g := Graph{Saga: d.Name, Steps: nodes(d.Steps, false), OnCompleted: d.OnCompleted != nil, OnCompensated: d.OnCompensated != nil}
	text, err := json.Marshal(g)
	if err != nil {
		panic(err) // a Graph has nothing that JSON cannot write
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func nodes(steps []*Step, policy bool) (out []StepNode) {
	for _, s := range steps {
		n := StepNode{
			Name: s.Name, Kind: s.Kind, Message: s.Message, Conditional: s.OnlyIf != nil, Pivot: s.Pivot, NoUndo: s.NoUndo, Undoes: s.Undoes,
			Continues: s.Refused != nil || s.TimedOut != nil, Options: s.Options, Branches: nodes(s.Branches, policy),
			Each: nodes(s.Each, policy),
		}
		for _, c := range s.Cases {
			n.Cases = append(n.Cases, Node{Name: c.Name, Conditional: c.If != nil, Steps: nodes(c.Steps, policy)})
		}
		if policy {
			n.Timeout, n.Attempts, n.Roles, n.Topic, n.Window = seconds(s.Timeout), s.Attempts, s.Roles, s.Topic, s.Window
		}
		out = append(out, n)
	}
	return out
}

func seconds(d time.Duration) float64 {
	if d == NoTimeout {
		return -1
	}
	return d.Seconds()
}
