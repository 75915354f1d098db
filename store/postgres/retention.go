package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

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
		covered = covered || s.covers(s.now)
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

// undeliveredInSQL finds a row of segment %s that some relay has not delivered, late ones included, or that none ever will
// because there is no such partition. While late rows are read in pages, all of them count as not delivered. Each
// branch reads one row by index, if planSQL stands before it: fresh rows as a fetch does; those of a transaction that was
// running; those of later transactions, up to the ceiling.
const undeliveredInSQL = `
select not exists (select from {relay_partitions})
or exists (select from %[1]s where partition < 0) or exists (select from %[1]s where partition >= {partitions}())
or exists (
	select from {relay_partitions} g cross join lateral (
		select * from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
	where exists (select from (
			select from %[1]s l where l.partition = c.partition and l.seq > c.position order by l.seq limit 1) as fresh)
		or exists (select from pg_snapshot_xip(c.snapshot) as x cross join lateral (
			select from %[1]s l where l.xid = x and l.seq <= c.position and l.partition = c.partition
			order by l.xid, l.seq limit 1) as late)
		or c.position > 0 and exists (select from (
			select from %[1]s l where l.xid >= pg_snapshot_xmax(c.snapshot)
				and l.xid < coalesce(c.ceiling, '18446744073709551615') and l.seq <= c.position and l.partition = c.partition
			order by l.xid, l.seq limit 1) as later)
)`

// undelivered says whether a row of a segment is not delivered, within timeout; with an error, that one may not be.
func (m *maintenance) undelivered(ctx context.Context, tx pgx.Tx, table, timeout string) (bool, error) {
	if _, err := tx.Exec(ctx, planSQL); err != nil {
		return true, err
	}
	if err := settings(ctx, tx, lockTimeout, timeout); err != nil {
		return true, err
	}
	found := true
	err := tx.QueryRow(ctx, m.store.names.expand(fmt.Sprintf(undeliveredInSQL, table))).Scan(&found)
	return found, err
}

// truncate empties a segment if every relay has delivered every row of it. It looks once without a lock, which may take its
// time. Then it locks the segment, so that no row is added and no transaction that wrote to it is open, and looks again; the
// log as a whole is not locked, and writers go on.
func (m *maintenance) truncate(ctx context.Context, s segment) (done bool, err error) {
	table := pgx.Identifier{m.store.names.schema, s.name}.Sanitize()
	what, undelivered := "empty segment "+s.name, true
	err = m.try(ctx, what, func(tx pgx.Tx) (err error) {
		undelivered, err = m.undelivered(ctx, tx, table, attachTimeout)
		return err
	})
	if err != nil || undelivered {
		return false, err
	}
	err = m.try(ctx, what, func(tx pgx.Tx) error {
		done = false
		if err := settings(ctx, tx, lockTimeout, lookTimeout); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "lock table "+table+" in access exclusive mode"); err != nil {
			return err
		}
		if undelivered, err := m.undelivered(ctx, tx, table, lookTimeout); err != nil || undelivered {
			return err
		}
		if err := settings(ctx, tx, lockTimeout, attachTimeout); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "truncate "+table)
		done = err == nil
		return err
	})
	return done && err == nil, err
}

// longHoldersSQL says whether a transaction that is not about to end holds the log: the drop would wait for it, and all
// writers for the drop. A prepared transaction has no process. How long one has run that this role may not see is not known;
// the drop then finds out by its lock.
const longHoldersSQL = `
select exists (
	select 1 from pg_locks l left join pg_stat_activity a on a.pid = l.pid
	where l.relation = $1::text::regclass and l.granted and l.pid is distinct from pg_backend_pid()
		and (l.pid is null or a.xact_start < clock_timestamp() - interval '1 second'))`

// drop removes an empty segment. It looks for rows behind the locks, the log's first as writers take them: one who was
// waited for may have added some.
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
		if err := settings(ctx, tx, parentLockTimeout, lookTimeout); err != nil {
			return err
		}
		table := pgx.Identifier{n.schema, s.name}.Sanitize()
		for _, lock := range []string{n.table("log"), table} {
			if _, err := tx.Exec(ctx, "lock table only "+lock+" in access exclusive mode"); err != nil {
				return err
			}
		}
		var filled bool
		if err := tx.QueryRow(ctx, "select exists (select 1 from "+table+")").Scan(&filled); err != nil || filled {
			return err
		}
		_, err := tx.Exec(ctx, "drop table "+table)
		return err
	})
}
