package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/inspect"
)

// Causation says what caused a message and what it caused, in this store and in Config.Others, as the principal may see it. An answer
// that is not complete says so, and why. Whoever may see a message here sees types, topics, times and IDs of what it is linked with in
// the other stores. Errors: inspect.ErrNotFound.
func (s *Service) Causation(ctx context.Context, p Principal, id string, search inspect.CausationSearch) (c inspect.Causation, err error) {
	if err := s.allow(ctx, p, "Causation", ""); err != nil {
		return c, err
	}
	if c, err = s.chains.find(ctx, s, id, search); err != nil {
		return c, err
	}
	c.Message = s.shownLinked(p, []inspect.Linked{c.Message})[0]
	c.Causes, c.Effects = s.shownLinked(p, c.Causes), s.shownLinked(p, c.Effects)
	c.Incomplete = slices.Clone(c.Incomplete)
	return c, nil
}

// shownLinked copies messages of a chain, and hides their keys and correlation IDs. A hidden key leads to the key only in this store.
func (s *Service) shownLinked(p Principal, list []inspect.Linked) []inspect.Linked {
	list = slices.Clone(list)
	for i := range list {
		l, id := &list[i], ""
		if l.Store == s.cfg.Name {
			id = l.ID
		}
		l.Key, l.CorrelationID = s.key(p, l.Type, l.Key, id), s.key(p, l.Type, l.CorrelationID, "")
		if len(l.Effects) > 0 {
			l.Effects = s.shownLinked(p, l.Effects)
		}
	}
	return list
}

// sources are this store and the others.
func (s *Service) sources() []inspect.Source {
	own := inspect.Source{Name: s.cfg.Name, Open: func(context.Context) (inspect.Store, error) { return s.store, nil }}
	return append([]inspect.Source{own}, s.cfg.Others...)
}

// chains are the last chains of causes and effects, which serve everybody who asks for a while: they have nothing that depends on who
// asks. One is searched for at a time.
type chains struct {
	turn chan struct{} // has room for one

	mu   sync.Mutex
	kept map[chainOf]chain
}

type chainOf struct {
	id string
	inspect.CausationSearch
}

type chain struct {
	found inspect.Causation
	until time.Time
}

// A chain is kept so many times as long as the search took, between a second and a minute: a page asks every 5 s.
const (
	chainEvery = 20
	chainKept  = time.Minute
	// maxChains is how many chains are kept at most.
	maxChains = 100
)

// find returns a chain, from what is kept if it was found a moment ago.
func (c *chains) find(ctx context.Context, s *Service, id string, search inspect.CausationSearch) (inspect.Causation, error) {
	of := chainOf{id, search}
	if kept, ok := c.get(of); ok {
		return kept, nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return inspect.Causation{}, ctx.Err()
	}
	if kept, ok := c.get(of); ok {
		return kept, nil
	}
	begun := time.Now()
	found, err := inspect.FindCausation(ctx, s.sources(), id, search)
	if err != nil {
		return found, err
	}
	for _, g := range found.Incomplete {
		if g.Err != nil {
			s.cfg.Logger.Warn("a store cannot be searched for causes and effects", "store", g.Store, "error", g.Err)
		}
	}
	c.keep(of, chain{found, time.Now().Add(min(max(chainEvery*time.Since(begun), fresh), chainKept))})
	return found, nil
}

func (c *chains) get(of chainOf) (inspect.Causation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.kept[of]
	return kept.found, ok && time.Now().Before(kept.until)
}

// keep keeps a chain instead of those that have had their time, or of any if there are too many.
func (c *chains) keep(of chainOf, found chain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, kept := range c.kept {
		if len(c.kept) >= maxChains || time.Now().After(kept.until) {
			delete(c.kept, other)
		}
	}
	c.kept[of] = found
}
