package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// settlePlanSQL goes before a settlement, for its transaction alone. Losing a settlement means delivering again, so it
// does not wait for the disk. The plans that are wanted look up single rows by index: the tables are small, and a planner
// left to itself scans them, dead rows that an open transaction keeps included.
const settlePlanSQL = `select set_config('synchronous_commit', 'off', true), set_config('jit', 'off', true),
	set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
	set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
	set_config('enable_mergejoin', 'off', true)`

const (
	// fenceSQL locks the leases that are still the caller's, and returns them: $1 relay, $2 owner, $3 partitions, $4 epochs.
	// An epoch that is stale stays so; one that holds cannot change while its row is locked.
	fenceSQL = `
select l.partition::int4 from {leases} l
join unnest($3::int2[], $4::int8[]) as i (partition, epoch) using (partition, epoch)
where l.relay = $1::text and l.owner = $2::text order by l.partition for no key update of l`

	// moveSQL moves cursors and counts, fenced, and returns the partitions for which it did. It comes after fenceSQL, so that
	// it sees what was moved while that one waited; else it might put a cursor in the place of one that has been moved twice
	// meanwhile, behind the newest. The rows to delete are named by
	// their place, which leaves the planner no way to find them but the direct one. $1 relay, $2 owner, then
	// arrays: $3 partition, $4 epoch, $5 moved, $6 position, $7 snapshot, $8 ceiling, $9 upTo, $10 page, $11 delivered,
	// $12 failed.
	moveSQL = `
with input as (
	select * from unnest($3::int2[], $4::int8[], $5::bool[], $6::int8[], $7::text[], $8::text[], $9::text[], $10::int8[],
		$11::int8[], $12::int8[])
		as i (partition, epoch, moved, position, snapshot, ceiling, upto, page, delivered, failed)
), fence as materialized (
	select l.partition from {leases} l join input i using (partition, epoch)
	where l.relay = $1::text and l.owner = $2::text order by l.partition for no key update of l
), latest as materialized (
	select c.* from fence f cross join lateral (
		select c.ctid as place, c.* from {cursors} c where c.relay = $1::text and c.partition = f.partition
		order by c.n desc limit 1) as c
), old as (
	delete from {cursors} where ctid = any(array(select place from latest))
)
insert into {cursors} (relay, partition, n, position, snapshot, ceiling, page_snapshot, page, delivered, failed)
select $1::text, o.partition, o.n + 1,
	case when i.moved then i.position else o.position end,
	case when i.moved then i.snapshot::pg_snapshot else o.snapshot end,
	case when i.moved then nullif(i.ceiling, '')::xid8 else o.ceiling end,
	case when i.moved then nullif(i.upto, '')::pg_snapshot else o.page_snapshot end,
	case when i.moved then nullif(i.page, 0) else o.page end,
	o.delivered + i.delivered, o.failed + i.failed
from latest o join input i using (partition)
returning partition::int4`
)

// Settle implements relay.LogStore. All settlements are applied together, in one transaction and one round trip: the leases
// that are locked meanwhile stop whoever is to take them over, and this process may be paused between two. So what must
// keep it from being committed has to fail on the server, by a division by zero. When only cursors move, it is two statements.
func (s *Store) Settle(ctx context.Context, name string, owner relay.Owner, settlements []relay.Settlement) (relay.Settled, error) {
	n, err := s.open(ctx)
	if err != nil || len(settlements) == 0 {
		return relay.Settled{}, err
	}
	in, err := gather(settlements, n)
	if err != nil {
		return relay.Settled{}, err
	}
	settled, err := retry(func() (relay.Settled, error) {
		if in.onlyMoves() {
			return s.move(ctx, name, owner.ID, in)
		}
		return s.settle(ctx, name, owner.ID, in)
	})
	return settled, translate("settle for relay "+name, err)
}

// move is the fast path.
func (s *Store) move(ctx context.Context, name, owner string, in *settleInput) (relay.Settled, error) {
	results, err := implicit(ctx, s.pool, settlePlanSQL, func(b *pgx.Batch) {
		b.Queue(s.sql.fence, in.moves.fenceArgs(name, owner)...)
		b.Queue(s.sql.move, in.moves.args(name, owner)...)
	})
	if err != nil {
		return relay.Settled{}, err
	}
	lost, err := s.readMove(results, in)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return relay.Settled{Lost: lost}, err
}

func (s *Store) readMove(results pgx.BatchResults, in *settleInput) ([]int, error) {
	if _, err := results.Exec(); err != nil {
		return nil, err
	}
	moved, err := readPartitions(results)
	return in.without(moved), err
}

func readPartitions(results pgx.BatchResults) (map[int]bool, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	found := make(map[int]bool)
	var p int
	_, err = pgx.ForEachRow(rows, []any{&p}, func() error {
		found[p] = true
		return nil
	})
	return found, err
}

// step is one statement of the slow path.
type step struct {
	sql  string
	args []any
	read func(results pgx.BatchResults) error // nil: there is no result to read
}

// settle is the slow path. The leases are locked first; every statement behind repeats the condition, so that what is not
// the caller's any more is left alone.
func (s *Store) settle(ctx context.Context, name, owner string, in *settleInput) (settled relay.Settled, err error) {
	steps := []step{{sql: s.sql.fence, args: in.moves.fenceArgs(name, owner), read: func(results pgx.BatchResults) error {
		held, err := readPartitions(results)
		settled.Lost = in.without(held)
		return err
	}}}
	steps = append(steps, s.messageSteps(name, owner, in, s.noneMissing(in), step{sql: s.sql.removed})...)
	steps = append(steps, s.keySteps(name, owner, in, &settled)...)
	steps = append(steps, step{sql: s.sql.move, args: in.moves.args(name, owner)})
	results, err := implicit(ctx, s.pool, settlePlanSQL, func(b *pgx.Batch) { queueSteps(b, steps) })
	if err != nil {
		return relay.Settled{}, err
	}
	if err := readSteps(results, steps); err != nil {
		return relay.Settled{}, err
	}
	return settled, nil
}

// runSteps sends all statements in one round trip and reads their results.
func runSteps(ctx context.Context, on interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}, steps []step) error {
	batch := &pgx.Batch{}
	queueSteps(batch, steps)
	return readSteps(on.SendBatch(ctx, batch), steps)
}

func queueSteps(batch *pgx.Batch, steps []step) {
	for _, st := range steps {
		batch.Queue(st.sql, st.args...)
	}
}

func readSteps(results pgx.BatchResults, steps []step) error {
	for _, st := range steps {
		var err error
		if st.read != nil {
			err = st.read(results)
		} else {
			_, err = results.Exec()
		}
		if err != nil {
			_ = results.Close() // err is the cause of what this one reports
			return err
		}
	}
	return results.Close()
}

// messageSteps park, dead-letter and remove messages, in this order. Dead letters come from the parked ones before they
// come from the log, so that what was tried is not lost. Missing looks for what is not in the log, removed removes.
func (s *Store) messageSteps(name, owner string, in *settleInput, missing, removed step) []step {
	var steps []step
	addStep := func(st step, items *items) {
		if items.len() > 0 {
			st.args = items.args(name, owner)
			steps = append(steps, st)
		}
	}
	add := func(sql string, items *items) { addStep(step{sql: sql}, items) }
	addStep(missing, &in.fromLog)
	add(s.sql.parkAgain, &in.parkAgain)
	add(s.sql.parkFromLog, &in.parkFromLog)
	add(s.sql.deadFromParked, &in.dead)
	add(s.sql.deadAfterAll, &in.deadFromLog)
	add(s.sql.deadFromLog, &in.deadFromLog)
	addStep(removed, &in.removed)
	return steps
}

// noneMissing refuses to settle what cannot be found: it would be lost.
func (s *Store) noneMissing(in *settleInput) step {
	reason := fmt.Errorf("messages among %d are to be put aside but are not in the log", in.fromLog.seqs)
	return step{sql: s.sql.noneMissing, read: unless(reason)}
}

func (s *Store) keySteps(name, owner string, in *settleInput, settled *relay.Settled) []step {
	if in.keys.len() == 0 {
		return nil
	}
	steps := []step{{sql: s.sql.lockHeld, args: in.keys.args(name, owner)}}
	if in.held.len() > 0 {
		steps = append(steps, step{sql: s.sql.hold, args: in.held.args(name, owner)})
	}
	if in.released.len() == 0 {
		return steps
	}
	args := in.released.args(name, owner)
	return append(steps, step{sql: s.sql.releaseKeys, args: args, read: func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		settled.Released, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}}, step{sql: s.sql.letGo, args: args})
}

// oneText makes a text that the database can hold: UTF-8 without NUL. Causes and reasons come from anywhere.
func oneText(text string, limit int) string {
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(text, "")
}
