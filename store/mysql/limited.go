package mysqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/postrider/postrider/store"
)

var _ store.TxLimiter[*sql.Tx] = (*Store)(nil)

// IdleLimit implements store.TxLimiter.
func (s *Store) IdleLimit() time.Duration { return max(s.cfg.IdleTimeout, 0) }

// kept is how many connections of a bounded pool handlers' transactions leave free: one for heartbeats, one for what a relay
// reads and records.
const kept = 2

// makePlaces creates the slots for handlers' transactions in the pool, if the pool is bounded.
func makePlaces(db *sql.DB) chan struct{} {
	n := db.Stats().MaxOpenConnections
	if n <= 0 {
		return nil
	}
	return make(chan struct{}, max(n-kept, 1))
}

// Connections implements store.TxLimiter: what the pool's limit, as of the call of New, leaves for handlers.
func (s *Store) Connections() int { return cap(s.places) }

// BeginLimited implements store.TxLimiter.
func (s *Store) BeginLimited(ctx context.Context, atMost time.Duration) (*sql.Tx, error) {
	if s.places != nil {
		select {
		case s.places <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	limit := s.cfg.IdleTimeout
	if atMost > 0 {
		limit = min(limit, max(atMost, time.Second))
	}
	tx, err := s.beginIdle(ctx, limit)
	switch {
	case s.places == nil:
	case err != nil:
		<-s.places
	default:
		s.placed.Store(tx, nil)
	}
	return tx, err
}

// leave frees the slot of a transaction that has ended.
func (s *Store) leave(tx *sql.Tx) {
	if _, placed := s.placed.LoadAndDelete(tx); placed {
		<-s.places
	}
}
