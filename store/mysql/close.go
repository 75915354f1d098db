package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
)

const (
	// closeSpans and closeSequences bound what one fetch closes. closeLargest is the longest gap that is closed: a longer one
	// costs nothing but its own place in the cursors.
	closeSpans     = 200
	closeSequences = 2_000
	closeLargest   = 100_000
)

// closing is which gaps are old enough to be closed, and which of them are not to be tried again yet.
type closing struct {
	mu sync.Mutex
	// Up to old, every sequence was taken CloseGapAfter before now or longer; up to next it was taken by the time at.
	old, next, at int64
	// tryAgain is when, in microseconds, a gap that begins at this sequence is looked at again: a transaction holds it.
	tryAgain map[int64]int64
}

// closeGaps closes what has been missing for long, so that cursors stay small. It never waits for anybody.
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

// candidates are the gaps to try now: those with an old row behind them, and those that had been passed the last time but
// one that it was time to look.
func (c *closing) candidates(f *fetch) gaps {
	patience := f.s.cfg.CloseGapAfter.Microseconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	end := int64(0)
	for _, g := range f.groups {
		end = max(end, g.end)
	}
	if f.now < c.at { // the clock was set back: the wait starts over
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

// reset starts over with a server whose sequences may have gone back.
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
	// closeLookSQL locks a gap against all who want to write there, unless there is a row.
	closeLookSQL = `SELECT seq FROM {prefix}log FORCE INDEX (PRIMARY) WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT 1 FOR UPDATE NOWAIT`
	closeIntoSQL = `INSERT INTO {prefix}log (seq, partition_id, id, topic, type, message_time, headers, payload, created_at) VALUES `
	closeRow     = `(?, -1, '', '', '', 0, '', '', {now})`
)

// close takes the place of sequences that nobody has written: by the primary key, who has taken one of them and not written
// his row yet never can. It returns the sequences that it closed and the beginnings of gaps that others hold. One process
// works at a time; for others there is nothing to do.
//
// It runs at REPEATABLE READ, where the look locks the gap: between the look and the rows nobody can write there, so that
// the INSERT waits for nobody. Those who come to write in the gap wait until this transaction ends.
func (s *Store) close(ctx context.Context, spans gaps) (closed, locked []int64, err error) {
	err = s.once(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}, func(t txn) error {
		var lock int64
		if err := t.get(ctx, closeLockSQL, nil, &lock); err != nil {
			return orNone(err)
		}
		var floor int64
		if err := t.get(ctx, floorSQL, nil, &floor); err != nil {
			return err
		}
		var free gaps
		for _, g := range spans.beyond(floor) { // what is missing below was dropped
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
			err = nil // another time
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

// orNone takes the absence of a row for no error.
func orNone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}
