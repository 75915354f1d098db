package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

const (
	// maxLockWait is how long a change to a segment waits for a lock; transactions that queue after it wait for that time too.
	// logLockWait is the same for the whole log, which publishers queue for.
	maxLockWait = 50 * time.Millisecond
	logLockWait = 20 * time.Millisecond
	// logLockedFor is how long a change that locks the log, and so blocks publishers, may run, including its wait for the lock.
	logLockedFor = 50 * time.Millisecond
	// lockedFor is the same for a closed segment, whose lock blocks fetches.
	lockedFor = 500 * time.Millisecond
	// attachTimeout limits changes that block nobody, and the search for undelivered rows without a lock.
	attachTimeout = 5 * time.Second
)

// dropOld empties the closed segments that are past retention and delivered, then drops the empty ones.
func (m *maintenance) dropOld(ctx context.Context, r store.Retention) error {
	s, err := m.store.listSegments(ctx)
	if err != nil {
		return err
	}
	var total int64
	for _, g := range s.all {
		total += g.bytes
	}
	for _, g := range s.closed() {
		if g.name == m.ended { // a statement may be about to write the number that it has just drawn
			continue
		}
		if r.KeepFrom > 0 && g.to > r.KeepFrom {
			break
		}
		if !g.empty {
			_, last, err := m.ends(ctx, g)
			if code(err) == undefinedTable { // another process dropped it
				continue
			}
			if err != nil {
				return err
			}
			if last.After(s.now.Add(-r.For)) && (r.MaxBytes <= 0 || total <= r.MaxBytes) {
				continue
			}
			if g.empty, err = m.truncate(ctx, g); err != nil {
				return err
			}
			if g.empty {
				m.dropped += g.rows
				total -= g.bytes
			}
		}
		if g.empty {
			if err := m.detach(ctx, g); err != nil {
				return err
			}
		}
	}
	return m.dropDetached(ctx)
}

// undeliveredInSQL finds a row of segment %s that some relay has not delivered, late ones included, or that none ever will
// because its partition does not exist. It is also true while a legal hold is active, and if there is no relay, unless %[2]t is
// false. While late rows are read in pages, all of them count as undelivered. If planSQL precedes it, each branch reads one row by
// index: fresh rows as a fetch does; rows of a transaction that was running; rows of later transactions, up to the ceiling.
const undeliveredInSQL = `
select %[2]t and not exists (select from {relay_partitions} g where ` + kindSQL + ` = 'relay')
or exists (select from {records} where kind = '` + store.KindLegalHold + `')
or exists (select from %[1]s where partition < 0) or exists (select from %[1]s where partition >= {partitions}())
or exists (
	select from {relay_partitions} g cross join lateral (
		select * from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
	where ` + kindSQL + ` = 'relay' and (exists (select from (
			select from %[1]s l where l.partition = c.partition and l.seq > c.position order by l.seq limit 1) as fresh)
		or exists (select from pg_snapshot_xip(c.snapshot) as x cross join lateral (
			select from %[1]s l where l.xid = x and l.seq <= c.position and l.partition = c.partition
			order by l.xid, l.seq limit 1) as late)
		or c.position > 0 and exists (select from (
			select from %[1]s l where l.xid >= pg_snapshot_xmax(c.snapshot)
				and l.xid < coalesce(c.ceiling, '18446744073709551615') and l.seq <= c.position and l.partition = c.partition
			order by l.xid, l.seq limit 1) as later))
)`

// truncateSQL empties segment %[1]s if every row is delivered, in one transaction of the server. It locks the segment before it
// checks, so that no row is added and no transaction that wrote to it is open.
const truncateSQL = planSQL + `;
do $$
begin
	lock table %[1]s in access exclusive mode;
	if (` + undeliveredInSQL + `) then
		raise exception 'not delivered' using errcode = '` + notNow + `';
	end if;
	truncate %[1]s;
end
$$`

// truncate empties a segment if every relay has delivered every row of it. It first checks without a lock, which may take a
// while. The log as a whole is not locked, and publishers continue.
func (m *maintenance) truncate(ctx context.Context, g segment) (bool, error) {
	table := m.store.names.segment(g)
	what := "empty segment " + g.name
	undelivered, err := m.undelivered(ctx, table)
	switch {
	case code(err) == undefinedTable: // another process dropped it
		return false, nil
	case code(err) == queryCanceled && ctx.Err() == nil:
		m.deferred = append(m.deferred, what+": looking for what is not delivered took longer than it may")
		return false, nil
	case err != nil || undelivered:
		return false, err
	}
	return m.change(ctx, what, limits(maxLockWait, lockedFor)+fmt.Sprintf(truncateSQL, table, m.needsRelay))
}

// undelivered reports whether a row of a segment is not delivered; with an error, it reports true.
func (m *maintenance) undelivered(ctx context.Context, table string) (found bool, err error) {
	results, err := implicit(ctx, m.store.pool, planSQL, func(b *pgx.Batch) {
		b.Queue("select pg_catalog.set_config('statement_timeout', $1::text, true)", fmt.Sprint(attachTimeout.Milliseconds()))
		b.Queue(m.store.names.expand(fmt.Sprintf(undeliveredInSQL, table, m.needsRelay)))
	})
	if err != nil {
		return true, err
	}
	if _, err = results.Exec(); err == nil {
		err = results.QueryRow().Scan(&found)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return found || err != nil, err
}

// longHoldersSQL says whether a transaction that is not about to end holds the log: the change would wait for it, and all writers
// for the change. A prepared transaction has no process. If this role may not see when a transaction began, the transaction does
// not count, and the lock of the change decides.
const longHoldersSQL = `
select exists (
	select 1 from pg_locks l left join pg_stat_activity a on a.pid = l.pid
	where l.locktype = 'relation' and l.relation = $1::text::regclass::oid and l.granted and l.pid is distinct from pg_backend_pid()
		and l.database = (select oid from pg_database where datname = current_database())
		and (l.pid is null or a.xact_start < clock_timestamp() - interval '1 second'))`

// detachSQL detaches segment %d if it is empty, and dropDetachedSQL drops it. They call functions of the schema's owner, so that a
// relay needs no ownership.
const (
	detachSQL       = `select {log_detach}(%d)`
	dropDetachedSQL = `select {log_drop}(%d)`
)

// detach takes an empty segment out of the log. It does not drop the table in the same transaction, since that would wait for the
// disk with the log locked.
func (m *maintenance) detach(ctx context.Context, g segment) error {
	n, what := m.store.names, "drop segment "+g.name
	var held bool
	if err := m.store.pool.QueryRow(ctx, n.expand(longHoldersSQL), n.table("log")).Scan(&held); err != nil {
		return err
	}
	if held {
		m.deferred = append(m.deferred, what+": it is empty, but a long transaction holds the log")
		return nil
	}
	_, err := m.change(ctx, what, limits(logLockWait, logLockedFor)+fmt.Sprintf(detachSQL, g.from))
	return err
}

// detachedSQL lists tables that were segments: named like one, with prefix $2, and not attached.
const detachedSQL = `
select coalesce(array_agg(relname::text), '{}') from pg_class
where relnamespace = $1::text::regnamespace::oid and relkind = 'r' and not relispartition and relname ~ ('^' || $2::text || 'log_[0-9]+$')`

// dropDetached drops detached tables, whichever process detached them.
func (m *maintenance) dropDetached(ctx context.Context) error {
	n := m.store.names
	var tables []string
	if err := m.store.pool.QueryRow(ctx, n.expand(detachedSQL), pgx.Identifier{n.schema}.Sanitize(), n.prefix).Scan(&tables); err != nil {
		return err
	}
	for _, name := range tables {
		first, err := strconv.ParseInt(strings.TrimPrefix(name, n.prefix+"log_"), 10, 64)
		if err != nil { // not a segment's
			continue
		}
		if _, err := m.change(ctx, "drop table "+name, limits(maxLockWait, attachTimeout)+fmt.Sprintf(dropDetachedSQL, first)); err != nil {
			return err
		}
	}
	return nil
}
