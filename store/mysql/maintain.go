package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Maintainer = (*Store)(nil)

const (
	// dropRows is how many messages one transaction drops.
	dropRows = 1_000
	// maintainFor limits one call of Maintain.
	maintainFor = 20 * time.Second
	// sampleRows is the number of messages from which the size of the log is estimated.
	sampleRows = 1_000
	// keepDecisions is how long operators' decisions are kept after they are done.
	keepDecisions = 24 * time.Hour
)

const (
	heldSQL      = `SELECT EXISTS (SELECT 1 FROM {prefix}records WHERE kind = '` + store.KindLegalHold + `')`
	lockFloorSQL = floorSQL + ` FOR UPDATE SKIP LOCKED`
	// announcedSQL counts relays that have registered and have no cursors yet: they have passed nothing.
	announcedSQL  = `SELECT COUNT(*) FROM {prefix}relays r WHERE NOT EXISTS (SELECT 1 FROM {prefix}cursors c WHERE c.relay = r.relay)`
	oldestRowsSQL = `SELECT seq, created_at FROM {prefix}log WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?`
	// dropSQL stops at its limit: to find the end of a range, the server would read, and wait for, the next row, which may be
	// that of a transaction that stays open.
	dropSQL       = `DELETE FROM {prefix}log WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?`
	raiseFloorSQL = `UPDATE {prefix}meta SET value = ? WHERE name = 'floor'`
	// removeDecisionsSQL uses the index, so it locks no open decision.
	removeDecisionsSQL = `DELETE FROM {prefix}decisions WHERE done_at < {now} - ? ORDER BY done_at LIMIT 1000`
	rangeSQL           = `SELECT COALESCE(MIN(seq), 0), COALESCE(MAX(seq), 0) FROM {prefix}log`
	// sampleSQL reads evenly spaced messages, newest first, with their size: the values, plus about 100 bytes for numbers, record
	// and index. ?1 first, ?2 last, ?3 step.
	sampleSQL = `WITH RECURSIVE spaced (seq) AS (SELECT ?2 UNION ALL SELECT seq - ?3 FROM spaced WHERE seq - ?3 >= ?1)
		SELECT l.seq, LENGTH(payload) + LENGTH(headers) + LENGTH(id) + LENGTH(topic) + LENGTH(message_key) + LENGTH(type) +
			LENGTH(source) + LENGTH(subject) + LENGTH(tenant) + LENGTH(content_type) + LENGTH(correlation_id) +
			LENGTH(causation_id) + 100
		FROM spaced STRAIGHT_JOIN {prefix}log l ON l.seq = spaced.seq ORDER BY l.seq DESC`
)

// Maintain implements store.Maintainer. It drops messages by primary key in transactions of at most 1,000, for at most 20
// seconds, from the beginning of the log, where nobody writes; it locks no gaps and waits for nobody. It estimates the size of
// the log from a sample of 1,000 messages. It drops nothing after the oldest message of a transaction that is still open.
func (s *Store) Maintain(ctx context.Context, keep store.Retention) (store.Maintained, error) {
	var out store.Maintained
	t := s.pooled()
	if err := t.look(ctx); err != nil {
		return out, s.cfg.explain("read the clock", err)
	}
	if keep.Redrives > 0 {
		if err := s.purgeRedrives(ctx, stored.Time(t.now-keep.Redrives.Microseconds())); err != nil {
			return out, err
		}
	}
	if _, err := t.exec(ctx, removeDecisionsSQL, keepDecisions.Microseconds()); err != nil && !s.cfg.passing(ctx, err) {
		return out, s.cfg.explain("remove decisions that are done", err)
	}
	if _, err := t.exec(ctx, removeUnroutedSQL, store.UnroutedKept.Microseconds()); err != nil && !s.cfg.passing(ctx, err) {
		return out, s.cfg.explain("remove counts of unrouted messages", err)
	}
	if err := s.place(ctx); err != nil {
		return out, err
	}
	before := int64(math.MaxInt64) // keep.For of 0: regardless of age
	if keep.For > 0 {
		before = t.now - keep.For.Microseconds()
	}
	upTo, err := s.beyondSize(ctx, keep.MaxBytes)
	if err != nil {
		return out, err
	}
	began := time.Now()
	for n := int64(-1); n != 0; out.Dropped += n {
		if time.Since(began) > maintainFor {
			out.Deferred = fmt.Sprintf("more delivered messages to drop than can be done in %s", maintainFor)
			return out, nil
		}
		if n, err = s.drop(ctx, before, upTo, keep); errors.Is(err, ErrLockTimeout) {
			out.Deferred = fmt.Sprintf("dropping delivered messages: %v", err)
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// drop drops the oldest messages that every relay has passed, if they were written before a time or have a sequence up to upTo. It
// returns how many; 0 when none are left, while another process drops messages, or while a legal hold is active.
func (s *Store) drop(ctx context.Context, before, upTo int64, keep store.Retention) (n int64, err error) {
	err = s.write(ctx, "drop delivered messages", func(t txn) error {
		n = 0
		var floor int64
		if err := t.get(ctx, lockFloorSQL, nil, &floor); err != nil {
			return stored.OrNone(err)
		}
		var held bool
		if err := t.get(ctx, heldSQL, nil, &held); err != nil || held {
			return err
		}
		passed, err := t.passed(ctx, keep.WithoutRelay)
		if err != nil {
			return err
		}
		if keep.KeepFrom > 0 {
			passed = min(passed, keep.KeepFrom-1)
		}
		last, rows, done := floor, 0, false
		err = t.each(ctx, oldestRowsSQL, []any{floor, passed, dropRows}, func(row *sql.Rows) error {
			var seq, at int64
			err := row.Scan(&seq, &at)
			if done = done || at > before && seq > upTo; !done {
				last, rows = seq, rows+1
			}
			return err
		})
		if err != nil || last == floor {
			return err
		}
		if n, err = t.exec(ctx, dropSQL, floor, last, rows); err != nil {
			return err
		}
		_, err = t.exec(ctx, raiseFloorSQL, last)
		return err
	})
	return n, err
}

// passed returns the sequence up to which every relay has delivered everything, with no gap left. If there is no relay, that is 0, or
// everything if a relay is not needed.
func (t txn) passed(ctx context.Context, withoutRelay bool) (int64, error) {
	var announced int
	if err := t.get(ctx, announcedSQL, nil, &announced); err != nil || announced > 0 {
		return 0, err
	}
	passed, relays := int64(math.MaxInt64), 0
	err := t.each(ctx, placesSQL, nil, func(rows *sql.Rows) error {
		_, solid, err := scanPlace(rows)
		passed, relays = min(passed, solid), relays+1
		return err
	})
	if relays == 0 && !withoutRelay {
		return 0, err
	}
	return passed, err
}

// beyondSize returns the sequence up to which messages exceed a size of the log, counted from the newest; 0 if none do or limit
// is 0.
func (s *Store) beyondSize(ctx context.Context, limit int64) (upTo int64, err error) {
	if limit <= 0 {
		return 0, nil
	}
	err = s.read(ctx, "measure the log", func(t txn) error {
		upTo, err = stored.BeyondSize(ctx, t.query, rangeSQL, sampleSQL, sampleRows, limit)
		return err
	})
	return upTo, err
}
