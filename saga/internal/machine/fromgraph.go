package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider"
)

// needsData is why a definition that was read from its graph cannot take a step: it has the structure, and not the functions.
const needsData = "it depends on the data"

// NeedsData says whether a step is stuck only because its definition was read from a graph.
func (s *StepState) NeedsData() bool {
	return s.Status == StepStuck && strings.HasSuffix(s.Reason, needsData)
}

// FromGraph returns the definition that a graph describes, for tools. It has the structure and none of the functions: where one would
// decide, the step is stuck, see NeedsData; where one would change the data, they stay as they are.
func FromGraph(text []byte) (*Definition, error) {
	var g Graph
	if err := json.Unmarshal(text, &g); err != nil {
		return nil, fmt.Errorf("read the graph of a saga: %w", err)
	}
	d := &Definition{
		Name: g.Saga, Version: g.Version, Deadline: duration(g.Deadline), Steps: steps(g.Steps), Decode: undecoded.Decode, Encode: undecoded.Encode,
	}
	silent := func(any) (*postrider.Message, error) { return nil, nil }
	if g.OnCompleted {
		d.OnCompleted = silent
	}
	if g.OnCompensated {
		d.OnCompensated = silent
	}
	if err := d.Complete(); err != nil {
		return nil, err
	}
	return d, nil
}

// undecoded leaves data as they are stored.
var undecoded = ItemCodec{
	Decode: func(text []byte) (any, error) { return &text, nil },
	Encode: func(data any) ([]byte, error) { return *data.(*[]byte), nil },
}

func steps(nodes []StepNode) (out []*Step) {
	for _, n := range nodes {
		s := &Step{
			Kind: n.Kind, Name: n.Name, Message: n.Message, Topic: n.Topic, Pivot: n.Pivot, NoUndo: n.NoUndo, Undoes: n.Undoes, Options: n.Options,
			Roles: n.Roles, Timeout: duration(n.Timeout), Attempts: n.Attempts, OnlyIf: condition(n.Conditional), Branches: steps(n.Branches),
			Each: steps(n.Each), Window: n.Window, Codec: undecoded,
		}
		switch s.Kind {
		case Request:
			s.Command = func(any) (*postrider.Message, error) { return &postrider.Message{Type: n.Message, Topic: n.Topic}, nil }
		case Local:
			s.Run = func(context.Context, any, any) error { return nil }
		case Ask:
			s.Question = func(any) string { return "" }
		case Child:
			s.Child = &Definition{Name: n.Message, Decode: undecoded.Decode, Encode: undecoded.Encode}
			s.ChildData = func(any) (json.RawMessage, error) { return nil, nil }
		case Each:
			s.List = func(any) ([]Item, error) { panic(needsData) }
		}
		if n.Continues && (s.Kind == Await || s.Kind == Ask) {
			s.TimedOut = func(any) {}
		} else if n.Continues {
			s.Refused = func(any, Refusal) {}
		}
		for _, c := range n.Cases {
			s.Cases = append(s.Cases, Case{Name: c.Name, If: condition(c.Conditional), Steps: steps(c.Steps)})
		}
		out = append(out, s)
	}
	return out
}

// condition is one that cannot be decided without the data.
func condition(is bool) func(any) bool {
	if !is {
		return nil
	}
	return func(any) bool { panic(needsData) }
}

func duration(seconds float64) time.Duration {
	if seconds < 0 {
		return NoTimeout
	}
	return time.Duration(seconds * float64(time.Second))
}
