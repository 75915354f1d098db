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
	// maintainTries is how often a change of a segment is tried when it does not get its lock.
	maintainTries = 3
)

// listSegmentsSQL lists the segments of {log}, the default one with null bounds. The bounds are read back by the session
// that wrote them, hence in its own date style.
const listSegmentsSQL = `
select c.relname, clock_timestamp(),
	(regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\)'))[1]::timestamptz,
	(regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz,
	pg_total_relation_size(c.oid), pg_relation_size(c.oid) = 0, greatest(c.reltuples, 0)::int8
from pg_inherits i join pg_class c on c.oid = i.inhrelid
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

func (n names) listSegments(ctx context.Context, q querier) ([]segment, error) {
	rows, err := q.Query(ctx, listSegmentsSQL, n.table("log"))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (segment, error) {
		var s segment
		var from, to *time.Time
		err := row.Scan(&s.name, &s.now, &from, &to, &s.bytes, &s.empty, &s.rows)
		if from != nil && to != nil {
			s.from, s.to = from.UTC(), to.UTC()
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
	err := m.dropOld(ctx, r)
	return m.done(), translate("drop segments", err)
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
// done now is deferred: that is no error.
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
		switch code(err) {
		case lockNotAvailable, queryCanceled, deadlockDetected:
			if ctx.Err() != nil {
				return ctx.Err()
			}
		default:
			return err
		}
	}
	m.deferred = append(m.deferred, fmt.Sprintf("%s: others hold a lock that it needs (%v)", what, err))
	return nil
}

// prepare creates segments ahead.
func (m *maintenance) prepare(ctx context.Context) error {
	n := m.store.names
	segments, err := n.listSegments(ctx, m.store.pool)
	if err != nil || len(plan(segments, m.store.config.SegmentFor, time.Time{})) == 0 {
		return err
	}
	var notBefore time.Time
	create := func(tx pgx.Tx) error { return n.createSegments(ctx, tx, m.store.config.SegmentFor, notBefore) }
	err = m.try(ctx, "create the next segment", create)
	if code(err) != checkViolation {
		return err
	}
	// The default segment has rows from the future: the clock was set back. The next segment begins behind them.
	var newest time.Time
	if err := m.store.pool.QueryRow(ctx, n.expand("select max(created_at) from {log_default}")).Scan(&newest); err != nil {
		return err
	}
	notBefore = newest.Add(time.Second)
	return m.try(ctx, "create the next segment", create)
}

// plan returns the segments to create, so that the log is covered for one and a half segments from now.
func plan(existing []segment, length time.Duration, notBefore time.Time) []segment {
	if len(existing) == 0 {
		return nil
	}
	now := existing[0].now
	from := now.Add(segmentMargin).UTC().Truncate(time.Second)
	for _, s := range existing {
		if s.to.After(from) {
			from = s.to
		}
	}
	if notBefore.After(from) {
		from = notBefore.UTC().Truncate(time.Second).Add(time.Second)
	}
	var out []segment
	for from.Before(now.Add(length * 3 / 2)) {
		to := from.Truncate(length).Add(length)
		out = append(out, segment{name: "log_" + from.Format("20060102150405"), from: from, to: to})
		from = to
	}
	return out
}

// createSegments creates the segments that are missing. Attaching a table that exists needs of the log only a lock that
// writers do not mind (SHARE UPDATE EXCLUSIVE), and of the default segment one that readers and, if there was no segment,
// writers wait for, for as long as it takes to read it through.
func (n names) createSegments(ctx context.Context, tx pgx.Tx, length time.Duration, notBefore time.Time) error {
	segments, err := n.listSegments(ctx, tx)
	if err != nil {
		return err
	}
	if err := settings(ctx, tx, lockTimeout, attachTimeout); err != nil {
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

// dropOld empties the segments that are past retention and delivered, then drops the empty ones.
func (m *maintenance) dropOld(ctx context.Context, r relay.Retention) error {
	segments, err := m.store.names.listSegments(ctx, m.store.pool)
	if err != nil {
		return err
	}
	var total int64
	covered := false // a segment takes what is written now, so the default one is not in use
	for _, s := range segments {
		total += s.bytes
		covered = covered || !s.isDefault() && !s.from.After(s.now) && s.to.After(s.now)
	}
	for _, s := range segments {
		past, err := m.past(ctx, s, r, total, covered)
		if err != nil {
			return err
		}
		if !past {
			continue
		}
		if !s.empty {
			if s.empty, err = m.truncate(ctx, s); err != nil {
				return err
			}
			if s.empty {
				m.dropped += s.rows
				total -= s.bytes
			}
		}
		if s.empty && !s.isDefault() {
			if err := m.drop(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// past says whether a segment, which nobody writes to any more, is to go when it is delivered.
func (m *maintenance) past(ctx context.Context, s segment, r relay.Retention, total int64, covered bool) (bool, error) {
	large := r.MaxBytes > 0 && total > r.MaxBytes
	if !s.isDefault() {
		return !s.to.After(s.now) && (large || !s.to.After(s.now.Add(-r.For))), nil
	}
	if s.empty || !covered {
		return false, nil
	}
	if large {
		return true, nil
	}
	var young bool
	err := m.store.pool.QueryRow(ctx, m.store.names.expand(
		"select exists (select 1 from {log_default} where created_at > clock_timestamp() - $1::int8 * interval '1 microsecond')"),
		r.For.Microseconds()).Scan(&young)
	return !young, err
}

// undeliveredInSQL finds a row of segment %s that some relay has not delivered, late ones included. While late rows are
// read in pages, all of them count as not delivered.
const undeliveredInSQL = `
select not exists (select 1 from {leases}) or exists (
	select 1 from {leases} g cross join lateral (
		select * from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
	where exists (select 1 from %[1]s l where l.partition = c.partition and l.seq > c.position)
		or exists (select 1 from pg_snapshot_xip(c.snapshot) as x join %[1]s l on l.xid = x
			where l.partition = c.partition and l.seq <= c.position)
		or exists (select 1 from %[1]s l where l.xid >= pg_snapshot_xmax(c.snapshot)
			and l.xid < coalesce(c.ceiling, '18446744073709551615') and l.partition = c.partition and l.seq <= c.position)
)`

// truncate empties a segment if every relay has delivered every row of it. It locks the segment first, so that no row is
// added and no transaction that wrote to it is open; the log as a whole is not locked, and writers go on.
func (m *maintenance) truncate(ctx context.Context, s segment) (done bool, err error) {
	n := m.store.names
	table := pgx.Identifier{n.schema, s.name}.Sanitize()
	err = m.try(ctx, "empty segment "+s.name, func(tx pgx.Tx) error {
		done = false
		if err := settings(ctx, tx, lockTimeout, attachTimeout); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "lock table "+table+" in access exclusive mode"); err != nil {
			return err
		}
		var undelivered bool
		if err := tx.QueryRow(ctx, n.expand(fmt.Sprintf(undeliveredInSQL, table))).Scan(&undelivered); err != nil || undelivered {
			return err
		}
		_, err := tx.Exec(ctx, "truncate "+table)
		done = err == nil
		return err
	})
	return done && err == nil, err
}

// longHoldersSQL says whether a transaction that is not about to end holds the log: the drop would wait for it, and all
// writers for the drop. A prepared transaction has no process.
const longHoldersSQL = `
select exists (
	select 1 from pg_locks l left join pg_stat_activity a on a.pid = l.pid
	where l.relation = $1::text::regclass and l.granted and l.pid is distinct from pg_backend_pid()
		and (a.xact_start is null or a.xact_start < clock_timestamp() - interval '1 second'))`

// drop removes an empty segment.
func (m *maintenance) drop(ctx context.Context, s segment) error {
	n := m.store.names
	return m.try(ctx, "drop segment "+s.name, func(tx pgx.Tx) error {
		var held bool
		if err := tx.QueryRow(ctx, longHoldersSQL, n.table("log")).Scan(&held); err != nil {
			return err
		}
		if held {
			m.deferred = append(m.deferred, "drop segment "+s.name+": it is empty, but a long transaction holds the log")
			return nil
		}
		if err := settings(ctx, tx, parentLockTimeout, attachTimeout); err != nil {
			return err
		}
		table := pgx.Identifier{n.schema, s.name}.Sanitize()
		var filled bool
		if err := tx.QueryRow(ctx, "select exists (select 1 from "+table+")").Scan(&filled); err != nil || filled {
			return err
		}
		_, err := tx.Exec(ctx, "drop table "+table)
		return err
	})
}
