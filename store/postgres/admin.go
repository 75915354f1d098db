package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// adminLockTimeout is how long an administrative step waits for transactions that have published. New publishers queue for that
// time too.
const adminLockTimeout = "3s"

const (
	// lockAllSQL locks everything except against readers. The log is last, so that publishers wait the least.
	lockAllSQL = `lock table {meta}, {leases}, {relay_partitions}, {decisions}, {cursors}, {relays}, {parked}, {held}, {dead}, {log} in exclusive mode`

	aliveSQL = `select relay, owner, host from {relays} where ($1::text = '' or relay = $1::text)
	and alive_until > clock_timestamp() order by relay, started_at limit 1`

	// anyUndeliveredSQL finds a partition in which a relay has not delivered or parked everything. $1 is the row limit: noLimit.
	anyUndeliveredSQL = `
select g.relay, g.partition::int4 from {relay_partitions} g
cross join lateral (
	select c.*, $1::int8 as most from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
where ` + kindSQL + ` = 'relay' and exists (` + undeliveredSQL + `) order by g.relay, g.partition limit 1`
	noLimit = int64(1) << 62

	// partitionOfSQL is postrider.PartitionOf of a key, or of an ID without one, among $1 partitions.
	partitionOfSQL = `(('x' || substr(md5(convert_to(coalesce(nullif(key, ''), id), 'UTF8')), 1, 8))::bit(32)::int8 % $1::int8)`

	setPartitionsSQL = `update {meta} set partitions = $1::int4`
	// replacePartitionsSQL is formatted with the number: a function body takes no parameters.
	replacePartitionsSQL = `create or replace function {partitions}() returns integer language sql stable parallel safe as 'select %d'`

	// renewPartitionsSQL gives every relay $1 partitions.
	renewPartitionsSQL = `
with gone as (
	delete from {relay_partitions} where partition >= $1::int4
)
insert into {relay_partitions} (relay, partition, kind)
select relay, p, kind from (select g.relay, ` + kindSQL + ` as kind from {relay_partitions} g where g.partition = 0) as r,
	generate_series(0, $1::int4 - 1) as p
on conflict do nothing`

	// renewLeasesSQL creates their leases, free: a process that was paused meanwhile has lost its own.
	renewLeasesSQL = `
with gone as (
	delete from {leases} where partition >= $1::int4
)
insert into {leases} (relay, partition, incarnation)
select relay, p, {incarnation}() from (select distinct relay from {relay_partitions}) as r, generate_series(0, $1::int4 - 1) as p
on conflict (relay, partition) do update set owner = '', token = '', incarnation = excluded.incarnation`

	// renewCursorsSQL moves the cursors of $1 partitions to the end of the log: $2 position, $3 snapshot. No transaction that has
	// written to the log is open, so every row up to there is visible in the snapshot and below its xmax. A consumer's row (see
	// readsSQL) stays as it is. Partition 0 takes over the counters.
	renewCursorsSQL = `
with old as (
	delete from {cursors} returning *
), relay as (
	select relay, max(n) as n, sum(delivered)::int8 as delivered, sum(failed)::int8 as failed, max(settled_at) as settled_at
	from old group by relay
), place as (
	select distinct on (relay) relay, c.position, c.snapshot, c.ceiling from old c where not (` + readsSQL + `)
	order by relay, n desc
)
insert into {cursors} (relay, partition, n, position, snapshot, ceiling, delivered, failed, settled_at)
select r.relay, p, r.n + 1, coalesce(c.position, $2::int8), coalesce(c.snapshot, $3::pg_snapshot),
	case when c.relay is null then pg_snapshot_xmax($3::pg_snapshot) else c.ceiling end,
	case when p = 0 then r.delivered else 0 end, case when p = 0 then r.failed else 0 end, r.settled_at
from relay r left join place c using (relay) cross join generate_series(0, $1::int4 - 1) as p`
)

// moveSQLs give every row its partition among $1.
var moveSQLs = []string{
	`update {log} set partition = ` + partitionOfSQL + ` where partition <> ` + partitionOfSQL,
	`update {parked} set partition = ` + partitionOfSQL + ` where partition <> ` + partitionOfSQL,
	`update {dead} set partition = ` + partitionOfSQL + ` where partition <> ` + partitionOfSQL,
	`update {held} h set partition = n.partition from (select relay, key, ` + partitionOfSQL + ` as partition
		from (select relay, key, '' as id from {held}) as k) as n
	where h.relay = n.relay and h.key = n.key and h.partition <> n.partition`,
	`update {decisions} d set partition = n.partition from (select decision, ` + partitionOfSQL + ` as partition
		from (select id as decision, key, message_id as id from {decisions}) as k) as n
	where n.decision = d.id and d.partition <> n.partition`,
}

// Repartition implements store.Administrator. It needs the rights of the role that ran the migrations. Measured on 2 cores, it
// moves about 50,000 messages of the log per second.
func (s *Store) Repartition(ctx context.Context, n int) error {
	if n < 1 || n > store.MaxPartitions {
		return fmt.Errorf("repartition: %d partitions: it may be 1 to %d", n, store.MaxPartitions)
	}
	if err := s.checkRestored(ctx); err != nil {
		return err
	}
	err := s.administer(ctx, func(tx pgx.Tx) error {
		// Check twice: first without locks, so that a refused step blocks nobody, then with them, so that nothing can change after the
		// check.
		if err := s.checkIdle(ctx, tx); err != nil {
			return err
		}
		if err := s.lock(ctx, tx, lockAllSQL); err != nil {
			return err
		}
		if err := s.checkIdle(ctx, tx); err != nil {
			return err
		}
		return s.repartition(ctx, tx, n)
	})
	if err != nil {
		return translate("repartition", err)
	}
	s.partitions.Store(int32(n))
	s.publishing.Store(0)
	s.begun.Clear()
	s.Wake()
	return nil
}

// administer runs a step in a transaction of its own.
func (s *Store) administer(ctx context.Context, step func(tx pgx.Tx) error) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if err := settings(ctx, tx, adminLockTimeout, "0"); err != nil {
				return err
			}
			return step(tx)
		})
	})
	return err
}

func (s *Store) lock(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Exec(ctx, s.names.expand(sql))
	if code(err) == lockNotAvailable {
		return fmt.Errorf("%w: transactions that have used it, e.g. published, did not end within %s; run this again when less is going on, or "+
			"find those that stay open in pg_stat_activity, and in pg_prepared_xacts: %w", store.ErrInUse, adminLockTimeout, err)
	}
	return err
}

// checkIdle fails if a process works on the outbox or a relay has not delivered everything.
func (s *Store) checkIdle(ctx context.Context, tx pgx.Tx) error {
	if err := s.checkStopped(ctx, tx, ""); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, planSQL); err != nil {
		return err
	}
	var name string
	var partition int
	err := tx.QueryRow(ctx, s.names.expand(anyUndeliveredSQL), noLimit).Scan(&name, &partition)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s in partition %d; run it until its backlog is 0 while nothing is published, then stop it; or remove "+
		"it if it is gone for good", store.ErrUndelivered, name, partition)
}

// checkStopped fails if a process of a relay ("" for any) is alive.
func (s *Store) checkStopped(ctx context.Context, tx pgx.Tx, name string) error {
	var relayName, owner, host string
	err := tx.QueryRow(ctx, s.names.expand(aliveSQL), name).Scan(&relayName, &owner, &host)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s of relay %s on host %s; stop it, or wait until its lease has ended if it was killed",
		store.ErrAlive, owner, relayName, host)
}

// repartition makes all changes under the locks.
func (s *Store) repartition(ctx context.Context, tx pgx.Tx, n int) error {
	var position int64
	var snapshot string
	if err := tx.QueryRow(ctx, s.present()).Scan(&snapshot, &position); err != nil {
		return err
	}
	// The planner settings for finding undelivered messages do not suit the following statements.
	if _, err := tx.Exec(ctx, `select pg_catalog.set_config('enable_seqscan', 'on', true),
		pg_catalog.set_config('enable_bitmapscan', 'on', true)`); err != nil {
		return err
	}
	steps := []step{
		{sql: setPartitionsSQL, args: []any{n}}, {sql: fmt.Sprintf(replacePartitionsSQL, n)},
		{sql: renewPartitionsSQL, args: []any{n}}, {sql: renewLeasesSQL, args: []any{n}}, {sql: renewCursorsSQL, args: []any{n, position, snapshot}},
	}
	for _, sql := range moveSQLs {
		steps = append(steps, step{sql: sql, args: []any{n}})
	}
	for _, st := range steps {
		if _, err := tx.Exec(ctx, s.names.expand(st.sql), st.args...); err != nil {
			return err
		}
	}
	return nil
}

const (
	// lockRelaysSQL locks out relays and operators.
	lockRelaysSQL = `lock table {leases}, {relay_partitions}, {cursors}, {relays}, {parked}, {held}, {dead} in exclusive mode`

	// knownSQL says whether relay $1 has ever registered, and whether it has left anything that must be decided.
	knownSQL = `
select exists (select 1 from {relay_partitions} where relay = $1::text) or exists (select 1 from {relays} where relay = $1::text),
	exists (select 1 from {parked} where relay = $1::text) or exists (select 1 from {held} where relay = $1::text)
		or exists (select 1 from {dead} where relay = $1::text and state = 'open')`
)

// removeRelaySQLs delete everything kept about relay $1.
var removeRelaySQLs = []string{
	`delete from {held} where relay = $1::text`, `delete from {cursors} where relay = $1::text`,
	`delete from {leases} where relay = $1::text`, `delete from {relay_partitions} where relay = $1::text`,
	`delete from {decisions} where relay = $1::text`, `delete from {relays} where relay = $1::text`,
	`delete from {relay_filters} where relay = $1::text`, `delete from {unrouted} where relay = $1::text`,
}

// LockRelay implements store.HeldWriter.
func (r records) LockRelay(ctx context.Context, name string) (known, left bool, err error) {
	if err := settings(ctx, r.tx, adminLockTimeout, "0"); err != nil {
		return false, false, err
	}
	if err := r.s.lock(ctx, r.tx, lockRelaysSQL); err != nil {
		return false, false, err
	}
	if err := r.tx.QueryRow(ctx, r.s.names.expand(knownSQL), name).Scan(&known, &left); err != nil {
		return false, false, err
	}
	return known, left, r.s.checkStopped(ctx, r.tx, name)
}

// RemoveRelay implements store.HeldWriter.
func (r records) RemoveRelay(ctx context.Context, name string) error {
	for _, sql := range removeRelaySQLs {
		if err := r.exec(ctx, sql, name); err != nil {
			return err
		}
	}
	return nil
}

// settings limits how long a transaction waits for locks and how long its statements run.
func settings(ctx context.Context, tx pgx.Tx, lock, statement string) error {
	_, err := tx.Exec(ctx, `select pg_catalog.set_config('lock_timeout', $1::text, true),
		pg_catalog.set_config('statement_timeout', $2::text, true)`, lock, statement)
	return err
}
