package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// A logical restore (pg_dump, logical replication) brings the log and the cursors into another cluster, where their transaction
// ids mean nothing: they may belong to running or future transactions. The outbox therefore stores the identifier of the cluster
// that they belong to. A dump restored into its own cluster stays valid, and so does a physical copy; pg_upgrade creates another
// cluster with the same ids, at the cost of some redelivered messages.
const (
	identitySQL = `select m.system_identifier, c.system_identifier from {meta} m, pg_control_system() c`

	// tooLowSQL says whether the sequence is, or was, lower than what the log or a cursor has seen, as after a copy without the
	// sequence. New messages may have passed that point before the check. Then sequences were assigned twice, or a cursor is past
	// rows that were written after it was settled there.
	tooLowSQL = `
select (select last_value from {log_seq_seq}) < coalesce(greatest(
		(select max(seq) from {log}), (select max(c.position) from {cursors} c where ` + readsSQL + `)), 0)
	or exists (select 1 from {log} group by seq having count(*) > 1)
	or exists (select 1 from {cursors} c join {log} l on l.partition = c.partition
		where ` + readsSQL + ` and l.seq <= c.position and l.created_at > c.settled_at)`

	// advanceParkedSQL raises the sequence of messages that consumers park or dead-letter above every existing row.
	advanceParkedSQL = `
select setval('{aside_seq}', greatest((select last_value from {aside_seq}), (select max(seq) from {parked}),
	(select max(seq) from {dead}), 1))`

	// renumberSQL gives a new sequence to rows whose sequence an older row has.
	renumberSQL = `
update {log} l set seq = default
from (select tableoid as segment, ctid as place, row_number() over (partition by seq order by created_at) as copy from {log}) d
where l.tableoid = d.segment and l.ctid = d.place and d.copy > 1`

	// rewindSQL moves every cursor to before the oldest row that may not have been delivered. The old ids can still be compared with
	// each other. $1: deliver everything again.
	rewindSQL = `
with latest as materialized (
	select c.* from {relay_partitions} g cross join lateral (
		select * from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
	where ` + readsSQL + `
), old as (
	delete from {cursors} c using latest o where c.relay = o.relay and c.partition = o.partition and c.n = o.n
)
insert into {cursors} (relay, partition, n, position, snapshot, ceiling, delivered, failed)
select c.relay, c.partition, c.n + 1,
	case when $1::bool then 0 else least(c.position, coalesce((
		select min(l.seq) - 1 from {log} l where l.partition = c.partition and l.seq <= c.position
			and not pg_visible_in_snapshot(l.xid, c.snapshot)), c.position)) end,
	pg_current_snapshot(), pg_current_xact_id(), c.delivered, c.failed
from latest c`

	// freezeSQL replaces every id that could be taken for a running or future transaction of this cluster by one that is over: 2 is
	// below every id that is ever assigned.
	freezeSQL = `update {log} set xid = '2' where xid >= pg_snapshot_xmin(pg_current_snapshot())`

	takeBackSQL = `update {leases} set token = ''`

	restoredSQL = `update {meta} set restored_at = clock_timestamp(), restored_from = system_identifier,
	system_identifier = (select system_identifier from pg_control_system())`
)

// checkRestored detects a database that was restored from another cluster and makes the cursors valid here: it prefers redelivery
// to loss.
func (s *Store) checkRestored(ctx context.Context) error {
	restored, err := s.restored(ctx, s.pool, "")
	if err != nil || !restored {
		return translate("compare the cluster's identity", err)
	}
	s.config.Logger.Warn("postrider: the outbox was restored from another cluster; relays go back to before the oldest message " +
		"that may not have been delivered, so some are delivered again")
	highest, tooLow, err := s.setBack(ctx)
	if err != nil {
		return translate("adopt the restored outbox", err)
	}
	var advance []step
	if tooLow { // the target segment exists, committed, before the sequence is set
		target, err := s.cover(ctx, highest)
		if err != nil {
			return translate("adopt the restored outbox", err)
		}
		advance = []step{{sql: advanceSQL, args: []any{target, s.config.margin()}}}
	}
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, s.restore(ctx, advance))
	return translate("adopt the restored outbox", err)
}

func (s *Store) restored(ctx context.Context, q querier, lock string) (bool, error) {
	var stored, present *int64
	err := q.QueryRow(ctx, s.names.expand(identitySQL)+lock).Scan(&stored, &present)
	if code(err) == insufficientPrivilege {
		return false, nil // the server does not report it
	}
	return err == nil && stored != nil && present != nil && *stored != *present, err
}

func (s *Store) restore(ctx context.Context, advance []step) func(tx pgx.Tx) error {
	return func(tx pgx.Tx) error {
		// Other processes that detect the restore wait here, and then find nothing to do.
		if restored, err := s.restored(ctx, tx, " for update of m"); err != nil || !restored {
			return err
		}
		if _, err := tx.Exec(ctx, s.names.expand(takeBackSQL)); err != nil {
			return err
		}
		var tooLow bool
		if err := tx.QueryRow(ctx, s.names.expand(tooLowSQL)).Scan(&tooLow); err != nil {
			return err
		}
		steps := append(slices.Clone(advance), step{sql: advanceParkedSQL})
		if tooLow {
			steps = append(steps, step{sql: renumberSQL})
		}
		steps = append(steps, []step{{sql: rewindSQL, args: []any{tooLow}}, {sql: freezeSQL}, {sql: restoredSQL}}...)
		for _, st := range steps {
			if _, err := tx.Exec(ctx, s.names.expand(st.sql), st.args...); err != nil {
				return fmt.Errorf("adopt the restored outbox: %w", err)
			}
		}
		return nil
	}
}
