package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/postrider/postrider"
)

// shape describes a step, so that a definition can be made of it, and one that differs.
type shape struct {
	kind                                          Kind
	name, message                                 string
	card                                          string // the name of the first case
	pivot, noUndo, undoes, conditional, continues bool
	timeout                                       time.Duration
	subs                                          [][]*shape // of each case; of all branches, or of an item
}

// shaper makes random shapes. Names count up, so that none repeats.
type shaper struct {
	random *rand.Rand
	named  int
}

func (g *shaper) oneIn(n int) bool { return g.random.IntN(n) == 0 }

func (g *shaper) shapes(n, depth int) (out []*shape) {
	for range n {
		out = append(out, g.shape(depth))
	}
	return out
}

func (g *shaper) shape(depth int) *shape {
	g.named++
	s := &shape{kind: Request, name: fmt.Sprint("s", g.named), timeout: time.Duration(1+g.random.IntN(3)) * time.Second}
	s.message, s.conditional, s.continues = "do."+s.name, g.oneIn(6), g.oneIn(6)
	switch kind := g.random.IntN(15); {
	case kind < 3:
		s.kind = Local
	case kind == 3:
		s.kind, s.message = Child, "child."+s.name
	case kind == 4:
		s.kind, s.message = Await, "signal."+s.name
	case kind == 5:
		s.kind = Ask
	case depth > 0:
	case kind == 6, kind == 9:
		s.kind, s.card, s.subs = Choose, "card", [][]*shape{g.shapes(1+g.random.IntN(2), 1), g.shapes(g.random.IntN(3), 1)}
	case kind == 7:
		s.kind, s.subs = Parallel, [][]*shape{g.shapes(2, 1)}
	case kind == 8:
		s.kind, s.subs = Each, [][]*shape{g.shapes(1+g.random.IntN(2), 1)}
	}
	s.pivot = depth == 0 && g.oneIn(3)
	s.noUndo = g.oneIn(4)
	s.undoes = !s.noUndo && !g.oneIn(4)
	return s
}

func copied(shapes []*shape) (out []*shape) {
	for _, s := range shapes {
		c := *s
		c.subs = slices.Clone(s.subs)
		for i := range c.subs {
			c.subs[i] = copied(c.subs[i])
		}
		out = append(out, &c)
	}
	return out
}

// changed returns a copy with up to two differences.
func (g *shaper) changed(shapes []*shape) []*shape {
	out := copied(shapes)
	for range 1 + g.random.IntN(2) {
		out = g.change(out)
	}
	return out
}

// change makes a difference in a sequence, or in a step of it.
func (g *shaper) change(shapes []*shape) []*shape {
	i := g.random.IntN(len(shapes) + 1)
	if i == len(shapes) {
		return append(shapes, g.shape(1))
	}
	s := shapes[i]
	if len(s.subs) > 0 && !g.oneIn(3) {
		at := g.random.IntN(len(s.subs))
		s.subs[at] = g.change(s.subs[at])
		return shapes
	}
	switch g.random.IntN(13) {
	case 0:
		return slices.Delete(shapes, i, i+1)
	case 1:
		return slices.Insert(shapes, i, g.shape(1))
	case 2:
		s.name += "x"
	case 12:
		s.card += "x"
	case 3:
		s.message += "x"
	case 4:
		s.pivot = !s.pivot
	case 5, 6:
		s.noUndo, s.undoes = !s.noUndo, s.noUndo
	case 7:
		s.conditional = !s.conditional
	case 8:
		s.continues = !s.continues
	case 9:
		if i > 0 {
			shapes[i-1], shapes[i] = s, shapes[i-1]
		}
	case 10:
		switch s.kind {
		case Request:
			s.kind = Local
		case Local:
			s.kind = Request
		case Parallel:
			s.kind = Each
		case Each:
			s.kind, s.subs[0] = Parallel, append(s.subs[0], g.shape(1))
		case Choose: // whose case becomes a branch with the same path
			s.kind, s.subs = Parallel, [][]*shape{{{kind: Parallel, name: s.card, subs: [][]*shape{append(s.subs[0], g.shape(1))}}, g.shape(1)}}
		default:
		}
	case 11:
		s.timeout++
	}
	return shapes
}

func hasCard(data any) bool { return (*data.(*map[string]any))["card"] == true }

// stepsOf makes the steps of shapes.
func stepsOf(shapes []*shape) (out []*Step) {
	for _, s := range shapes {
		out = append(out, s.step())
	}
	return out
}

func (s *shape) step() *Step {
	out := &Step{Kind: s.kind, Name: s.name}
	if s.conditional {
		out.OnlyIf = func(data any) bool { return data != nil && s.name[len(s.name)-1]%2 == 0 }
	}
	switch s.kind {
	case Request:
		out.Message, out.Topic, out.NoUndo, out.Timeout = s.message, s.name, s.noUndo, s.timeout
		out.Command = func(any) (*postrider.Message, error) { return &postrider.Message{Type: s.message, Topic: s.name}, nil }
		out.Done = func(any, []byte) error { return nil }
	case Local:
		out.NoUndo, out.Undoes, out.Run = s.noUndo && !s.undoes, s.undoes, func(context.Context, any, any) error { return nil }
	case Child:
		out.Message, out.ChildData = s.message, func(any) (json.RawMessage, error) { return json.RawMessage("{}"), nil }
		out.Child = untyped()
		out.Child.Name = s.message
	case Await:
		out.Message, out.Timeout, out.Done = s.message, s.timeout, func(any, []byte) error { return nil }
	case Ask:
		out.Question, out.Options, out.Timeout = func(any) string { return "?" }, []string{"yes"}, s.timeout
	case Choose:
		out.Cases = []Case{{Name: s.card, If: hasCard, Steps: stepsOf(s.subs[0])}, {Name: "other", Steps: stepsOf(s.subs[1])}}
	case Parallel:
		out.Branches = stepsOf(s.subs[0])
	case Each:
		out.Each, out.Codec = stepsOf(s.subs[0]), ItemCodec{
			Decode: func(text []byte) (any, error) { data := new(map[string]any); return data, json.Unmarshal(text, data) }, Encode: json.Marshal,
		}
		out.List = func(any) ([]Item, error) {
			return []Item{{ID: "1", Data: json.RawMessage(`{}`)}, {ID: "2", Data: json.RawMessage(`{}`)}}, nil
		}
	default:
		out.Invalid = errors.New("no such kind")
	}
	if s.kind == Request || s.kind == Local || s.kind == Child {
		out.Pivot = s.pivot
		if s.continues {
			out.Refused = func(any, Refusal) {}
		}
	} else if s.continues && (s.kind == Await || s.kind == Ask) {
		out.TimedOut = func(any) {}
	}
	return out
}
