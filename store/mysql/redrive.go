package mysqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

const (
	historyOfSQL = `SELECT history FROM {prefix}dead WHERE number = ?`
	// redriveSQL parks the message of a dead letter: ?1 number, ?2 reason, ?3 due or NULL, ?4 now, ?5 history.
	redriveSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT relay, partition_id, seq, ` + messageColumns + `, ?2, 0, ?3, ?4, redrives + 1, ?5 FROM {prefix}dead WHERE number = ?1
		ON DUPLICATE KEY UPDATE reason = VALUES(reason), attempts = 0, due_at = VALUES(due_at), parked_at = VALUES(parked_at),
			redrives = VALUES(redrives), history = VALUES(history)`
	redrivenHeadSQL = `UPDATE {prefix}held FORCE INDEX (PRIMARY) SET reason = ?3, cause = '', attempts = 0 WHERE relay = ?1 AND message_key = ?2`
)

// redrive resolves a dead letter and parks its message, due at once. If its key is held, the message is queued with the key's
// other messages, in sequence order; a key that waited for the decision about this dead letter resumes.
func (r records) redrive(ctx context.Context, l chosenDead, how store.Resolution) error {
	var history string
	if err := r.get(ctx, historyOfSQL, []any{l.number}, &history); err != nil {
		return err
	}
	if _, err := r.exec(ctx, resolveSQL, string(store.DeadRedriven), r.now, how.By, "", how.Redrive, l.number); err != nil {
		return err
	}
	var held *lockedKey
	if l.key != "" {
		var err error
		if held, err = r.lockHeld(ctx, l.relay, l.key); err != nil {
			return err
		}
	}
	due := sql.Null[int64]{V: r.now, Valid: held == nil}
	reason := string(store.ParkRedriven)
	history = r.addEntry(history, 0, "redriven by "+how.By)
	_, err := r.exec(ctx, redriveSQL, l.number, reason, due, r.now, history)
	if err != nil || held == nil || held.due.Valid || held.seq != l.seq {
		return err
	}
	if _, err := r.exec(ctx, redrivenHeadSQL, l.relay, l.key, reason); err != nil {
		return err
	}
	_, err = r.resumeKey(ctx, l.relay, l.key)
	return err
}

const (
	startRedriveSQL = `INSERT INTO {prefix}redrives (state, body) VALUES (?, ?)`
	lockRedriveSQL  = `SELECT body FROM {prefix}redrives WHERE id = ?`
	storeRedriveSQL = `UPDATE {prefix}redrives SET state = ?2, body = ?3 WHERE id = ?1`
	listRedrivesSQL = `SELECT id, body FROM {prefix}redrives WHERE id < ?1 AND (?2 = '' OR state = ?2) ORDER BY id DESC LIMIT ?3`
	// endedRedrivesSQL reads ?2 ended redrives with an ID above ?1, oldest first.
	endedRedrivesSQL = `SELECT id, body FROM {prefix}redrives WHERE id > ?1 AND state <> 'running' ORDER BY id LIMIT ?2`
	purgeRedrivesSQL = `DELETE FROM {prefix}redrives WHERE id IN ? AND state <> 'running'`
	// outcomeSQL counts the messages whose dead letters were not erased: all, those that are parked, those of them that have failed
	// since, and those that have been dead-lettered again.
	outcomeSQL = `SELECT COUNT(*), COUNT(p.seq), COALESCE(SUM(p.attempts > 0), 0), COALESCE(SUM(EXISTS (
			SELECT 1 FROM {prefix}dead l WHERE l.relay = d.relay AND l.partition_id = d.partition_id AND l.seq = d.seq
				AND l.number > d.number)), 0)
		FROM {prefix}dead d LEFT JOIN {prefix}parked p ON p.relay = d.relay AND p.seq = d.seq AND p.redrives = d.redrives + 1
		WHERE d.redrive = ?1 AND d.redrive > 0 AND d.number > ?2 AND d.type <> '` + store.ErasedType + `'`
)

// AddRedrive implements store.Writer.
func (r records) AddRedrive(ctx context.Context, added store.Redrive) (int64, error) {
	body, err := json.Marshal(added)
	if err != nil {
		return 0, err
	}
	res, err := r.run(ctx, startRedriveSQL, string(added.State), body)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// SaveRedrive implements store.Writer.
func (r records) SaveRedrive(ctx context.Context, saved store.Redrive) error {
	body, err := json.Marshal(saved)
	if err == nil {
		_, err = r.exec(ctx, storeRedriveSQL, saved.ID, string(saved.State), body)
	}
	return err
}

// redriveOf reads a redrive; lock is an optional locking clause.
func (r records) redriveOf(ctx context.Context, id int64, lock string) (found store.Redrive, err error) {
	var body string
	err = r.get(ctx, lockRedriveSQL+lock, []any{id}, &body)
	if errors.Is(err, sql.ErrNoRows) {
		return found, fmt.Errorf("redrive %d: %w", id, store.ErrNoRedrive)
	}
	if err == nil {
		err = json.Unmarshal([]byte(body), &found)
	}
	found.ID = id
	return found, err
}

// Redrive implements store.Reader.
func (r records) Redrive(ctx context.Context, id int64) (store.Redrive, error) {
	return r.redriveOf(ctx, id, ``)
}

// LockRedrive implements store.Writer.
func (r records) LockRedrive(ctx context.Context, id int64) (store.Redrive, error) {
	return r.redriveOf(ctx, id, ` FOR UPDATE`)
}

// purgeRedrives removes redrives that ended by a time. It stops after about store.PurgeRedrives of them.
func (s *Store) purgeRedrives(ctx context.Context, by time.Time) error {
	const pageSize = 100
	var old []int64
	for after := int64(0); len(old) < store.PurgeRedrives; {
		page, err := s.pooled().redrivesOf(ctx, endedRedrivesSQL, after, pageSize)
		if err != nil {
			return s.cfg.explain("purge redrives", err)
		}
		for _, r := range page {
			if after = r.ID; !r.EndedAt.After(by) {
				old = append(old, r.ID)
			}
		}
		if len(page) < pageSize {
			break
		}
	}
	if len(old) == 0 {
		return nil
	}
	return s.write(ctx, "purge redrives", func(t txn) error {
		_, err := t.exec(ctx, purgeRedrivesSQL, old)
		return err
	})
}

// Redriven implements store.Reader.
func (r records) Redriven(ctx context.Context, id, after int64) (n store.Redriven, err error) {
	err = r.get(ctx, outcomeSQL, []any{id, after}, &n.Found, &n.Parked, &n.Failing, &n.Dead)
	return n, err
}

// Redrives implements store.Reader.
func (r records) Redrives(ctx context.Context, state store.RedriveState, before int64, limit int) ([]store.Redrive, error) {
	return r.redrivesOf(ctx, listRedrivesSQL, before, string(state), limit)
}

// redrivesOf reads the redrives that a query returns.
func (t txn) redrivesOf(ctx context.Context, query string, args ...any) (page []store.Redrive, err error) {
	err = t.each(ctx, query, args, func(rows *sql.Rows) error {
		var id int64
		var body string
		if err := rows.Scan(&id, &body); err != nil {
			return err
		}
		var r store.Redrive
		err := json.Unmarshal([]byte(body), &r)
		r.ID = id
		page = append(page, r)
		return err
	})
	return page, err
}
