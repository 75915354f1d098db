package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// settlePlanSQL precedes a settlement, for its transaction only. Losing a settlement means redelivery, so it does not wait for
// the disk. The desired plans look up single rows by index: the tables are small, so left alone the planner scans them, including
// dead rows that an open transaction keeps.
const settlePlanSQL = `select set_config('synchronous_commit', 'off', true), set_config('jit', 'off', true),
	set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
	set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
	set_config('enable_mergejoin', 'off', true)`

const (
	// fenceSQL fails unless all leases hold, and keeps them from being granted again until the transaction ends: $1 relay, $2
	// partitions, $3 tokens.
	fenceSQL = `
select 1 / (count(*) = cardinality($2::int2[]))::int from (
	select from {leases} l join unnest($2::int2[], $3::text[]) as i (partition, token) using (partition, token)
	where l.relay = $1::text and ` + heldSQL + ` order by l.partition for key share of l) as held`

	// moveSQL moves cursors and adds to their counters. It fails unless each number is the next of its partition, or if a cursor is
	// beyond what the server knows. If two come at once with the same number, one waits for the other and fails by the primary key.
	// The rows to delete are named by ctid, which leaves the planner only direct access.
	//
	// $1 relay, then arrays: $2 partition, $3 number, $4 content, $5 moved, $6 position, $7 snapshot, $8 ceiling, $9 upTo, $10 page,
	// $11 delivered, $12 failed.
	moveSQL = `
with input as (
	select * from unnest($2::int2[], $3::int8[], $4::bytea[], $5::bool[], $6::int8[], $7::text[], $8::text[], $9::text[],
		$10::int8[], $11::int8[], $12::int8[])
		as i (partition, number, content, moved, position, snapshot, ceiling, upto, page, delivered, failed)
), latest as materialized (
	select o.* from input i cross join lateral (
		select c.ctid as place, c.* from {cursors} c where c.relay = $1::text and c.partition = i.partition
		order by c.n desc limit 1) as o
	where o.n = i.number - 1
		and (not i.moved or pg_snapshot_xmax(i.snapshot::pg_snapshot) <= pg_snapshot_xmax(pg_current_snapshot()))
), old as (
	delete from {cursors} where ctid = any(array(select place from latest))
), new as (
	insert into {cursors} (relay, partition, n, content, position, snapshot, ceiling, page_snapshot, page, delivered, failed)
	select $1::text, o.partition, i.number, i.content,
		case when i.moved then i.position else o.position end,
		case when i.moved then i.snapshot::pg_snapshot else o.snapshot end,
		case when i.moved then nullif(i.ceiling, '')::xid8 else o.ceiling end,
		case when i.moved then nullif(i.upto, '')::pg_snapshot else o.page_snapshot end,
		case when i.moved then nullif(i.page, 0) else o.page end,
		o.delivered + i.delivered, o.failed + i.failed
	from latest o join input i using (partition)
	returning 1
)
select 1 / (count(*) = cardinality($2::int2[]))::int from new`

	// appliedSQL returns whether a lease holds, and the last applied settlement of its partition: $1 relay, $2 partitions and $3
	// tokens, of one lease.
	appliedSQL = `
select exists (` + holdingSQL + `), c.n, encode(coalesce(c.content, ''), 'hex')
from {cursors} c where c.relay = $1::text and c.partition = ($2::int2[])[1] order by c.n desc limit 1`

	// notHeldSQL returns those of keys $2 that relay $1 does not hold.
	notHeldSQL = `
select k.key from unnest($2::text[]) as k (key) where not exists (
	select from {held} h where h.relay = $1::text and h.key = k.key)`
)

// errNotNext: a lease does not hold, or the number of a settlement is not the next.
var errNotNext = errors.New("the lease does not hold, or the settlement is not the next")

// Settle implements store.Log. All settlements are applied in one transaction and one round trip: the leases locked
// meanwhile block processes that are to take them over, and this process may be paused between two round trips. So whatever must
// prevent the commit has to fail on the server, by a division by zero. If anything fails because of what a settlement says, each
// settlement is tried alone, so that one does not hinder the others.
func (s *Store) Settle(ctx context.Context, name string, settlements []store.Settlement) (store.Settled, error) {
	n, err := s.open(ctx)
	if err != nil || len(settlements) == 0 {
		return store.Settled{}, err
	}
	released, err := s.settle(ctx, name, n, settlements)
	if err == nil {
		return store.Settled{Released: released}, nil
	}
	if !refused(err) {
		s.endStalledSettlement(ctx, name)
		return store.Settled{}, translate("settle for relay "+name, err)
	}
	out := store.Settled{}
	for i := range settlements {
		if err := s.settleAlone(ctx, name, n, &settlements[i], &out); err != nil {
			return store.Settled{}, translate("settle for relay "+name, err)
		}
	}
	return out, nil
}

// refused reports whether nothing was applied because of what a settlement says. After other errors the outcome is unknown.
func refused(err error) bool {
	if errors.Is(err, errNotNext) || errors.Is(err, errNotInLog) || errors.Is(err, errUnreadable) {
		return true
	}
	c := code(err)
	switch {
	case c == "", strings.HasPrefix(c, "08"), strings.HasPrefix(c, "53"), strings.HasPrefix(c, "57"), strings.HasPrefix(c, "58"):
		return false // the connection, the server or its resources: it may pass
	case c == serializationFailure, c == deadlockDetected, c == lockNotAvailable, c == idleTooLong, c == transactionTooLong, c == readOnlyTransaction:
		return false // other transactions interfere
	}
	return true
}

// settleAlone applies one settlement, or records its outcome in out.
func (s *Store) settleAlone(ctx context.Context, name string, partitions int, st *store.Settlement, out *store.Settled) error {
	released, err := s.settle(ctx, name, partitions, []store.Settlement{*st})
	switch {
	case err == nil:
		out.Released = append(out.Released, released...)
	case errors.Is(err, errNotNext):
		return s.settledBefore(ctx, name, st, out)
	case refused(err):
		if out.Failed == nil {
			out.Failed = make(map[int]error)
		}
		out.Failed[st.Partition] = translate("settle for relay "+name, err)
	default:
		return err
	}
	return nil
}

// settledBefore checks whether a settlement was applied before, and if so gives the same result again; otherwise its lease is
// lost.
func (s *Store) settledBefore(ctx context.Context, name string, st *store.Settlement, out *store.Settled) error {
	var holds bool
	var number int64
	var content string
	partitions, tokens := leaseArgs([]store.LeaseRef{{Partition: st.Partition, Token: st.Token}})
	err := s.pool.QueryRow(ctx, s.sql.applied, name, partitions, tokens).Scan(&holds, &number, &content)
	digest := st.Digest()
	switch {
	case errors.Is(err, pgx.ErrNoRows), err == nil && (!holds || number != st.Number || content != hex.EncodeToString(digest[:])):
		out.Lost = append(out.Lost, st.Partition)
		return nil
	case err != nil || len(st.Release) == 0:
		return err
	}
	rows, err := s.pool.Query(ctx, s.sql.notHeld, name, st.Release)
	if err != nil {
		return err
	}
	released, err := pgx.CollectRows(rows, pgx.RowTo[string])
	out.Released = append(out.Released, released...)
	return err
}

// step is one statement of a settlement.
type step struct {
	sql  string
	args []any
	read func(results pgx.BatchResults) error // nil: there is no result to read
}

// settle applies settlements in one transaction and returns the keys that are no longer held.
func (s *Store) settle(ctx context.Context, name string, partitions int, settlements []store.Settlement) ([]string, error) {
	in, err := gather(name, settlements, partitions)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return retry(func() (released []string, err error) {
		steps := s.settleSteps(name, in, step{sql: s.sql.removed}, &released)
		results, err := implicit(ctx, s.pool, s.sql.settlePlan, func(b *pgx.Batch) { queueSteps(b, steps) })
		if err == nil {
			err = readSteps(results, steps)
		}
		return released, err
	})
}

// settleSteps returns the statements of settlements: the fence first, then the numbers, then the changes. removed is the step
// that removes messages.
func (s *Store) settleSteps(name string, in *settleInput, removed step, released *[]string) []step {
	steps := []step{
		{sql: s.sql.fence, args: in.moves.fenceArgs(name), read: unless(errNotNext)},
		{sql: s.sql.move, args: in.moves.args(name), read: unless(errNotNext)},
	}
	if u := in.unrouted; len(u.topics) > 0 {
		steps = append(steps, step{sql: s.sql.countUnrouted, args: []any{name, u.partitions, u.topics, u.counts}})
	}
	if in.onlyMoves() {
		return steps
	}
	steps = append(steps, s.messageSteps(name, in, removed)...)
	return append(steps, s.keySteps(name, in, released)...)
}

// runSteps sends all statements in one round trip and reads their results.
func runSteps(ctx context.Context, on batcher, steps []step) error {
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

// messageSteps park, dead-letter and remove messages, in this order.
func (s *Store) messageSteps(name string, in *settleInput, removed step) []step {
	var steps []step
	addStep := func(st step, items *items) {
		if items.len() > 0 {
			st.args = items.args(name)
			steps = append(steps, st)
		}
	}
	addStep(step{sql: s.sql.noneMissing, read: unless(fmt.Errorf("%w: of messages %d", errNotInLog, in.fromLog.seqs))}, &in.fromLog)
	addStep(step{sql: s.sql.parkFromLog}, &in.parkFromLog)
	addStep(step{sql: s.sql.parkAgain}, &in.parkAgain)
	addStep(step{sql: s.sql.deadFromParked}, &in.dead)
	addStep(step{sql: s.sql.deadFromLog}, &in.deadFromLog)
	addStep(removed, &in.removed)
	return steps
}

var (
	// errNotInLog: a message to park or dead-letter from the log is not there; it would be lost.
	errNotInLog = errors.New("a message is to be parked or dead-lettered and is not in the log")
	// errUnreadable: a settlement cannot be understood.
	errUnreadable = errors.New("the settlement cannot be read")
)

func (s *Store) keySteps(name string, in *settleInput, released *[]string) []step {
	if in.keys.len() == 0 {
		return nil
	}
	steps := []step{{sql: s.sql.lockHeld, args: in.keys.args(name)}}
	if in.held.len() > 0 {
		steps = append(steps, step{sql: s.sql.hold, args: in.held.args(name)})
	}
	if in.released.len() == 0 {
		return steps
	}
	args := in.released.args(name)
	return append(steps, step{sql: s.sql.releaseKeys, args: args, read: func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		*released, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}}, step{sql: s.sql.resumeKeys, args: args})
}

// oneText makes a text storable: UTF-8 without NUL, at most limit bytes. Causes and reasons come from any source.
func oneText(text string, limit int) string {
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(text, "")
}
