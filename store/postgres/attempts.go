package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
)

var _ postrider.AttemptLog = (*Store)(nil)

const (
	// recordAttemptsSQL: $1 to $10 the columns, $11 how long they are kept, in microseconds.
	recordAttemptsSQL = `
insert into {attempts} (message_id, relay, at, attempt, took, outcome, status, answer, error, request_sha256, expires_at)
select i.*, clock_timestamp() + $11::float8 * interval '1 microsecond'
from unnest($1::text::text[], $2::text::text[], $3::text::timestamptz[], $4::text::int4[], $5::text::int8[], $6::text::text[],
	$7::text::int4[], $8::text::bytea[], $9::text::text[], $10::text::bytea[]) as i
on conflict do nothing`

	// trimAttemptsSQL deletes surplus attempts of messages: $1 messages, $2 how many attempts by each relay each message keeps.
	trimAttemptsSQL = `
delete from {attempts} where ctid = any(array(
	select place from (
		select ctid as place, row_number() over (partition by message_id, relay order by at desc, attempt desc) as n
		from {attempts} where message_id = any($1::text::text[])) as a
	where n > $2::int8))`

	attemptsSQL = `
select relay, at, attempt, took, outcome, status, answer, error, request_sha256
from {attempts} where message_id = $1::text order by at, relay, attempt`

	dropAttemptsSQL = `
with gone as (
	delete from {attempts} where ctid = any(array(
		select ctid from {attempts} where expires_at <= statement_timestamp() order by expires_at limit 10000))
	returning 1
)
select count(*) from gone`
)

// RecordAttempts implements postrider.AttemptLog. It does not wait for the disk.
func (s *Store) RecordAttempts(ctx context.Context, attempts []postrider.DeliveryAttempt, keep time.Duration) error {
	if len(attempts) == 0 {
		return nil
	}
	if _, err := s.open(ctx); err != nil {
		return err
	}
	args := attemptArgs(attempts)
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, s.inOne(ctx, []query{
			{sql: s.names.expand(recordAttemptsSQL), args: append(args[:len(args):len(args)], keep.Microseconds())},
			{sql: s.names.expand(trimAttemptsSQL), args: []any{args[0], int64(postrider.KeptAttempts)}},
		})
	})
	return translate("record attempts", err)
}

// attemptArgs returns the columns of attempts as array literals.
func attemptArgs(attempts []postrider.DeliveryAttempt) []any {
	texts := func(of func(a postrider.DeliveryAttempt) string) string { return column(attempts, quoted, of) }
	numbers := func(of func(a postrider.DeliveryAttempt) int64) string { return column(attempts, number[int64], of) }
	bytes := func(of func(a postrider.DeliveryAttempt) []byte) string { return column(attempts, hexBytes, of) }
	return []any{
		texts(func(a postrider.DeliveryAttempt) string { return a.MessageID }),
		texts(func(a postrider.DeliveryAttempt) string { return a.Relay }),
		column(attempts, moment, func(a postrider.DeliveryAttempt) time.Time { return a.At }),
		numbers(func(a postrider.DeliveryAttempt) int64 { return int64(a.Attempt) }),
		numbers(func(a postrider.DeliveryAttempt) int64 { return a.Took.Microseconds() }),
		texts(func(a postrider.DeliveryAttempt) string { return a.Outcome }),
		numbers(func(a postrider.DeliveryAttempt) int64 { return int64(a.Status) }),
		bytes(func(a postrider.DeliveryAttempt) []byte { return a.Answer }),
		texts(func(a postrider.DeliveryAttempt) string { return a.Error }),
		bytes(func(a postrider.DeliveryAttempt) []byte { return a.RequestSHA256 }),
	}
}

// column returns one field of all values as an array literal.
func column[T, V any](all []T, write func(b []byte, v V) []byte, of func(T) V) string {
	values := make([]V, len(all))
	for i, one := range all {
		values[i] = of(one)
	}
	return array(values, write)
}

// inOne runs queries as one transaction that does not wait for the disk.
func (s *Store) inOne(ctx context.Context, queries []query) error {
	results, err := implicit(ctx, s.pool, "select set_config('synchronous_commit', 'off', true)", func(b *pgx.Batch) {
		for _, q := range queries {
			b.Queue(q.sql, q.args...)
		}
	})
	if err != nil {
		return err
	}
	for _, q := range queries {
		if err := q.read(results); err != nil {
			_ = results.Close() // err is the cause of what this one reports
			return err
		}
	}
	return results.Close()
}

// Attempts implements postrider.AttemptLog.
func (s *Store) Attempts(ctx context.Context, messageID string) (out []postrider.DeliveryAttempt, err error) {
	if _, err := s.open(ctx); err != nil {
		return nil, err
	}
	err = s.read(ctx, formatSQL, s.names.expand(attemptsSQL), []any{messageID}, func(rows pgx.Rows) error {
		for rows.Next() {
			a := postrider.DeliveryAttempt{MessageID: messageID}
			var took int64
			if err := rows.Scan(&a.Relay, &a.At, &a.Attempt, &took, &a.Outcome, &a.Status, &a.Answer, &a.Error, &a.RequestSHA256); err != nil {
				return err
			}
			a.At, a.Took = a.At.UTC(), time.Duration(took)*time.Microsecond
			out = append(out, a)
		}
		return rows.Err()
	})
	return out, translate("read attempts", err)
}

// DropAttempts implements postrider.AttemptLog.
func (s *Store) DropAttempts(ctx context.Context) (n int, err error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	err = s.inOne(ctx, []query{{
		sql: s.names.expand(dropAttemptsSQL),
		row: func(scan func(...any) error) error { return scan(&n) },
	}})
	return n, translate("drop attempts", err)
}
