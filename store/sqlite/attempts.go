package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
)

var _ postrider.AttemptLog = (*Store)(nil)

const (
	recordAttemptSQL = `INSERT INTO {prefix}attempts (message_id, relay, at, attempt, took, outcome, status, answer, error,
		request_sha256, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	// trimAttemptsSQL deletes all but the newest attempts of a message by a relay: ?1 message, ?2 relay, ?3 how many to keep.
	trimAttemptsSQL = `DELETE FROM {prefix}attempts WHERE message_id = ?1 AND relay = ?2 AND (at, attempt) IN (
		SELECT at, attempt FROM {prefix}attempts WHERE message_id = ?1 AND relay = ?2
		ORDER BY at DESC, attempt DESC LIMIT -1 OFFSET ?3)`
	attemptsSQL = `SELECT relay, at, attempt, took, outcome, status, answer, error, request_sha256
		FROM {prefix}attempts WHERE message_id = ? ORDER BY at, relay, attempt`
	dropAttemptsSQL = `DELETE FROM {prefix}attempts WHERE (message_id, relay, at, attempt) IN (
		SELECT message_id, relay, at, attempt FROM {prefix}attempts WHERE expires_at <= ? ORDER BY expires_at LIMIT 10000)`
)

// RecordAttempts implements postrider.AttemptLog.
func (s *Store) RecordAttempts(ctx context.Context, attempts []postrider.DeliveryAttempt, keep time.Duration) error {
	if len(attempts) == 0 {
		return nil
	}
	return s.write(ctx, "record attempts", relaxed, func(t txn) error {
		for _, a := range attempts {
			_, err := t.exec(ctx, recordAttemptSQL, a.MessageID, a.Relay, a.At.UnixMicro(), a.Attempt, a.Took.Microseconds(),
				a.Outcome, a.Status, blob(a.Answer), a.Error, blob(a.RequestSHA256), t.now+keep.Microseconds())
			if err != nil {
				return err
			}
			if _, err := t.exec(ctx, trimAttemptsSQL, a.MessageID, a.Relay, postrider.KeptAttempts); err != nil {
				return err
			}
		}
		return nil
	})
}

// blob returns bytes that are not NULL when empty.
func blob(b []byte) []byte { return append([]byte{}, b...) }

// Attempts implements postrider.AttemptLog.
func (s *Store) Attempts(ctx context.Context, messageID string) (out []postrider.DeliveryAttempt, err error) {
	err = s.read(ctx, "read attempts", func(t txn) error {
		out = nil
		return t.each(ctx, attemptsSQL, []any{messageID}, func(rows *sql.Rows) error {
			a := postrider.DeliveryAttempt{MessageID: messageID}
			var at, took int64
			err := rows.Scan(&a.Relay, &at, &a.Attempt, &took, &a.Outcome, &a.Status, &a.Answer, &a.Error, &a.RequestSHA256)
			a.At, a.Took = stored.Time(at), stored.Duration(took)
			out = append(out, a)
			return err
		})
	})
	return out, err
}

// DropAttempts implements postrider.AttemptLog.
func (s *Store) DropAttempts(ctx context.Context) (n int, err error) {
	err = s.write(ctx, "drop attempts", relaxed, func(t txn) error {
		dropped, err := t.exec(ctx, dropAttemptsSQL, t.now)
		n = int(dropped)
		return err
	})
	return n, err
}
