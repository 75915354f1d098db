package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Enroll implements store.Parker. It registers the name before it checks the kind, so the check also sees a relay that began
// under this name at the same time.
func (s *Store) Enroll(ctx context.Context, consumer string) error {
	n, err := s.open(ctx)
	if err != nil {
		return err
	}
	err = s.runQueries(ctx,
		query{sql: s.sql.begin, args: []any{consumer, n, consumerPosition, seesAll, string(store.KindConsumer)}},
		query{sql: s.names.expand(kindOfSQL), args: []any{consumer}, row: func(scan func(...any) error) error {
			var kind store.Kind
			if err := scan(&kind); err != nil {
				return err
			}
			return kind.Check(store.KindConsumer)
		}})
	return translate(fmt.Sprintf("enroll consumer %q", consumer), err)
}

const (
	// holdKeysSQL creates held keys or locks the existing ones, in the order of the array, which is sorted. It waits for a key that
	// is being released and recreates it: when the statement ends, each key has a row and the row is locked. Existing rows are not
	// changed. New ones have no blocking message (seq 0) until it has its sequence, and are returned. $1 consumer, arrays: $2 key, $3 partition, $4
	// reason, $5 cause, $6 attempts, $7 wait in microseconds (negative: until an operator decides).
	holdKeysSQL = `
insert into {held} as h (relay, key, partition, seq, reason, cause, attempts, since, next_attempt_at)
select $1::text, k.key, k.partition, 0, k.reason, k.cause, k.attempts, clock_timestamp(),
	case when k.after >= 0 then clock_timestamp() + k.after::float8 * interval '1 microsecond' end
from unnest($2::text::text[], $3::text::int2[], $4::text::text[], $5::text::text[], $6::text::int4[], $7::text::int8[])
	as k (key, partition, reason, cause, attempts, after)
on conflict (relay, key) do update set key = excluded.key where false
returning key`

	// failedRowsSQL returns messages with the sequences that they get: $1 to $18 are those of textArraysSQL, then $19 consumer and
	// arrays: $20 reason, $21 cause, $22 attempts, $23 history, $24 wait in microseconds. Rows come out of unnest, and get their
	// sequences, in the order of the arrays. The statement runs after holdKeysSQL, so the sequences of a key rise in the order in
	// which its lock was granted.
	failedRowsSQL = `
select $19::text as relay, partition, nextval('{aside_seq}') as seq, id, topic, key, type, source, subject, tenant, message_time,
	schema_version, aggregate_version, content_type, headers::jsonb, correlation_id, causation_id, payload,
	case when deliver_after > 0 then clock_timestamp() + deliver_after::float8 * interval '1 microsecond' else deliver_at end,
	clock_timestamp(), reason, attempts, (
		select coalesce(jsonb_agg(jsonb_build_object('attempt', e.entry -> 'attempt'::text, 'cause', e.entry -> 'cause'::text, 'at',
			clock_timestamp() - (e.entry ->> 'ago'::text)::float8 * interval '1 microsecond') order by e.ord), '[]')
		from jsonb_array_elements(history::jsonb) with ordinality as e (entry, ord)), clock_timestamp()`
	failedArraysSQL = `
from unnest(` + textArraysSQL + `, $20::text::text[], $21::text::text[], $22::text::int4[], $23::text::text[], $24::text::int8[])
	as m (partition, ` + plainSQL + `, ` + restSQL + `, deliver_at, deliver_after, reason, cause, attempts, history, after)`

	// headSQL sets the blocking message of a key that was just held.
	headSQL = `
update {held} h set seq = f.seq from (select key, min(seq) as seq from put where key <> '' group by key) as f
where h.relay = $19::text and h.key = f.key and h.seq = 0`

	parkFailedSQL = `
with put as (
insert into {parked} (relay, partition, {message}, reason, attempts, history, parked_at, due_at)` + failedRowsSQL + `,
	case when key = '' then clock_timestamp() + after::float8 * interval '1 microsecond' end` + failedArraysSQL + `
returning key, seq
)` + headSQL

	// discardedSQL: a negative wait says that the consumer has discarded the message.
	discardedSQL = `case when after < 0 then 'discarded' else 'open' end, case when after < 0 then $19::text else '' end,
	case when after < 0 then reason else '' end, case when after < 0 then clock_timestamp() end`

	insertDeadSQL = `
insert into {dead} (relay, partition, {message}, reason, attempts, history, died_at, cause, redrives, state, resolved_by, resolution,
	resolved_at)` + failedRowsSQL + `, cause, 0, ` + discardedSQL + failedArraysSQL
	deadFailedSQL = insertDeadSQL
	// deadHoldingSQL is for dead letters that hold their keys.
	deadHoldingSQL = `
with put as (` + insertDeadSQL + `
returning key, seq
)` + headSQL
)

// toPark is a message that a consumer parks or dead-letters.
type toPark struct {
	msg           *postrider.Message
	sql           string // the statement that writes it
	reason, cause string
	attempts      int
	history       string
	after         int64 // microseconds
	// hold says how to hold its key; nil: not at all.
	hold *hold
}

// hold is how a key is held.
type hold struct {
	reason, cause string
	after         int64 // microseconds; negative: until an operator decides
}

func (s *Store) park(ctx context.Context, c caller, consumer string, failed []store.ParkRequest) error {
	list := make([]toPark, len(failed))
	for i := range failed {
		var err error
		if list[i], err = s.toPark(&failed[i]); err != nil {
			return fmt.Errorf("park message %s: %w", failed[i].Message.ID, err)
		}
	}
	return translate("park messages", storable(s.writeFailed(ctx, c, consumer, list)))
}

func (s *Store) toPark(p *store.ParkRequest) (a toPark, err error) {
	after := max(p.After.Microseconds(), 0)
	a = toPark{msg: p.Message, sql: s.sql.parkFailed, reason: string(p.Reason), attempts: len(p.Attempts), after: after}
	cause, h := p.Cause, &hold{reason: string(p.Reason), cause: p.Why(), after: after}
	if d := p.Dead; d != nil {
		a.sql, a.reason, a.cause, a.after, cause = s.sql.deadFailed, d.Reason, p.Cause, 0, ""
		if d.Discarded {
			a.after = -1
		}
		h.reason, h.after = string(store.ParkDead), -1
		if p.HoldsKey() {
			a.sql = s.sql.deadHolding
		}
	}
	if p.HoldsKey() {
		a.hold = h
	}
	a.history, err = history(p.Attempts, cause)
	return a, err
}

// keptAttempts is how many entries of a history are kept.
const keptAttempts = 20

// history encodes the history of a parked or dead-lettered message as JSON for failedRowsSQL.
func history(attempts []store.FailedAttempt, cause string) (string, error) {
	type entry struct {
		Attempt int    `json:"attempt"`
		Ago     int64  `json:"ago"` // microseconds
		Cause   string `json:"cause"`
	}
	first := max(0, len(attempts)-keptAttempts)
	if cause != "" && len(attempts) >= keptAttempts {
		first++
	}
	entries := []entry{}
	for i, a := range attempts[first:] {
		entries = append(entries, entry{Attempt: first + i + 1, Ago: a.Ago.Microseconds(), Cause: oneText(a.Cause, maxCause)})
	}
	if cause != "" {
		entries = append(entries, entry{Cause: oneText(cause, maxCause)})
	}
	text, err := json.Marshal(entries)
	return string(text), err
}

// inRuns puts messages of one statement next to each other, as far as the order of each key allows.
func inRuns(list []toPark) []toPark {
	out := make([]toPark, 0, len(list))
	for left := list; len(left) > 0; {
		var later []toPark
		waits := make(map[string]bool)
		for _, a := range left {
			if key := a.msg.Key; a.sql == left[0].sql && !waits[key] {
				out = append(out, a)
			} else {
				later, waits[key] = append(later, a), key != ""
			}
		}
		left = later
	}
	return out
}

// writeFailed locks the keys, then writes the messages in the order of each key, in one round trip for up to 1,000 messages and 4 MiB. Finally it
// checks that the number of partitions is still the one it used, since a consumer may have been paused while that was changed; the rows
// already written keep it from changing again. If the number differs, the transaction must be rolled back and run again.
func (s *Store) writeFailed(ctx context.Context, c caller, consumer string, list []toPark) error {
	partitions, err := c.partitions(ctx, s)
	if err != nil {
		return err
	}
	list = inRuns(list)
	keys := newHolders(list)
	var queries []query
	if len(keys.sorted) > 0 {
		queries = append(queries, s.holdKeys(consumer, keys, partitions))
	}
	for left := list; len(left) > 0; {
		same := slices.IndexFunc(left, func(a toPark) bool { return a.sql != left[0].sql })
		if same < 0 {
			same = len(left)
		}
		if queries, err = appendFailed(queries, consumer, left[:same], partitions); err != nil {
			return err
		}
		left = left[same:]
	}
	var present int
	queries = append(queries, query{sql: s.names.expand(presentPartitionsSQL),
		row: func(scan func(...any) error) error { return scan(&present) }})
	if err := s.callLocking(ctx, c, consumer, queries...); err != nil {
		return err
	}
	if present != partitions {
		s.publishing.Store(int32(present))
		return fmt.Errorf("%w; the transaction is run again with %d partitions", store.ErrRepartitioned, present)
	}
	return keys.check(s.sql.deadHolding)
}

// appendFailed appends the statements that write messages with the same one.
func appendFailed(queries []query, consumer string, list []toPark, partitions int) ([]query, error) {
	msgs := make([]*postrider.Message, len(list))
	for i, a := range list {
		msgs[i] = a.msg
	}
	for chunk := range chunks(msgs) {
		columns, err := textColumns(chunk, partitions)
		if err != nil {
			return nil, err
		}
		queries = append(queries, query{sql: list[0].sql, args: append(columns, failedArgs(consumer, list[:len(chunk)])...)})
		list = list[len(chunk):]
	}
	return queries, nil
}

// failedArgs returns the parameters of failedRowsSQL from $19 on.
func failedArgs(consumer string, list []toPark) []any {
	var reasons, causes, histories []string
	var attempts, afters []int64
	for _, a := range list {
		reasons, causes = append(reasons, oneText(a.reason, maxCause)), append(causes, oneText(a.cause, maxCause))
		attempts, afters = append(attempts, int64(a.attempts)), append(afters, a.after)
		histories = append(histories, a.history)
	}
	return []any{consumer, array(reasons, quoted), array(causes, quoted), array(attempts, number), array(histories, quoted),
		array(afters, number)}
}

// holders are the first messages of each key that hold it, which decide how.
type holders struct {
	first  map[string]int // their indexes
	sorted []string       // the keys
	held   []string       // those that were not held before
	list   []toPark
}

func newHolders(list []toPark) *holders {
	h := &holders{first: make(map[string]int), list: list}
	for i, a := range list {
		if _, again := h.first[a.msg.Key]; a.hold != nil && !again {
			h.first[a.msg.Key] = i
			h.sorted = append(h.sorted, a.msg.Key)
		}
	}
	h.sorted = distinct(h.sorted)
	return h
}

// check returns an error if a dead letter, written by a statement, was to hold a key that is held already. Errors: store.ErrKeyHeld.
func (h *holders) check(deadHolding string) error {
	for i, a := range h.list {
		if a.sql == deadHolding && (h.first[a.msg.Key] != i || !slices.Contains(h.held, a.msg.Key)) {
			return fmt.Errorf("dead-letter message %s: %w", a.msg.ID, store.ErrKeyHeld)
		}
	}
	return nil
}

// holdKeys holds or locks keys.
func (s *Store) holdKeys(consumer string, h *holders, partitions int) query {
	var parts, attempts, afters []int64
	var reasons, causes []string
	for _, key := range h.sorted {
		a := h.list[h.first[key]]
		parts, attempts = append(parts, int64(postrider.PartitionOf(key, "", partitions))), append(attempts, int64(a.attempts))
		reasons, causes = append(reasons, a.hold.reason), append(causes, oneText(a.hold.cause, maxCause))
		afters = append(afters, a.hold.after)
	}
	return query{sql: s.sql.holdKeys, row: text(&h.held), args: []any{consumer, array(h.sorted, quoted), array(parts, number), array(reasons, quoted),
		array(causes, quoted), array(attempts, number), array(afters, number)}}
}

// takeSQL waits for another open transaction that takes or settles the message. It also compares the ID, since after a crash of
// the server the sequence may belong to another message: $1 consumer, $2 partition, $3 sequence, $4 the message's ID.
const takeSQL = `
delete from {parked} where relay = $1::text and partition = $2::int4 and seq = $3::int8 and id = $4::text
returning (extract(epoch from clock_timestamp() - parked_at) operator(pg_catalog.*) 1000000)::int8`

func (s *Store) take(ctx context.Context, c caller, consumer string, m *postrider.Message) (store.TakeResult, error) {
	partitions, err := c.partitions(ctx, s)
	if err != nil {
		return store.TakeResult{}, err
	}
	var taken store.TakeResult
	args := []any{consumer, int64(postrider.PartitionOf(m.Key, m.ID, partitions)), m.Sequence, m.ID}
	err = s.callLocking(ctx, c, consumer, query{sql: s.sql.take, args: args, row: func(scan func(...any) error) error {
		var micros int64
		err := scan(&micros)
		taken = store.TakeResult{Found: true, ParkedFor: time.Duration(micros) * time.Microsecond}
		return err
	}})
	return taken, translate("take a parked message", err)
}
