package machine

import (
	"encoding/json"
	"fmt"
)

// Rules say how the instances of a saga proceed: a *Definition or a *Contract.
type Rules interface {
	Advance(p Policy, in Instance, input Input) (Instance, Output, error)
	// Identity is the name and the version of the saga. Hash identifies its structure, see Definition.Hash.
	Identity() (name string, version int)
	Hash() string
	// Mermaid draws it as a Mermaid flowchart, with a state also an instance.
	Mermaid(s *State) string
	// undoOf identifies its undo of a step, "" if it has none. equalPolicy says whether all is the same that is not structure.
	undoOf(path string) string
	equalPolicy(o Rules) bool
	// parts is its structure, for Changes.
	parts() []part
}

var (
	_ Rules = (*Definition)(nil)
	_ Rules = (*Contract)(nil)
)

// Identity implements Rules.
func (d *Definition) Identity() (name string, version int) { return d.Name, d.Version }

// Identity implements Rules.
func (c *Contract) Identity() (name string, version int) { return c.Name, c.Version }

// RulesFromGraph returns the definition or the contract that a graph describes, for tools.
func RulesFromGraph(text []byte) (Rules, error) {
	var kind struct {
		Contract string `json:"contract"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, fmt.Errorf("read the graph of a saga: %w", err)
	}
	if kind.Contract == "" {
		d, err := FromGraph(text)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	c, err := ContractFromGraph(text)
	if err != nil {
		return nil, err
	}
	return c, nil
}
