package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/store"
)

// clocksMargin is how far the clocks of two stores are apart at most, so that an effect is found in another store.
const clocksMargin = 10 * time.Second

// effects reads the logs of all stores from a message on, and returns what it caused.
func (c *chase) effects(ctx context.Context, root Linked, limit int) ([]Linked, int) {
	logs := make([]map[string][]Linked, len(c.stores))
	ctx, cancel := c.part(ctx, effectsPart)
	defer cancel()
	c.each(ctx, func(i int, s *openStore) (err error) {
		logs[i], err = c.effectsIn(ctx, s, root)
		return err
	})
	all := make(map[string][]Linked)
	for _, log := range logs {
		for cause, list := range log {
			all[cause] = append(all[cause], list...)
		}
	}
	return c.grow(root, all, limit)
}

// effectsIn reads messages with a causation ID from a log, by that ID. What it has read before an error is valid.
func (c *chase) effectsIn(ctx context.Context, s *openStore, root Linked) (map[string][]Linked, error) {
	out := make(map[string][]Linked)
	r, err := s.readerAfter(ctx, root)
	if err != nil {
		return out, err
	}
	until, ended, err := read(ctx, r, c.messages, func(m *postrider.Message) bool {
		if m.CausationID != "" {
			out[m.CausationID] = append(out[m.CausationID], linked(m, s.name, true))
		}
		return false
	})
	g := Gap{Store: s.name, Until: until}
	switch {
	case err != nil && ctx.Err() != nil && !until.IsZero():
		g.Reason, g.Text = GapTime, fmt.Sprintf("The log of %s was searched for effects for %s, up to %s.", s.name, c.within, until.UTC().Format("2006-01-02 15:04:05"))
	case err != nil:
		s.slow = ctx.Err() != nil
		return out, err
	case !ended:
		g.Reason = GapMessages
		g.Text = fmt.Sprintf("%d messages of the log of %s were searched for effects, up to %s.", c.messages, s.name, until.UTC().Format("2006-01-02 15:04:05"))
	default:
		return out, nil
	}
	c.gap(g)
	return out, nil
}

// readerAfter returns a reader of the log that is positioned where effects of a message begin.
func (s *openStore) readerAfter(ctx context.Context, root Linked) (*logreader.Reader, error) {
	if root.Store == s.name && root.sequence > 0 {
		return logreader.After(ctx, s.Store, root.sequence)
	}
	from := root.StoredAt
	if made, ok := timeOf(root.ID); ok && made.Before(from) {
		from = made
	}
	return logreader.FromTime(ctx, s.Store, from.Add(-clocksMargin))
}

// node is a message of a tree of effects.
type node struct {
	Linked
	parent  *node
	depth   int
	effects []*node
}

// isBelow reports whether a message is the node, or one of those that caused it.
func (n *node) isBelow(id string) bool {
	for ; n != nil; n = n.parent {
		if n.ID == id {
			return true
		}
	}
	return false
}

// grow makes a tree of effects, of which those that are closest to the message are returned if there are too many.
func (c *chase) grow(root Linked, effects map[string][]Linked, limit int) ([]Linked, int) {
	top, seen, hidden := &node{Linked: root}, map[string]bool{root.ID: true}, 0
	for queue := []*node{top}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		list := effects[n.ID]
		slices.SortStableFunc(list, func(a, b Linked) int {
			return cmp.Or(a.StoredAt.Compare(b.StoredAt), cmp.Compare(a.sequence, b.sequence))
		})
		for _, l := range list {
			switch {
			case n.isBelow(l.ID):
				c.gap(cycleAt(l.ID))
			case seen[l.ID]: // a message of two logs
			case n.depth == maxChain:
				n.More++
				c.gap(Gap{Reason: GapDepth, Text: fmt.Sprintf("Effects are followed %d deep.", maxChain)})
			case limit == 0:
				n.More++
				hidden++
			default:
				limit, seen[l.ID] = limit-1, true
				child := &node{Linked: l, parent: n, depth: n.depth + 1}
				n.effects, queue = append(n.effects, child), append(queue, child)
			}
		}
	}
	if hidden > 0 {
		c.gap(Gap{Reason: GapLimit, Text: fmt.Sprintf("%d more effects were found and are not listed.", hidden)})
	}
	return top.linked(), top.More
}

// linked returns the effects of a node with their own.
func (n *node) linked() []Linked {
	out := make([]Linked, 0, len(n.effects))
	for _, child := range n.effects {
		l := child.Linked
		if len(child.effects) > 0 {
			l.Effects = child.linked()
		}
		out = append(out, l)
	}
	return out
}

// mark finds the open dead letters of all messages of a chain.
func (c *chase) mark(ctx context.Context, out *Causation) {
	all := []*Linked{&out.Message}
	var add func(list []Linked)
	add = func(list []Linked) {
		for i := range list {
			all = append(all, &list[i])
			add(list[i].Effects)
		}
	}
	add(out.Causes)
	add(out.Effects)
	dead := make([][]int64, len(c.stores))
	c.each(ctx, func(i int, s *openStore) error {
		if dead[i] = make([]int64, len(all)); s.slow {
			return nil
		}
		for n, l := range all {
			for d, err := range deadletter.New(s).ListDead(ctx, store.DeadFilter{MessageID: l.ID}, 0, 1) {
				if err != nil {
					return err
				}
				dead[i][n] = d.Number
			}
		}
		return nil
	})
	for i, s := range c.stores {
		for n, number := range dead[i] {
			if number > 0 && all[n].DeadLetter == 0 {
				all[n].DeadLetter, all[n].DeadIn = number, s.name
			}
		}
	}
}
