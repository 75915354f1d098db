package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"

	"github.com/postrider/postrider/internal/stored"
)

const (
	// closeSpans and closeSequences limit what one fetch closes. Gaps longer than closeLargest stay open: each costs only its
	// entry in the cursors.
	closeSpans     = 200
	closeSequences = 2_000
	closeLargest   = 100_000
)

// closing tracks which gaps are old enough to close, and when to retry those that a transaction holds.
type closing struct {
	mu sync.Mutex
	// Sequences up to old were taken at least CloseGapAfter ago; those up to next were taken by the time at.
	old, next, at int64
	// tryAgain maps the first sequence of a gap that a transaction holds to the time of the next attempt, in microseconds.
	tryAgain map[int64]int64
}

// closeGaps closes old gaps, so that cursors stay small. It never waits for a lock.
func (f *fetch) closeGaps(ctx context.Context) error {
	candidates := f.s.closing.candidates(f)
	if len(candidates) == 0 {
		return nil
	}
	closed, locked, err := f.s.close(ctx, candidates)
	f.s.closing.note(locked, f.now+f.s.cfg.CloseGapAfter.Microseconds()/4)
	if err != nil || len(closed) == 0 {
		return err
	}
	for _, p := range f.parts {
		p.gaps = p.gaps.without(closed)
	}
	return nil
}

// candidates returns the gaps to try now: those followed by an old row, and those up to c.old.
func (c *closing) candidates(f *fetch) gaps {
	patience := f.s.cfg.CloseGapAfter.Microseconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	end := int64(0)
	for _, g := range f.groups {
		end = max(end, g.end)
	}
	if f.now < c.at { // the clock was set back: restart the wait
		c.at = f.now
		clear(c.tryAgain)
	}
	if f.now-c.at >= patience {
		c.old, c.next, c.at = max(c.old, c.next), max(c.next, end), f.now
	}
	var all gaps
	for _, p := range f.parts {
		all = all.merge(p.gaps.upTo(c.old))
	}
	for _, g := range f.groups {
		for _, p := range f.parts {
			if p.group == g {
				all = all.merge(g.old.beyond(p.after.Position).upTo(p.batch.Next.Position))
			}
		}
	}
	var out gaps
	left := int64(closeSequences)
	for _, s := range all {
		if s.to-s.from >= closeLargest || c.tryAgain[s.from] > f.now {
			continue
		}
		s.to = min(s.to, s.from+left-1)
		out, left = append(out, s), left-(s.to-s.from+1)
		if left == 0 || len(out) == closeSpans {
			break
		}
	}
	return out
}

// reset discards all state: the server's sequences may have gone back.
func (c *closing) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.old, c.next, c.at, c.tryAgain = 0, 0, 0, nil
}

func (c *closing) note(locked []int64, again int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tryAgain) > 10*closeSpans || c.tryAgain == nil {
		c.tryAgain = make(map[int64]int64)
	}
	for _, from := range locked {
		c.tryAgain[from] = again
	}
}

const (
	closeLockSQL = `SELECT value FROM {prefix}meta WHERE name = 'closing' FOR UPDATE SKIP LOCKED`
	// closeLookSQL locks a gap against writers, unless it contains a row.
	closeLookSQL = `SELECT seq FROM {prefix}log FORCE INDEX (PRIMARY) WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT 1 FOR UPDATE NOWAIT`
	closeIntoSQL = `INSERT INTO {prefix}log (seq, partition_id, id, topic, type, message_time, headers, payload, created_at) VALUES `
	closeRow     = `(?, -1, '', '', '', 0, '', '', {now})`
)

// close writes rows for sequences that nobody has written. By the primary key, a transaction that took one of them and has not
// written its row yet can no longer write it. close returns the sequences that it closed and the first sequences of the gaps that
// others hold. One process works at a time; the others skip this step.
//
// It runs at REPEATABLE READ, where the locking read locks the gap: nobody can write there between the read and the INSERT, so
// the INSERT waits for nobody. Transactions that want to write in the gap wait until this one ends.
func (s *Store) close(ctx context.Context, spans gaps) (closed, locked []int64, err error) {
	err = s.once(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}, func(t txn) error {
		var lock int64
		if err := t.get(ctx, closeLockSQL, nil, &lock); err != nil {
			return stored.OrNone(err)
		}
		var floor int64
		if err := t.get(ctx, floorSQL, nil, &floor); err != nil {
			return err
		}
		var free gaps
		for _, g := range spans.beyond(floor) { // sequences missing below the floor were dropped
			var seq int64
			switch err := t.get(ctx, closeLookSQL, []any{g.from, g.to}, &seq); {
			case errors.Is(err, sql.ErrNoRows):
				free = append(free, g)
			case err != nil && s.cfg.passing(ctx, err):
				locked = append(locked, g.from)
			case err != nil:
				return err
			}
		}
		closed, err = t.occupy(ctx, free)
		return err
	})
	if err != nil {
		closed = nil
		if s.cfg.passing(ctx, err) || s.cfg.ErrorCode(err) == codeDuplicate {
			err = nil // retried later
		}
	}
	return closed, locked, err
}

// occupy writes a row for each sequence.
func (t txn) occupy(ctx context.Context, spans gaps) ([]int64, error) {
	var seqs []int64
	var args []any
	for _, g := range spans {
		for seq := g.from; seq <= g.to; seq++ {
			seqs, args = append(seqs, seq), append(args, seq)
		}
	}
	if len(seqs) == 0 {
		return nil, nil
	}
	text := t.s.names.Replace(closeIntoSQL + closeRow + strings.Repeat(`, `+closeRow, len(seqs)-1))
	_, err := t.on.ExecContext(ctx, render(text, args))
	return seqs, err
}
