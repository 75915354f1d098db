package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

const (
	// segmentMargin is how far from now a segment begins at the earliest: a row is routed after its created_at was taken, and
	// none of a segment's range may be in the default segment when it is attached.
	segmentMargin = 5 * time.Second
	// lockTimeout is how long a change of a segment waits for a lock, and with it whoever comes behind it in the queue.
	// parentLockTimeout is the same for the log as a whole, which writers queue for.
	lockTimeout       = "100ms"
	parentLockTimeout = "20ms"
	// attachTimeout bounds the attaching of a segment, which reads the default segment through and keeps others from it.
	attachTimeout = "5s"
	// lookTimeout bounds the look for rows under a lock that keeps everybody from the segment or the log. It finds what it
	// looks for by index; when it does not, others go first.
	lookTimeout = "500ms"
	// maintainTries is how often a change of a segment is tried when it does not get its lock.
	maintainTries = 3
)

// listSegmentsSQL lists the segments of {log}, the default one with null bounds. The bounds are read back by the session
// that wrote them, as ISO: other date styles name the time zone by an abbreviation, which may be read as that of another
// (IST, CST). Times come in microseconds since 1970, which is the same in all.
const listSegmentsSQL = `
with iso as materialized (select set_config('datestyle', 'ISO', true))
select c.relname, (extract(epoch from clock_timestamp()) * 1000000)::int8,
	(extract(epoch from (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''([^'']+)''[)]'))[1]::timestamptz) * 1000000)::int8,
	(extract(epoch from (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO [(]''([^'']+)''[)]'))[1]::timestamptz) * 1000000)::int8,
	pg_total_relation_size(c.oid), pg_relation_size(c.oid) = 0, greatest(c.reltuples, 0)::int8
from iso, pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = $1::text::regclass order by 4 nulls first`

// segment is a piece of the log, by time.
type segment struct {
	name     string
	now      time.Time // on the database's clock
	from, to time.Time // zero for the default segment
	bytes    int64
	empty    bool
	rows     int64 // as last counted by the database
}

func (s segment) isDefault() bool { return s.to.IsZero() }

func (s segment) covers(t time.Time) bool { return !s.from.After(t) && s.to.After(t) }

func (n names) listSegments(ctx context.Context, q querier) ([]segment, error) {
	rows, err := q.Query(ctx, listSegmentsSQL, n.table("log"))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (segment, error) {
		var s segment
		var now int64
		var from, to *int64
		err := row.Scan(&s.name, &now, &from, &to, &s.bytes, &s.empty, &s.rows)
		s.now = time.UnixMicro(now).UTC()
		if from != nil && to != nil {
			s.from, s.to = time.UnixMicro(*from).UTC(), time.UnixMicro(*to).UTC()
		}
		return s, err
	})
}

// Maintain implements relay.Maintainer. Messages are dropped by segments, whole ones, so they stay for up to
// Config.SegmentFor beyond their retention. Only one process works at a time; for the others there is nothing to do.
func (s *Store) Maintain(ctx context.Context, r relay.Retention) (relay.Maintained, error) {
	if _, err := s.open(ctx); err != nil {
		return relay.Maintained{}, err
	}
	m := maintenance{store: s}
	if err := m.prepare(ctx); err != nil {
		return m.done(), translate("prepare segments", err)
	}
	if err := m.dropOld(ctx, r); err != nil {
		return m.done(), translate("drop segments", err)
	}
	return m.done(), s.purgeRedrives(ctx, r.Redrives)
}

// maintenance is one call of Maintain.
type maintenance struct {
	store    *Store
	dropped  int64
	deferred []string
}

func (m *maintenance) done() relay.Maintained {
	return relay.Maintained{Dropped: m.dropped, Deferred: strings.Join(m.deferred, "; ")}
}

// try runs a change of a segment in a transaction of its own, a few times if it does not get its locks. What cannot be
// done now is deferred: that is no error. What took too long is not tried again, since others have waited for it.
func (m *maintenance) try(ctx context.Context, what string, change func(tx pgx.Tx) error) error {
	var err error
	for range maintainTries {
		err = pgx.BeginTxFunc(ctx, m.store.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			var free bool
			err := tx.QueryRow(ctx, "select pg_try_advisory_xact_lock(hashtextextended($1::text, 1))",
				m.store.names.migrations).Scan(&free)
			if err != nil || !free {
				return err
			}
			return change(tx)
		})
		switch c := code(err); {
		case c == queryCanceled && ctx.Err() == nil:
			m.deferred = append(m.deferred, fmt.Sprintf("%s: it took longer than it may (%v)", what, err))
			return nil
		case c != lockNotAvailable && c != deadlockDetected:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
	m.deferred = append(m.deferred, fmt.Sprintf("%s: others hold a lock that it needs (%v)", what, err))
	return nil
}

// prepare creates segments ahead.
func (m *maintenance) prepare(ctx context.Context) error {
	n, length := m.store.names, m.store.config.SegmentFor
	segments, err := n.listSegments(ctx, m.store.pool)
	if err != nil {
		return err
	}
	busy, err := m.endProofs(ctx, segments[0].now)
	if err != nil {
		return err
	}
	planned := plan(segments, length, time.Time{})
	if busy || len(planned) == 0 {
		return nil
	}
	for _, s := range segments {
		if s.isDefault() && s.bytes > atOnceBytes {
			if err := m.prove(ctx, segments); err != nil {
				return err
			}
			return m.lookAhead(ctx)
		}
	}
	var notBefore time.Time
	create := func(tx pgx.Tx) error { return n.createSegments(ctx, tx, length, notBefore, lockTimeout) }
	err = m.try(ctx, "create the next segment", create)
	if code(err) == checkViolation {
		// The default segment has rows from the future: the clock was set back. The next segment begins behind them.
		var newest int64
		if err := m.store.pool.QueryRow(ctx, n.expand("select (extract(epoch from max(created_at)) * 1000000)::int8 from {log_default} "+
			"where created_at < $1::timestamptz"), planned[len(planned)-1].to).Scan(&newest); err != nil {
			return err
		}
		notBefore = time.UnixMicro(newest).Add(time.Second)
		err = m.try(ctx, "create the next segment", create)
	}
	if err != nil {
		return err
	}
	return m.lookAhead(ctx)
}

// lookAhead says so when no segment takes what is about to be written.
func (m *maintenance) lookAhead(ctx context.Context) error {
	segments, err := m.store.names.listSegments(ctx, m.store.pool)
	if err != nil {
		return err
	}
	soon := segments[0].now.Add(2 * segmentMargin)
	for _, s := range segments {
		if s.covers(soon) {
			return nil
		}
	}
	m.deferred = append(m.deferred, "no segment takes the messages of the present: they go to the default segment, which is emptied "+
		"only when one does")
	return nil
}

// plan returns the segments to create, so that the log is covered for one and a half segments from now: whatever of that
// time no segment takes, in the order of time; not before notBefore, which may lie behind all of it.
func plan(existing []segment, length time.Duration, notBefore time.Time) []segment {
	if len(existing) == 0 {
		return nil
	}
	now := existing[0].now
	from := now.Add(segmentMargin).UTC().Truncate(time.Second)
	if notBefore.After(from) {
		from = notBefore.UTC().Truncate(time.Second).Add(time.Second)
	}
	end := now.Add(length * 3 / 2)
	if !from.Before(end) {
		end = from.Add(time.Second)
	}
	var out []segment
	for from.Before(end) {
		to := from.Truncate(length).Add(length)
		covered := false
		for _, s := range existing {
			switch {
			case s.covers(from):
				covered, to = true, s.to
			case s.from.After(from) && s.from.Before(to):
				to = s.from
			}
		}
		if !covered {
			out = append(out, segment{name: "log_" + from.Format("20060102150405"), from: from, to: to})
		}
		from = to
	}
	return out
}

// createSegments creates the segments that are missing. Attaching a table that exists needs of the log only a lock that
// writers do not mind (SHARE UPDATE EXCLUSIVE), and of the default segment one that readers and, if there was no segment,
// writers wait for, for as long as it takes to read it through. lock is how long to wait for it.
func (n names) createSegments(ctx context.Context, tx pgx.Tx, length time.Duration, notBefore time.Time,
	lock string) error {
	segments, err := n.listSegments(ctx, tx)
	if err != nil {
		return err
	}
	if err := settings(ctx, tx, lock, attachTimeout); err != nil {
		return err
	}
	for _, s := range plan(segments, length, notBefore) {
		const layout = "2006-01-02 15:04:05Z"
		sql := fmt.Sprintf(`create table %[1]s (like {log} including defaults including constraints including indexes including storage);
alter table {log} attach partition %[1]s for values from ('%[2]s') to ('%[3]s')`,
			n.table(s.name), s.from.Format(layout), s.to.Format(layout))
		if err := script(ctx, tx, n.expand(sql)); err != nil {
			return fmt.Errorf("segment %s: %w", s.name, err)
		}
	}
	return nil
}

func settings(ctx context.Context, tx pgx.Tx, lock, statement string) error {
	_, err := tx.Exec(ctx, "select set_config('lock_timeout', $1::text, true), set_config('statement_timeout', $2::text, true)",
		lock, statement)
	return err
}
