package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/store"
)

// chase is a search for causes and effects.
type chase struct {
	messages int
	within   time.Duration
	stores   []*openStore

	mu   sync.Mutex
	gaps []Gap
}

// openStore is a store that can be read, so far.
type openStore struct {
	Store
	name   string
	relays []string // nil until they are needed
	// failed: it could not be read, so it is not asked again. slow: it did not answer in time, so it is asked for effects only.
	failed, slow bool
}

// The parts of the time of a search: for opening stores, for the message itself in one store, for one cause, for all of them, and for effects.
// What is left is for dead letters. A store that does not answer uses up a part once, and others have the rest.
const (
	openPart, rootPart, causePart, causesPart, effectsPart = 0.3, 0.4, 0.25, 0.35, 0.4
)

// part bounds something by a part of the time.
func (c *chase) part(ctx context.Context, part float64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(part*float64(c.within)))
}

// gap records that something is missing: of each kind once for each store and message.
func (c *chase) gap(g Gap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := func(o Gap) bool { return o.Store == g.Store && o.Reason == g.Reason && o.MessageID == g.MessageID }
	if !slices.ContainsFunc(c.gaps, same) {
		c.gaps = append(c.gaps, g)
	}
}

// failed records that a store could not be read, or not in time.
func (c *chase) failed(ctx context.Context, name string, err error) {
	g := Gap{Store: name, Reason: GapUnreachable, Text: "Store " + name + " cannot be read.", Err: err}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		g = Gap{Store: name, Reason: GapTime, Text: fmt.Sprintf("Store %s did not answer everything within %s.", name, c.within)}
	}
	c.gap(g)
}

// each calls f for all stores that can be read at once, and returns when all calls have ended.
func (c *chase) each(ctx context.Context, f func(i int, s *openStore) error) {
	var all sync.WaitGroup
	for i, s := range c.stores {
		if s.failed {
			continue
		}
		all.Go(func() {
			if err := f(i, s); err != nil {
				s.failed = ctx.Err() == nil
				c.failed(ctx, s.name, err)
			}
		})
	}
	all.Wait()
}

// open opens the stores that can be opened.
func (c *chase) open(ctx context.Context, sources []Source) {
	ctx, cancel := c.part(ctx, openPart)
	defer cancel()
	opened := make([]*openStore, len(sources))
	var all sync.WaitGroup
	for i, source := range sources {
		all.Go(func() {
			s, err := source.Open(ctx)
			if err != nil {
				c.failed(ctx, source.Name, err)
				return
			}
			opened[i] = &openStore{Store: s, name: source.Name}
		})
	}
	all.Wait()
	c.stores = slices.DeleteFunc(opened, func(s *openStore) bool { return s == nil })
}

// names lists the stores that were searched.
func (c *chase) names() string {
	var out []string
	for _, s := range c.stores {
		if !s.failed && !s.slow {
			out = append(out, s.name)
		}
	}
	return strings.Join(out, ", ")
}

// find looks for a message in all stores, and prefers one that has it in its log. What it caused, if anything, was stored at the given time.
func (c *chase) find(ctx context.Context, id string, before time.Time) (Linked, bool) {
	ctx, cancel := c.part(ctx, causePart)
	defer cancel()
	found := make([]*Linked, len(c.stores))
	c.each(ctx, func(i int, s *openStore) (err error) {
		if !s.slow {
			found[i], err = s.find(ctx, id, before, c.messages)
			s.slow = ctx.Err() != nil
		}
		return err
	})
	found = slices.DeleteFunc(found, func(l *Linked) bool { return l == nil })
	if len(found) == 0 {
		return Linked{}, false
	}
	i := max(0, slices.IndexFunc(found, func(l *Linked) bool { return l.sequence > 0 }))
	return *found[i], true
}

// find looks for a message in a store, nil if it is not there.
func (s *openStore) find(ctx context.Context, id string, before time.Time, messages int) (*Linked, error) {
	m, err := s.inLog(ctx, id, before, messages)
	if m != nil || err != nil {
		return s.linked(m, true), err
	}
	for d, err := range deadletter.New(s).ListDead(ctx, store.DeadFilter{MessageID: id, State: store.DeadAny}, 0, 1) {
		if err != nil {
			return nil, err
		}
		return s.linked(d.Message, false), nil
	}
	if s.relays == nil {
		status, err := s.Status(ctx)
		if err != nil {
			return nil, err
		}
		s.relays = []string{}
		for _, r := range status.Relays {
			s.relays = append(s.relays, r.Name)
		}
	}
	for _, name := range s.relays {
		if parked, err := held.New(s).FindParked(ctx, name, id); len(parked) > 0 || err != nil {
			return s.linked(lastParked(parked), false), err
		}
	}
	return nil, nil
}

func lastParked(parked []store.ParkedInfo) *postrider.Message {
	if len(parked) == 0 {
		return nil
	}
	return parked[len(parked)-1].Message
}

func (s *openStore) linked(m *postrider.Message, inLog bool) *Linked {
	if m == nil {
		return nil
	}
	l := linked(m, s.name, inLog)
	return &l
}

// causedWithin is how long before an effect its cause was published, usually. Only IDs that do not hold their time need it.
const causedWithin = time.Minute

// inLog looks for a message in the log. If its ID does not hold its time, it looks at the time before the effect, if that is known.
func (s *openStore) inLog(ctx context.Context, id string, before time.Time, messages int) (*postrider.Message, error) {
	if _, holds := timeOf(id); !holds && !before.IsZero() {
		return between(ctx, s, id, before.Add(-causedWithin), before.Add(closeMargin), messages)
	}
	return findInLog(ctx, s, id, messages)
}

// read reads messages until take says so, the log ends, or so many were read. It returns when the last one was published.
func read(ctx context.Context, r *logreader.Reader, messages int, take func(*postrider.Message) (stop bool)) (until time.Time, ended bool, err error) {
	for n := 0; n < messages; {
		entries, more, err := r.Next(ctx)
		if err != nil {
			return until, false, err
		}
		n += len(entries)
		for _, e := range entries {
			if until = e.Message.CreatedAt; take(e.Message) {
				return until, true, nil
			}
		}
		if !more {
			return until, true, nil
		}
	}
	return until, false, nil
}
