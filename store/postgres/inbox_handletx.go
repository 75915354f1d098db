package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

var _ relay.TxStore[pgx.Tx] = (*Store)(nil)

// A transaction is settled and committed in one round trip, for the leases that are locked meanwhile stop every process of
// the relay, and this one may be paused between two. So what must keep the commit from happening has to fail on the server:
// these statements divide by zero.
const (
	// ourLeaseSQL locks a lease that is the caller's: $1 relay, $2 owner, $3 partition, $4 epoch.
	ourLeaseSQL = `
select 1 / count(*) from (select from {leases} l
	where l.relay = $1::text and l.owner = $2::text and l.partition = $3::int2 and l.epoch = $4::int8 for no key update) as ours`

	// moveOneSQL is moveSQL for a partition whose lease ourLeaseSQL has locked: $1 relay, $2 partition, $3 moved, $4 position,
	// $5 snapshot, $6 ceiling, $7 upTo, $8 page, $9 delivered, $10 failed.
	moveOneSQL = `
with latest as materialized (
	select c.ctid as place, c.* from {cursors} c where c.relay = $1::text and c.partition = $2::int2 order by c.n desc limit 1
), old as (
	delete from {cursors} where ctid = any(array(select place from latest))
)
insert into {cursors} (relay, partition, n, position, snapshot, ceiling, page_snapshot, page, delivered, failed)
select o.relay, o.partition, o.n + 1,
	case when $3::bool then $4::int8 else o.position end,
	case when $3::bool then $5::text::pg_snapshot else o.snapshot end,
	case when $3::bool then nullif($6::text, '')::xid8 else o.ceiling end,
	case when $3::bool then nullif($7::text, '')::pg_snapshot else o.page_snapshot end,
	case when $3::bool then nullif($8::int8, 0) else o.page end,
	o.delivered + $9::int8, o.failed + $10::int8
from latest o`

	// noneMissingSQL and allRemovedSQL have the parameters of a list of items.
	noneMissingSQL = `with missing as (` + missingSQL + `) select 1 / (count(*) = 0)::int from missing`
	allRemovedSQL  = `
with gone as (` + removedSQL + ` returning 1)
select 1 / (count(*) = cardinality($5::int8[]))::int from gone`

	// txPlanSQL is settlePlanSQL for a transaction with effects, which is to be as durable as its owner wants.
	txPlanSQL = `select set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`
)

// CommitSettled implements relay.TxStore.
func (s *Store) CommitSettled(ctx context.Context, tx pgx.Tx, name string, owner relay.Owner, st relay.Settlement) (released []string, err error) {
	if tx == nil {
		return nil, outbox.ErrNoTransaction
	}
	// In any case: of what was committed, it ends the empty transaction that follows.
	defer func() { _ = s.Rollback(context.WithoutCancel(ctx), tx) }()
	n, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	in, err := gather([]relay.Settlement{st}, n)
	if err != nil {
		return nil, err
	}
	var settled relay.Settled
	steps := append(s.txSteps(name, owner.ID, in, &settled),
		step{sql: "commit"},
		step{sql: "begin"}) // pgx ends what it began, and would be warned if that were not there
	if err := runSteps(ctx, tx, steps); err != nil {
		return nil, translate("commit with a settlement for relay "+name, err)
	}
	return settled.Released, nil
}

// txSteps apply a settlement in a transaction that it may fail.
func (s *Store) txSteps(name, owner string, in *settleInput, settled *relay.Settled) []step {
	m := &in.moves // of one partition
	steps := []step{
		{sql: txPlanSQL},
		{sql: s.sql.ourLease, args: []any{name, owner, m.partitions[0], m.epochs[0]}, read: unless(relay.ErrLeaseLost)},
	}
	missing := unless(fmt.Errorf("messages among %d are to be put aside but are not in the log", in.fromLog.seqs))
	steps = append(steps, s.messageSteps(name, owner, in, step{sql: s.sql.noneMissing, read: missing},
		step{sql: s.sql.allRemoved, read: unless(relay.ErrNotParked)})...)
	steps = append(steps, s.keySteps(name, owner, in, settled)...)
	return append(steps, step{sql: s.sql.moveOne, args: []any{name, m.partitions[0], m.moved[0], m.positions[0], m.snapshots[0],
		m.ceilings[0], m.upTos[0], m.pages[0], m.delivered[0], m.failed[0]}})
}

// unless reads the result of a statement that divides by zero for a reason.
func unless(reason error) func(results pgx.BatchResults) error {
	return func(results pgx.BatchResults) error {
		_, err := results.Exec()
		if code(err) == divisionByZero {
			return reason
		}
		return err
	}
}
