package mysqlstore

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
)

var _ postrider.AttemptLog = (*Store)(nil)

const (
	recordAttemptsSQL = `INSERT IGNORE INTO {prefix}attempts (message_id, relay, made_at, attempt, took, outcome, status, answer, error,
		request_sha256, expires_at) VALUES `
	recordAttemptRow = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	// keptFromSQL selects the oldest attempt to keep of a message by a relay; no row if all are kept. ?3 is the number to keep
	// minus 1.
	keptFromSQL = `SELECT made_at, attempt FROM {prefix}attempts WHERE message_id = ?1 AND relay = ?2
		ORDER BY made_at DESC, attempt DESC LIMIT 1 OFFSET ?3`
	trimAttemptsSQL = `DELETE FROM {prefix}attempts WHERE message_id = ?1 AND relay = ?2
		AND (made_at < ?3 OR made_at = ?3 AND attempt < ?4)`
	attemptsSQL = `SELECT relay, made_at, attempt, took, outcome, status, answer, error, request_sha256
		FROM {prefix}attempts WHERE message_id = ? ORDER BY made_at, relay, attempt`
	dropAttemptsSQL = `DELETE FROM {prefix}attempts WHERE expires_at <= ? ORDER BY expires_at LIMIT 10000`
)

// RecordAttempts implements postrider.AttemptLog.
func (s *Store) RecordAttempts(ctx context.Context, attempts []postrider.DeliveryAttempt, keep time.Duration) error {
	if len(attempts) == 0 {
		return nil
	}
	return s.write(ctx, "record attempts", func(t txn) error {
		type line struct{ message, relay string }
		lines, rows := make(map[line]bool), make([]string, len(attempts))
		for i, a := range attempts {
			lines[line{a.MessageID, a.Relay}] = true
			rows[i] = render(recordAttemptRow, []any{a.MessageID, a.Relay, a.At.UnixMicro(), a.Attempt, a.Took.Microseconds(),
				a.Outcome, a.Status, a.Answer, a.Error, a.RequestSHA256, t.now + keep.Microseconds()})
		}
		if _, err := t.exec(ctx, recordAttemptsSQL+strings.Join(rows, `, `)); err != nil {
			return err
		}
		for l := range lines {
			if err := t.trimAttempts(ctx, l.message, l.relay); err != nil {
				return err
			}
		}
		return nil
	})
}

// trimAttempts deletes all but the newest attempts of a message by a relay.
func (t txn) trimAttempts(ctx context.Context, message, name string) error {
	var at, attempt int64
	err := t.get(ctx, keptFromSQL, []any{message, name, postrider.KeptAttempts - 1}, &at, &attempt)
	if err != nil {
		return stored.OrNone(err)
	}
	_, err = t.exec(ctx, trimAttemptsSQL, message, name, at, attempt)
	return err
}

// Attempts implements postrider.AttemptLog.
func (s *Store) Attempts(ctx context.Context, messageID string) (out []postrider.DeliveryAttempt, err error) {
	err = s.pooled().each(ctx, attemptsSQL, []any{messageID}, func(rows *sql.Rows) error {
		a := postrider.DeliveryAttempt{MessageID: messageID}
		var at, took int64
		err := rows.Scan(&a.Relay, &at, &a.Attempt, &took, &a.Outcome, &a.Status, &a.Answer, &a.Error, &a.RequestSHA256)
		a.At, a.Took = stored.Time(at), stored.Duration(took)
		out = append(out, a)
		return err
	})
	return out, s.cfg.explain("read attempts", err)
}

// DropAttempts implements postrider.AttemptLog.
func (s *Store) DropAttempts(ctx context.Context) (n int, err error) {
	err = s.write(ctx, "drop attempts", func(t txn) error {
		dropped, err := t.exec(ctx, dropAttemptsSQL, t.now)
		n = int(dropped)
		return err
	})
	return n, err
}
