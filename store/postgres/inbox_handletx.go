package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

var _ store.TxSettler[pgx.Tx] = (*Store)(nil)

// A transaction is settled and committed in one round trip: the leases locked meanwhile stop every process of the relay, and this
// process may be paused between two round trips. So whatever must prevent the commit has to fail on the server: these statements
// divide by zero.
const (
	// noneMissingSQL and allRemovedSQL take the parameters of items.
	noneMissingSQL = `with missing as (` + missingSQL + `) select 1 / (count(*) = 0)::int from missing`
	allRemovedSQL  = `
with gone as (` + removedSQL + ` returning 1)
select 1 / (count(*) = cardinality($3::int8[]))::int from gone`

	// countDeliveredSQL counts parked messages without touching a row that another transaction changes: several transactions of a
	// partition are in progress at once, possibly repeatable reads. The row has a number below 0, which no settlement has: minus the
	// sequence $3 of the first message. $1 relay, $2 partition, $4 count.
	countDeliveredSQL = `
insert into {cursors} as c (relay, partition, n, position, snapshot, delivered)
values ($1::text, $2::int2, -$3::int8, 0, '` + seesNothing + `', $4::int8)
on conflict (relay, partition, n) do update set delivered = c.delivered + excluded.delivered`

	// addUpSQL replaces those rows, each minute, by one for each partition.
	addUpSQL = `
with counted as (
	delete from {cursors} where n < 0 and n > ` + addedUp + ` returning relay, partition, delivered
)
insert into {cursors} as c (relay, partition, n, position, snapshot, delivered)
select relay, partition, ` + addedUp + `, 0, '` + seesNothing + `', sum(delivered)::int8 from counted group by relay, partition
on conflict (relay, partition, n) do update set delivered = c.delivered + excluded.delivered`
	addedUp = `(-9223372036854775807)`

	// txPlanSQL is settlePlanSQL for a transaction with side effects, which keeps the durability that its owner chose.
	txPlanSQL = `select set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`
)

// fenceOneSQL is the fence of one lease, for a settlement of nothing else: $1 relay, $2 partition, $3 token. Its plan needs no
// settings: leases are few, and have an index on what it looks for. %s limits the transaction (boundSQL).
const fenceOneSQL = `
select 1 / count(*)%s from (
	select from {leases} l where l.relay = $1::text and l.partition = $2::int2 and l.token = $3::text and ` + heldSQL + `
	for key share) as held`

// CommitSettled implements store.TxSettler. The lease is locked last, so that a process taking it over does not wait for the
// handler.
func (s *Store) CommitSettled(ctx context.Context, tx pgx.Tx, name string, st store.Settlement) (released []string, err error) {
	if tx == nil {
		return nil, store.ErrNoTransaction
	}
	// In every case: after a commit, this ends the empty transaction that may follow.
	defer func() { _ = s.rollbackAfter(ctx, tx) }()
	if t, ok := tx.(*limitedTx); ok {
		return s.settleLimited(ctx, t, name, st)
	}
	return s.settleIn(ctx, tx, name, st, commitAndBegin...)
}

// settleLimited is settleIn for a transaction that can end without another one, while no call uses the connection.
func (s *Store) settleLimited(ctx context.Context, tx *limitedTx, name string, st store.Settlement) (released []string, err error) {
	alone, err := tx.endAlone(func(tx pgx.Tx) (err error) {
		released, err = s.settleIn(ctx, tx, name, st, commitOnly...)
		return err
	})
	if alone {
		return released, err
	}
	if err := tx.enter(); err != nil {
		return nil, err
	}
	defer tx.exit()
	return s.settleIn(ctx, tx.Tx, name, st, commitAndBegin...)
}

// If pgx is still to end what it began, an empty transaction follows the commit: without it, a late statement of a handler would be
// executed by itself, and the server would warn.
var (
	commitOnly     = []step{{sql: "commit"}}
	commitAndBegin = []step{{sql: "commit"}, {sql: "begin"}}
)

// settleIn settles in the transaction of a connection and commits it.
func (s *Store) settleIn(ctx context.Context, tx batcher, name string, st store.Settlement, commit ...step) (released []string, err error) {
	n, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	in, err := gather(name, []store.Settlement{st}, n)
	if err != nil {
		return nil, err
	}
	removed := step{sql: s.sql.allRemoved, read: unless(store.ErrNotParked)}
	steps := []step{{sql: s.sql.txPlan}}
	switch {
	case st.Number > 0:
		steps = append(steps, s.settleSteps(name, in, removed, &released)...)
	case len(st.Removed) == 0: // a consumer of a log
		steps = []step{{sql: s.sql.fenceOne, args: []any{name, int16(st.Partition), st.Token}, read: unless(errNotNext)}}
	default:
		steps = append(steps, step{sql: s.sql.fence, args: in.moves.fenceArgs(name), read: unless(errNotNext)})
		steps = append(steps, s.messageSteps(name, &settleInput{removed: in.removed}, removed)...)
		if st.DeliveredCount > 0 {
			steps = append(steps, step{sql: s.sql.countDelivered, args: []any{name, int16(st.Partition), st.Removed[0], st.DeliveredCount}})
		}
	}
	err = runSteps(ctx, tx, append(steps, commit...))
	if errors.Is(err, errNotNext) {
		err = store.ErrLeaseLost
	}
	return released, translate("commit with a settlement for relay "+name, err)
}

// unless reads the result of a statement that divides by zero for the given reason.
func unless(reason error) func(results pgx.BatchResults) error {
	return func(results pgx.BatchResults) error {
		_, err := results.Exec()
		if code(err) == divisionByZero {
			return reason
		}
		return err
	}
}

// addUp keeps the rows of countDeliveredSQL few.
func (m *maintenance) addUp(ctx context.Context, _ store.Retention) error {
	_, err := m.change(ctx, "add up deliveries", limits(maxLockWait, attachTimeout)+addUpSQL)
	return err
}
