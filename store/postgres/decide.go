package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

const (
	decisionColumns = `d.id, d.relay, d.partition::int4, d.key, d.verb, d.message_id, d.decided_by, d.reason, d.state, d.outcome, d.count`

	// openDecisionsSQL: $1 relay, $2 partitions and $3 tokens of leases; only leases that hold count.
	openDecisionsSQL = `
select ` + decisionColumns + ` from {decisions} d
where d.relay = $1::text and d.state = 'open' and d.partition in (` + holdingSQL + `) order by d.recorded_at, d.id limit 100`

	// recordDecisionSQL: $1 id, $2 relay, $3 partition, $4 key, $5 verb, $6 message, $7 by, $8 reason.
	recordDecisionSQL = `
insert into {decisions} (id, relay, partition, key, verb, message_id, decided_by, reason)
select $1::text, $2::text, h.partition, $4::text, $5::text, $6::text, $7::text, $8::text
from {held} h where h.relay = $2::text and h.key = $4::text and $3::int4 >= 0
on conflict (id) do nothing`

	showDecisionSQL = `select ` + decisionColumns + ` from {decisions} d where d.id = $1::text`

	// blockingSQL returns the ID of a message by its sequence, parked or dead-lettered: $1 relay, $2 partition, $3 sequence.
	blockingSQL = `
(select id from {parked} where relay = $1::text and partition = $2::int4 and seq = $3::int8)
union all
(select id from {dead} where relay = $1::text and partition = $2::int4 and seq = $3::int8 order by number desc limit 1) limit 1`

	// endDecisionSQL: $1 id, $2 state, $3 outcome, $4 count.
	endDecisionSQL = `
update {decisions} set state = $2::text, outcome = $3::text, count = $4::int4, done_at = clock_timestamp() where id = $1::text`

	// purgeDecisionsSQL removes decisions done more than a day ago: $1 how many.
	purgeDecisionsSQL = `
delete from {decisions} where id in (
	select id from {decisions} where state <> 'open' and done_at < clock_timestamp() - interval '1 day' limit $1::int8)`

	// findParkedSQL: $1 relay, $2 message.
	findParkedSQL = `select reason, attempts, parked_at, due_at, history, {message} from {parked}
where id = $2::text and relay = $1::text order by seq limit 100`
)

func scanDecision(row pgx.CollectableRow) (d store.Decision, err error) {
	return d, row.Scan(&d.ID, &d.Relay, &d.Partition, &d.Key, &d.Verb, &d.MessageID, &d.By, &d.Reason, &d.State, &d.Outcome, &d.Count)
}

// purgeDecisions removes decisions done more than a day ago, up to 1,000 at a time.
func (s *Store) purgeDecisions(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, s.names.expand(purgeDecisionsSQL), int64(1000))
	return translate("remove decisions that are done", err)
}

// RecordDecision implements store.HeldKeys.
func (s *Store) RecordDecision(ctx context.Context, d store.Decision) error {
	n, err := s.open(ctx)
	if err != nil {
		return err
	}
	tag, err := s.pool.Exec(ctx, s.names.expand(recordDecisionSQL), d.ID, d.Relay, postrider.PartitionOf(d.Key, "", n), d.Key,
		string(d.Verb), d.MessageID, oneText(d.By, maxCause), oneText(d.Reason, maxCause))
	switch {
	case err != nil:
		return translate("record a decision", err)
	case tag.RowsAffected() > 0:
		s.Wake()
		return nil
	}
	if _, err := s.ShowDecision(ctx, d.ID); !errors.Is(err, store.ErrNoDecision) {
		return err // already recorded
	}
	return fmt.Errorf("%w: key %q of relay %q", store.ErrNotHeld, d.Key, d.Relay)
}

// ShowDecision implements store.HeldKeys.
func (s *Store) ShowDecision(ctx context.Context, id string) (store.Decision, error) {
	if _, err := s.open(ctx); err != nil {
		return store.Decision{}, err
	}
	rows, err := s.pool.Query(ctx, s.names.expand(showDecisionSQL), id)
	if err != nil {
		return store.Decision{}, translate("show a decision", err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, scanDecision)
	if errors.Is(err, pgx.ErrNoRows) {
		return d, fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
	}
	return d, translate("show a decision", err)
}

// FindParked implements store.HeldKeys.
func (s *Store) FindParked(ctx context.Context, name, id string) (found []store.ParkedInfo, err error) {
	if _, err := s.open(ctx); err != nil {
		return nil, err
	}
	err = s.read(ctx, s.names.expand(findParkedSQL), []any{name, id}, func(rows pgx.Rows) error {
		for d := newDecoder(rows); d.next(); {
			p, err := decodeParked(d)
			if err != nil {
				return err
			}
			found = append(found, p)
		}
		return rows.Err()
	})
	return found, translate("find a parked message", err)
}

// Decide implements store.Log.
func (s *Store) Decide(ctx context.Context, name string, lease store.LeaseRef, id string) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	partitions, tokens := leaseArgs([]store.LeaseRef{lease})
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, s.decision(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, s.names.expand(keepPartitionsSQL)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, s.sql.fence, name, partitions, tokens); code(err) == divisionByZero {
				return store.ErrLeaseLost
			} else if err != nil {
				return err
			}
			return s.decideIn(ctx, tx, id)
		})
	})
	return translate("apply a decision", err)
}

// decideIn applies a decision in a transaction, unless it was already applied.
func (s *Store) decideIn(ctx context.Context, tx pgx.Tx, id string) error {
	rows, err := tx.Query(ctx, s.names.expand(showDecisionSQL)+" for update", id)
	if err != nil {
		return err
	}
	d, err := pgx.CollectExactlyOneRow(rows, scanDecision)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
	case err != nil || d.State != store.DecisionOpen:
		return err
	}
	refused, err := s.apply(ctx, tx, &d)
	if err != nil {
		return err
	}
	d.State = store.DecisionApplied
	if refused != "" {
		d.State = store.DecisionRefused
	}
	_, err = tx.Exec(ctx, s.names.expand(endDecisionSQL), id, string(d.State), refused, d.Count)
	return err
}

// apply carries out a decision, or returns the reason for refusing it.
func (s *Store) apply(ctx context.Context, tx pgx.Tx, d *store.Decision) (refused string, err error) {
	if _, err := tx.Exec(ctx, s.names.expand(lockKeySQL), d.Relay, d.Key); err != nil {
		return "", err
	}
	h, err := s.showHeld(ctx, tx, d.Relay, d.Key)
	if errors.Is(err, store.ErrNotHeld) {
		return store.ErrNotHeld.Error(), nil
	}
	if err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, s.names.expand(findHeadSQL), d.Relay, h.Partition, d.Key); err != nil {
		return "", err
	}
	if h, err = s.showHeld(ctx, tx, d.Relay, d.Key); err != nil {
		return "", err
	}
	undecided, blocking := h.NextAttempt.IsZero(), ""
	err = tx.QueryRow(ctx, s.names.expand(blockingSQL), d.Relay, h.Partition, h.Sequence).Scan(&blocking)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", err
	}
	if refused := d.Refused(blocking, undecided); refused != "" {
		return refused, nil
	}
	if d.Count, err = s.carryOut(ctx, tx, d, h, undecided); err != nil {
		return "", err
	}
	_, err = tx.Exec(ctx, s.names.expand(letKeyGoSQL), d.Relay, h.Partition, d.Key)
	return "", err
}

// lockKeySQL: $1 relay, $2 key. Consumers park messages under this lock.
const lockKeySQL = `select from {held} where relay = $1::text and key = $2::text for update`

// carryOut moves messages to the dead letters and returns how many.
func (s *Store) carryOut(ctx context.Context, tx pgx.Tx, d *store.Decision, h store.HeldInfo, undecided bool) (int, error) {
	var args []any
	sql := giveUpSQL
	switch {
	case d.Verb == store.VerbRetry:
		return 0, nil
	case d.Verb == store.VerbSkip && undecided:
		sql, args = discardLatestSQL, []any{d.Relay, h.Sequence, d.By, d.Reason, h.Partition}
	case d.Verb == store.VerbSkip:
		args = []any{d.Relay, h.Partition, d.Key, h.Sequence, false, "skipped", h.Cause, h.Attempts, "", "discarded", d.By, d.Reason}
	default:
		args = []any{d.Relay, h.Partition, d.Key, h.Sequence, d.Verb == store.VerbDeadAll, d.Reason, h.Cause, -1,
			"moved to the dead letters by " + d.By, "open", "", ""}
	}
	tag, err := tx.Exec(ctx, s.names.expand(sql), args...)
	return int(tag.RowsAffected()), err
}
