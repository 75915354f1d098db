package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/postrider/postrider"
)

// ContractGraph is the structure of a contract: what instances that are running depend on.
type ContractGraph struct {
	Contract string      `json:"contract"`
	Version  int         `json:"version"`
	Observe  bool        `json:"observe,omitzero"`
	Events   []EventNode `json:"events"`
	// Deadline and CancelWithin are policy, in seconds.
	Deadline     float64 `json:"deadline,omitzero"`
	CancelWithin float64 `json:"cancel_within,omitzero"`
}

// EventNode is an event of a ContractGraph.
type EventNode struct {
	Name      string      `json:"name"`
	Start     bool        `json:"start,omitzero"`
	End       bool        `json:"end,omitzero"`
	Optional  bool        `json:"optional,omitzero"`
	Pivot     bool        `json:"pivot,omitzero"`
	NoUndo    bool        `json:"no_undo,omitzero"`
	After     [][]string  `json:"after,omitempty"`
	Fails     []string    `json:"fails,omitempty"`
	Undo      UndoRequest `json:"undo,omitzero"`
	Undone    string      `json:"undone,omitzero"`
	Each      bool        `json:"each,omitzero"`
	ItemsFrom string      `json:"items_from,omitzero"`
	// Service, Within in seconds, and Topics are policy: running instances follow the contract of the process.
	Service string   `json:"service,omitzero"`
	Within  float64  `json:"within,omitzero"`
	Topics  []string `json:"topics,omitempty"`
}

// Graph returns the structure of the contract as a value for JSON.
func (c *Contract) Graph() any { return c.graph(true) }

func (c *Contract) graph(policy bool) ContractGraph {
	g := ContractGraph{Contract: c.Name, Observe: c.Observe}
	if policy {
		g.Version, g.Deadline, g.CancelWithin = c.Version, seconds(c.Deadline), seconds(c.CancelWithin)
	}
	for _, e := range c.Events {
		n := EventNode{
			Name: e.Name, Start: e.Start, End: e.End, Optional: e.Optional, Pivot: e.Pivot, NoUndo: e.NoUndo, After: e.After, Fails: e.Fails,
			Undo: UndoRequest{Type: e.Undo.Type}, Undone: e.Undone, Each: e.Each, ItemsFrom: e.ItemsFrom,
		}
		if policy {
			n.Undo.Topic, n.Service, n.Within, n.Topics = e.Undo.Topic, e.Service, seconds(e.Within), e.Topics
		}
		g.Events = append(g.Events, n)
	}
	return g
}

// Hash identifies the structure of the contract, without its policy: times, topics, services and the version.
func (c *Contract) Hash() string { return c.hash }

func (c *Contract) computeHash() string {
	text, err := json.Marshal(c.graph(false))
	if err != nil {
		panic(err) // a ContractGraph has nothing that JSON cannot write
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ContractFromGraph returns the contract that a graph describes, for tools.
func ContractFromGraph(text []byte) (*Contract, error) {
	var g ContractGraph
	if err := json.Unmarshal(text, &g); err != nil {
		return nil, fmt.Errorf("read the graph of a contract: %w", err)
	}
	c := &Contract{Name: g.Contract, Version: g.Version, Observe: g.Observe, Deadline: duration(g.Deadline), CancelWithin: duration(g.CancelWithin)}
	for _, n := range g.Events {
		e := &Expected{
			Name: n.Name, Service: n.Service, Start: n.Start, End: n.End, Optional: n.Optional, Pivot: n.Pivot, NoUndo: n.NoUndo, After: n.After,
			Within: duration(n.Within), Fails: n.Fails, Undo: n.Undo, Undone: n.Undone, Each: n.Each, ItemsFrom: n.ItemsFrom, Topics: n.Topics,
		}
		if n.Each {
			e.Items = func(*postrider.Message) ([]string, error) { return nil, nil }
		}
		c.Events = append(c.Events, e)
	}
	c.Stored = true
	if err := c.Complete(); err != nil {
		return nil, err
	}
	return c, nil
}
