package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// Adoption reads the log twice, in steps of a bounded number of messages. Each step is a transaction that also saves how far it
// came, so that any process continues where another one ended. First, the log is checked: for each cursor, which is the first
// message that may not have been delivered. Its transaction ids can still be compared with each other then. Once all cursors are
// back before those messages, the ids that could be taken for those of this cluster are replaced. A program of an earlier release,
// which does all of that at once, may take over at any moment.
const (
	// latestCursorsSQL returns the cursors of relays.
	latestCursorsSQL = `
	select c.* from {relay_partitions} g cross join lateral (
		select * from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
	where ` + readsSQL

	// nextNumberSQL returns the first number after $1 that is in the log, null if there is none.
	nextNumberSQL = `
select min(l.seq) from generate_series(0, {partitions}() - 1) as p cross join lateral (
	select seq from {log} where partition = p and seq > $1::int8 order by seq limit 1) as l`

	// checkStepSQL reads the rows with numbers above $1, up to $2. The first row of the result has how many there are, and whether a
	// number exists twice. The others have, for each cursor that is past some of them, the first one whose transaction it has not
	// seen, null if there is none, and whether one was written after the cursor was settled there: then the sequence was set back,
	// and publishing had raised it past the log before that was checked.
	checkStepSQL = `
with seen as materialized (
	select l.* from generate_series(0, {partitions}() - 1) as p cross join lateral (
		select partition, seq, xid, created_at from {log} where partition = p and seq > $1::int8 and seq <= $2::int8) as l
), latest as materialized (` + latestCursorsSQL + `
)
select '' as relay, -1 as partition, count(*) as n, count(*) > count(distinct seq) as twice from seen
union all
select c.relay, c.partition::int4, min(l.seq) filter (where not pg_visible_in_snapshot(l.xid, c.snapshot)), bool_or(l.created_at > c.settled_at)
from latest c join seen l on l.partition = c.partition and l.seq <= c.position
group by c.relay, c.partition`

	// advanceParkedSQL raises the sequence of messages that consumers park or dead-letter above every existing row.
	advanceParkedSQL = `
select setval('{aside_seq}', greatest((select last_value from {aside_seq}), (select max(seq) from {parked}),
	(select max(seq) from {dead}), 1))`

	// rewindSQL moves every cursor to a position, %s, where all transactions have been seen. %s joins what it takes from others.
	rewindSQL = `
with latest as materialized (` + latestCursorsSQL + `
), old as (
	delete from {cursors} c using latest o where c.relay = o.relay and c.partition = o.partition and c.n = o.n
)
insert into {cursors} (relay, partition, n, position, snapshot, ceiling, delivered, failed)
select c.relay, c.partition, c.n + 1, %s, pg_current_snapshot(), pg_current_xact_id(), c.delivered, c.failed
from latest c %s`

	// horizonSQL returns the first transaction id that may not be over, and the end of the log.
	horizonSQL = `select pg_snapshot_xmin(pg_current_snapshot())::text, (` + highestSQL + `)`

	// renumberStepSQL gives a new number to rows above $1, up to $2, whose number an older row has.
	renumberStepSQL = `
update {log} l set seq = default, xid = '2'
from (select seq, partition, row_number() over (partition by seq order by created_at, partition) as copy
	from generate_series(0, {partitions}() - 1) as p cross join lateral (
		select seq, partition, created_at from {log} where partition = p and seq > $1::int8 and seq <= $2::int8) as d) as d
where l.partition = d.partition and l.seq = d.seq and d.copy > 1`

	// renewStepSQL replaces the ids from $3 on of rows with numbers above $1, up to $2, by one that is over: 2 is below every id that
	// is ever assigned.
	renewStepSQL = `
update {log} l set xid = '2' from generate_series(0, {partitions}() - 1) as p
where l.partition = p and l.seq > $1::int8 and l.seq <= $2::int8 and l.xid >= $3::text::xid8`

	takeBackSQL = `update {leases} set token = ''`

	restoredSQL = `update {meta} set restored_at = clock_timestamp(), restored_from = system_identifier,
	system_identifier = (select system_identifier from pg_control_system())`

	// adoptPlanSQL limits how long a process that is paused in a step keeps others from continuing.
	adoptPlanSQL = planSQL + `, pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', true)`
)

var (
	// rewindAllSQL moves every cursor to the beginning of the log.
	rewindAllSQL = fmt.Sprintf(rewindSQL, "0", "")
	// rewindToSQL moves cursors to before a message: $1 relays, $2 partitions, $3 numbers. The others stay where they are.
	rewindToSQL = fmt.Sprintf(rewindSQL, "least(c.position, coalesce(u.seq - 1, c.position))",
		"left join unnest($1::text[], $2::int4[], $3::int8[]) as u (relay, partition, seq) on u.relay = c.relay and u.partition = c.partition")
)

// adoptionConfig is how adoption proceeds; tests use smaller steps.
type adoptionConfig struct {
	numbers  int64 // that a step reads at most
	logEvery time.Duration
}

var defaultAdoption = adoptionConfig{numbers: 20_000, logEvery: 10 * time.Second}

// phase is what adoption does with the messages it reads.
type phase string

const (
	checking phase = "check"
	renewing phase = "renew"
)

// kindAdoption is the kind of the document with the progress, which has no ID.
const kindAdoption = "adoption"

// adoption is the progress of an adoption.
type adoption struct {
	// From and To are the identifiers of the clusters.
	From  int64 `json:"from,string"`
	To    int64 `json:"to,string"`
	Phase phase `json:"phase"`
	// At is the number up to which the phase has read the log, End the last one that it reads, and Rows how many messages it has read.
	At   int64 `json:"at,string"`
	End  int64 `json:"end,string"`
	Rows int64 `json:"rows"`
	// All says that the sequence was set back: every message of the log is delivered again.
	All bool `json:"all,omitempty"`
	// Undelivered has, by relay and partition, the first message that may not have been delivered.
	Undelivered map[string]map[int]int64 `json:"undelivered,omitempty"`
	// Xmin is the first transaction id to replace.
	Xmin string `json:"xmin,omitempty"`
}

// String says how far it is.
func (p adoption) String() string {
	switch p.Phase {
	case checking:
		return fmt.Sprintf("%d messages checked", p.Rows)
	case renewing:
		return fmt.Sprintf("all messages checked, transaction IDs of %d renewed", p.Rows)
	}
	return "beginning"
}

// inAdoption runs a step in a transaction that no other process has one of at the same time, unless the outbox is adopted.
func (s *Store) inAdoption(ctx context.Context, step func(tx pgx.Tx, from, to int64) error) error {
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, adoptPlanSQL); err != nil {
				return err
			}
			from, to, err := s.identity(ctx, tx, " for update of m")
			if err != nil || from == to {
				return err
			}
			return step(tx, from, to)
		})
	})
	return err
}

func (s *Store) readAdoption(ctx context.Context, tx pgx.Tx) (p adoption, err error) {
	var body []byte
	err = tx.QueryRow(ctx, s.names.expand(`select body from {records} where kind = $1::text and id = ''`), kindAdoption).Scan(&body)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	return p, err
}

func (s *Store) saveAdoption(ctx context.Context, tx pgx.Tx, p adoption) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, s.names.expand(`insert into {records} (kind, id, body) values ($1::text, '', $2::bytea)
		on conflict (kind, id) do update set rev = {records}.rev + 1, at = clock_timestamp(), body = excluded.body`), kindAdoption, body)
	return err
}

// adoptOnce does the next step. done: the outbox is adopted.
func (s *Store) adoptOnce(ctx context.Context) (p adoption, done bool, err error) {
	done = true
	err = s.inAdoption(ctx, func(tx pgx.Tx, from, to int64) error {
		if p, err = s.readAdoption(ctx, tx); err != nil {
			return err
		}
		if p.From != from || p.To != to {
			return errors.New("the record of its progress is gone; it begins again")
		}
		a := adoptStep{Store: s, tx: tx, adoption: &p}
		if done, err = a.run(ctx); err != nil || done {
			return err
		}
		return s.saveAdoption(ctx, tx, p)
	})
	return p, done && err == nil, err
}

// adoptStep is one step of an adoption.
type adoptStep struct {
	*Store
	tx pgx.Tx
	*adoption
}

func (a adoptStep) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	tag, err := a.tx.Exec(ctx, a.names.expand(sql), args...)
	return tag.RowsAffected(), err
}

// run does one step. done: there is nothing left.
func (a adoptStep) run(ctx context.Context) (done bool, err error) {
	to, more, err := a.next(ctx)
	switch {
	case err != nil:
		return false, err
	case a.Phase == checking && (a.All || !more):
		return false, a.rewind(ctx)
	case a.Phase == checking:
		return false, a.check(ctx, to)
	case more:
		return false, a.renew(ctx, to)
	}
	return true, a.finish(ctx)
}

// next returns up to which number the step reads, and moves At over numbers that no row has.
func (a adoptStep) next(ctx context.Context) (to int64, more bool, err error) {
	var first *int64
	if err := a.tx.QueryRow(ctx, a.names.expand(nextNumberSQL), a.At).Scan(&first); err != nil {
		return 0, false, err
	}
	if first == nil || *first > a.End {
		return 0, false, nil
	}
	a.At = *first - 1
	return min(a.At+a.config.adoption.numbers, a.End), true, nil
}

// check finds which messages up to a number may not have been delivered.
func (a adoptStep) check(ctx context.Context, to int64) error {
	rows, err := a.tx.Query(ctx, a.names.expand(checkStepSQL), a.At, to)
	if err != nil {
		return err
	}
	var relay string
	var partition int
	var n *int64
	var back bool
	_, err = pgx.ForEachRow(rows, []any{&relay, &partition, &n, &back}, func() error {
		a.All = a.All || back
		switch {
		case n == nil:
		case partition < 0:
			a.Rows += *n
		default:
			a.undelivered(relay, partition, *n)
		}
		return nil
	})
	a.At = to
	return err
}

// startPositions notes that nothing behind the present cursors counts as delivered: relays whose role cannot see in which cluster they are
// go on while the log is checked, and what they read in the present cluster is not checked.
func (s *Store) startPositions(ctx context.Context, tx pgx.Tx, p *adoption) error {
	rows, err := tx.Query(ctx, s.names.expand("select relay, partition::int4, position from ("+latestCursorsSQL+") as c"))
	if err != nil {
		return err
	}
	var relay string
	var partition int
	var position int64
	_, err = pgx.ForEachRow(rows, []any{&relay, &partition, &position}, func() error {
		p.undelivered(relay, partition, position+1)
		return nil
	})
	return err
}

// undelivered notes a message that may not have been delivered.
func (p *adoption) undelivered(relay string, partition int, seq int64) {
	if p.Undelivered == nil {
		p.Undelivered = make(map[string]map[int]int64)
	}
	if p.Undelivered[relay] == nil {
		p.Undelivered[relay] = make(map[int]int64)
	}
	if first, known := p.Undelivered[relay][partition]; !known || seq < first {
		p.Undelivered[relay][partition] = seq
	}
}

// rewind revokes the leases and moves the cursors back.
func (a adoptStep) rewind(ctx context.Context) error {
	if _, err := a.exec(ctx, takeBackSQL); err != nil {
		return err
	}
	if _, err := a.exec(ctx, advanceParkedSQL); err != nil {
		return err
	}
	if err := a.tx.QueryRow(ctx, a.names.expand(horizonSQL)).Scan(&a.Xmin, &a.End); err != nil {
		return err
	}
	var err error
	if a.All {
		_, err = a.exec(ctx, rewindAllSQL)
	} else {
		var relays []string
		var partitions []int32
		var numbers []int64
		for _, relay := range slices.Sorted(maps.Keys(a.Undelivered)) {
			for partition, seq := range a.Undelivered[relay] {
				relays, partitions, numbers = append(relays, relay), append(partitions, int32(partition)), append(numbers, seq)
			}
		}
		_, err = a.exec(ctx, rewindToSQL, relays, partitions, numbers)
	}
	a.Phase, a.At, a.Rows, a.Undelivered = renewing, 0, 0, nil
	return err
}

// renew replaces transaction ids of messages up to a number.
func (a adoptStep) renew(ctx context.Context, to int64) error {
	if a.All {
		if _, err := a.exec(ctx, renumberStepSQL, a.At, to); err != nil {
			return err
		}
	}
	n, err := a.exec(ctx, renewStepSQL, a.At, to, a.Xmin)
	a.At, a.Rows = to, a.Rows+n
	return err
}

// finish records that the outbox belongs to this cluster.
func (a adoptStep) finish(ctx context.Context) error {
	if _, err := a.exec(ctx, restoredSQL); err != nil {
		return err
	}
	_, err := a.exec(ctx, inTable(removeRecordSQL, store.WorkRecords), kindAdoption, "")
	return err
}
