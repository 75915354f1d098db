package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

const (
	decisionColumns = `d.id, d.relay, d.partition::int4, d.key, d.seq, d.verb, d.message_id, d.decided_by, d.reason, d.state, d.outcome,
	d.count`

	// openDecisionsSQL: $1 relay, $2 partitions and $3 tokens of leases; only leases that hold count.
	openDecisionsSQL = `
select ` + decisionColumns + ` from {decisions} d
where d.relay = $1::text and d.state = 'open' and d.partition in (` + holdingSQL + `) order by d.recorded_at, d.id limit 100`

	// addDecisionSQL: $1 id, $2 relay, $3 partition, $4 key, $5 sequence, $6 verb, $7 message, $8 by, $9 reason.
	addDecisionSQL = `
insert into {decisions} (id, relay, partition, key, seq, verb, message_id, decided_by, reason)
values ($1::text, $2::text, $3::int2, $4::text, $5::int8, $6::text, $7::text, $8::text, $9::text) on conflict (id) do nothing`

	showDecisionSQL = `select ` + decisionColumns + ` from {decisions} d where d.id = $1::text`

	// endDecisionSQL: $1 id, $2 state, $3 outcome, $4 count.
	endDecisionSQL = `
update {decisions} set state = $2::text, outcome = $3::text, count = $4::int4, done_at = clock_timestamp() where id = $1::text`

	// purgeDecisionsSQL removes decisions done more than a day ago: $1 how many.
	purgeDecisionsSQL = `
delete from {decisions} where id in (
	select id from {decisions} where state <> 'open' and done_at < clock_timestamp() - interval '1 day' limit $1::int8)`
)

func scanDecision(row pgx.CollectableRow) (d store.Decision, err error) {
	return d, row.Scan(&d.ID, &d.Relay, &d.Partition, &d.Key, &d.Sequence, &d.Verb, &d.MessageID, &d.By, &d.Reason, &d.State,
		&d.Outcome, &d.Count)
}

// purgeDecisions removes decisions done more than a day ago, up to 1,000 at a time.
func (s *Store) purgeDecisions(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, s.names.expand(purgeDecisionsSQL), int64(1000))
	return translate("remove decisions that are done", err)
}

const (
	// keepPartitionsSQL keeps the number of partitions from changing, and runs before anything is looked up by partition. {leases}
	// is the first table that decisions use among those that Repartition locks.
	keepPartitionsSQL = `lock table {leases} in row share mode`

	// lockLeaseSQL blocks settlements of partitions: $1 relay, $2 partitions.
	lockLeaseSQL = `select 1 from {leases} where relay = $1::text and partition = any($2::int4[])
order by partition for update`

	// lockKeySQL: $1 relay, $2 key. Consumers park messages under this lock.
	lockKeySQL = `select from {held} where relay = $1::text and key = $2::text for update`

	// nextBlockingSQL makes the first queued message of a key its blocking message, unless the key waits for a decision about a
	// dead-lettered blocking message. $1 relay, $2 partition, $3 key.
	nextBlockingSQL = `
update {held} h set ` + newHeadSQL + `
from (` + firstWaitingSQL + ` and p.partition = $2::int4 and p.key = $3::text ` + firstOnlySQL + `) w
where h.relay = $1::text and h.key = $3::text and h.next_attempt_at is not null`

	// resumeKeySQL: $1 relay, $2 partition, $3 key.
	resumeKeySQL = `
update {held} h set next_attempt_at = clock_timestamp(), ` + newHeadSQL + `
from (select 1) as one left join lateral (` + firstWaitingSQL + ` and p.partition = $2::int4 and p.key = $3::text ` + firstOnlySQL + `) w
	on true
where h.relay = $1::text and h.key = $3::text`

	// The choices of parked messages: $1 relay, $2 partition, $3 key, $4 sequence.
	allOfRelaySQL = `p.relay = $1::text and $2::int4 >= 0 and $3::text = '' and $4::int8 = 0`
	ofKeySQL      = `p.relay = $1::text and p.partition = $2::int4 and p.key = $3::text and p.due_at is null
	and ($4::int8 = 0 or p.seq = $4::int8)`
	aloneSQL = `p.relay = $1::text and p.partition = $2::int4 and p.seq = $4::int8 and p.due_at is not null and $3::text = ''`

	// retryParkedSQL is followed by a choice.
	retryParkedSQL = `update {parked} p set due_at = clock_timestamp() where `

	// deadParkedSQL moves messages to the dead letters. It is formatted with a choice. $5 reason, $6 cause, $7 history entry, $8
	// state, $9 by, $10 resolution.
	deadParkedSQL = `
with gone as (
	delete from {parked} p where %s returning p.*
)
insert into {dead} (relay, partition, {message}, reason, cause, attempts, history, died_at, redrives, state, resolved_at,
	resolved_by, resolution)
select relay, partition, {message}, $5::text, $6::text, attempts,
	case when $7::text = '' then history else (case when jsonb_array_length(history) >= 20 then history - 0 else history end)
		|| jsonb_build_array(jsonb_build_object('attempt', 0, 'at', clock_timestamp(), 'cause', $7::text)) end,
	clock_timestamp(), redrives, $8::text, case when $8::text <> 'open' then clock_timestamp() end, $9::text, $10::text
from gone order by seq`

	// The open dead letters of relay $1 are discarded by $2 for reason $3; those of one message have partition $4 and sequence $5.
	discardOpenSQL = `
update {dead} set state = 'discarded', resolved_at = clock_timestamp(), resolved_by = $2::text, resolution = $3::text
where relay = $1::text and state = 'open'`
	discardMessageSQL = discardOpenSQL + ` and partition = $4::int4 and seq = $5::int8`
)

// CheckLease implements store.HeldWriter.
func (r records) CheckLease(ctx context.Context, name string, lease store.LeaseRef) error {
	partitions, tokens := leaseArgs([]store.LeaseRef{lease})
	err := r.exec(ctx, fenceSQL, name, partitions, tokens)
	if code(err) == divisionByZero {
		return store.ErrLeaseLost
	}
	return err
}

// AddDecision implements store.HeldWriter.
func (r records) AddDecision(ctx context.Context, d store.Decision) error {
	return r.exec(ctx, addDecisionSQL, d.ID, d.Relay, d.Partition, d.Key, d.Sequence, string(d.Verb), d.MessageID, d.By, d.Reason)
}

// LockDecision implements store.HeldWriter.
func (r records) LockDecision(ctx context.Context, id string) (store.Decision, error) {
	return r.decision(ctx, id, " for update")
}

// EndDecision implements store.HeldWriter.
func (r records) EndDecision(ctx context.Context, d store.Decision) error {
	return r.exec(ctx, endDecisionSQL, d.ID, string(d.State), d.Outcome, d.Count)
}

// LockHeld implements store.HeldWriter.
func (r records) LockHeld(ctx context.Context, name, key string) (store.HeldInfo, error) {
	if err := r.exec(ctx, lockKeySQL, name, key); err != nil {
		return store.HeldInfo{}, err
	}
	h, err := r.HeldKey(ctx, name, key)
	if err != nil {
		return h, err
	}
	if err := r.exec(ctx, nextBlockingSQL, name, h.Partition, key); err != nil {
		return h, err
	}
	return r.HeldKey(ctx, name, key)
}

// ResumeHeld implements store.HeldWriter.
func (r records) ResumeHeld(ctx context.Context, h store.HeldInfo) error {
	return r.exec(ctx, resumeKeySQL, h.Relay, h.Partition, h.Key)
}

// chosenParked returns the condition of a choice.
func chosenParked(c store.ParkedChoice) (condition string, args []any) {
	switch {
	case c.All:
		return allOfRelaySQL, []any{c.Relay, 0, "", int64(0)}
	case c.Key != "":
		condition = ofKeySQL
	default:
		condition = aloneSQL
	}
	return condition, []any{c.Relay, c.Partition, c.Key, c.Sequence}
}

// RetryParked implements store.HeldWriter.
func (r records) RetryParked(ctx context.Context, c store.ParkedChoice) (int, error) {
	condition, args := chosenParked(c)
	return r.count(ctx, retryParkedSQL+condition, args...)
}

// DeadLetterParked implements store.HeldWriter.
func (r records) DeadLetterParked(ctx context.Context, c store.ParkedChoice, d store.MovedToDead) (int, error) {
	condition, args := chosenParked(c)
	return r.count(ctx, fmt.Sprintf(deadParkedSQL, condition),
		append(args, d.Reason, d.Cause, d.Entry, string(d.State), d.By, d.Resolution)...)
}

// DiscardOpen implements store.HeldWriter.
func (r records) DiscardOpen(ctx context.Context, c store.ParkedChoice, by, resolution string) (int, error) {
	if c.All {
		return r.count(ctx, discardOpenSQL, c.Relay, by, resolution)
	}
	return r.count(ctx, discardMessageSQL, c.Relay, by, resolution, c.Partition, c.Sequence)
}
