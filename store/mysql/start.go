package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"math"

	"github.com/postrider/postrider/store"
)

const (
	floorSQL = `SELECT value FROM {prefix}meta WHERE name = 'floor'`
	beginSQL = `INSERT IGNORE INTO {prefix}cursors (relay, partition_id, kind, position, gaps, settled_at, incarnation)
		VALUES (?, ?, ?, ?, ?, ?, ?)`
	placesSQL = `SELECT partition_id, position, gaps FROM {prefix}cursors WHERE kind = 'relay'`
	seqsSQL   = `SELECT seq FROM {prefix}log WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 100000`
)

// begin creates a relay's cursors in all partitions, unless they exist. While it does, no messages are dropped.
func (s *Store) begin(ctx context.Context, name string, req store.AcquireRequest) error {
	var begun int
	err := s.pooled().get(ctx, begunSQL, []any{name}, &begun)
	if err != nil || begun >= s.number() {
		return s.cfg.explain("begin relay "+name, err)
	}
	if req.Kind == store.KindConsumer {
		return s.Enroll(ctx, name)
	}
	at := place{}
	if req.FromNow {
		if at, err = s.present(ctx, math.MaxInt64); err != nil {
			return s.cfg.explain("begin relay "+name, err)
		}
	}
	return s.write(ctx, "begin relay "+name, func(t txn) error {
		if err := cmp.Or(t.begun(), t.checkPartitions()); err != nil {
			return err
		}
		var floor int64
		if err := t.get(ctx, floorSQL+` FOR UPDATE`, nil, &floor); err != nil {
			return err
		}
		for p := range s.number() {
			missing := at.gaps.beyond(floor)
			if _, err := t.exec(ctx, beginSQL, name, p, string(store.KindRelay), max(at.position, floor), missing.encode(), t.now, t.incarnation); err != nil {
				return err
			}
		}
		return nil
	})
}

// place is a position and the gaps before it.
type place struct {
	position int64
	gaps     gaps
}

// present returns the end of the log, at most upTo, with the sequences that are missing before it: messages of transactions that
// are still open. It reads all sequences after the highest one up to which a relay has no gaps, or from the beginning if there is
// no relay: about three million per second.
func (s *Store) present(ctx context.Context, upTo int64) (at place, err error) {
	t := s.pooled()
	if err := t.get(ctx, floorSQL, nil, &at.position); err != nil {
		return at, err
	}
	err = t.each(ctx, placesSQL, nil, func(rows *sql.Rows) error {
		_, solid, err := scanPlace(rows)
		at.position = max(at.position, min(solid, upTo))
		return err
	})
	for more := true; more && err == nil; {
		more = false
		err = t.each(ctx, seqsSQL, []any{at.position, upTo}, func(rows *sql.Rows) error {
			var seq int64
			err := rows.Scan(&seq)
			if seq > at.position+1 {
				at.gaps = at.gaps.add(span{at.position + 1, seq - 1})
			}
			at.position, more = seq, true
			return err
		})
	}
	return at, err
}

// CursorAt returns a cursor after which come all messages with a sequence above position, and those with a lower one that are not
// committed yet. It reads sequences as a relay does that begins with what is published from now on.
func (s *Store) CursorAt(ctx context.Context, position int64) (store.Cursor, error) {
	at, err := s.present(ctx, position)
	return store.Cursor{Position: max(at.position, position), Snapshot: at.gaps.encode()}, s.cfg.explain("look for a place in the log", err)
}

// scanPlace reads a row of placesSQL and returns the sequence up to which nothing is missing.
func scanPlace(rows *sql.Rows) (partition int, solid int64, err error) {
	var position int64
	var text string
	if err := rows.Scan(&partition, &position, &text); err != nil {
		return 0, 0, err
	}
	missing, err := parseGaps(text)
	return partition, missing.solid(position), err
}
