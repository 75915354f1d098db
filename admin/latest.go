package admin

import (
	"context"
	"time"

	"github.com/postrider/postrider/store"
)

// Overview answers whether everything is being delivered and, if not, what to look at.
func (s *Service) Overview(ctx context.Context, p Principal) (Overview, error) {
	if err := s.allow(ctx, p, "Overview", ""); err != nil {
		return Overview{}, err
	}
	select {
	case s.latest.turn <- struct{}{}:
		defer func() { <-s.latest.turn }()
	case <-ctx.Done():
		return Overview{}, ctx.Err()
	}
	changes := s.changes.Load()
	if time.Since(s.latest.at) < fresh && s.latest.changes == changes {
		return s.latest.overview, nil
	}
	o, err := s.look(ctx)
	if err == nil {
		s.latest.at, s.latest.changes, s.latest.overview = time.Now(), changes, o
	}
	return o, err
}

// latest is the last overview, which serves everybody for a second: it has nothing that depends on who asks.
type latest struct {
	turn     chan struct{} // has room for one: whoever reads or makes it
	at       time.Time
	changes  int64 // made before
	overview Overview
	causes   countedCauses
}

// countedCauses are the most frequent causes, when they were counted, how long that took, and after how many changes.
type countedCauses struct {
	list    []store.CauseCount
	at      time.Time
	took    time.Duration
	changes int64
}

// maxCauses is how many causes of dead letters the overview looks at.
const maxCauses = 5

// causesEvery: counting causes, which reads many dead letters, takes at most one in so many parts of the time; but they are counted
// again after causesKept.
const (
	causesEvery = 20
	causesKept  = time.Minute
)

// latestCauses counts causes, unless it has just done that, measured by how long it takes, and nothing was changed through this service
// meanwhile. The caller has its turn.
func (s *Service) latestCauses(ctx context.Context) ([]store.CauseCount, error) {
	c, changes := &s.latest.causes, s.changes.Load()
	begun := time.Now()
	if !c.at.IsZero() && c.changes == changes && begun.Sub(c.at) < min(causesEvery*c.took, causesKept) {
		return c.list, nil
	}
	list, err := s.dead().CountCauses(ctx, store.DeadFilter{}, maxCauses)
	if err == nil {
		*c = countedCauses{list.Causes, begun, time.Since(begun), changes}
	}
	return list.Causes, err
}
