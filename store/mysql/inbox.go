package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Inbox[*sql.Tx] = (*Store)(nil)

// within runs f in a user's transaction.
func (s *Store) within(doing string, tx *sql.Tx, f func(txn) error) error {
	if tx == nil {
		return fmt.Errorf("%s: %w", doing, store.ErrNoTransaction)
	}
	return s.inTransaction(doing, f(txn{s: s, on: tx}))
}

// find is within for a function with a result.
func find[T any](s *Store, doing string, tx *sql.Tx, f func(txn) (T, error)) (out T, err error) {
	err = s.within(doing, tx, func(t txn) error {
		out, err = f(t)
		return err
	})
	return out, err
}

const (
	savepointSQL  = `SAVEPOINT %s`
	releasePutSQL = `RELEASE SAVEPOINT %s`
	rollbackToSQL = `ROLLBACK TO SAVEPOINT %s`
)

// Savepoint implements store.Transactor. In MySQL a savepoint replaces an earlier one of the same name, so each has its own name.
func (s *Store) Savepoint(ctx context.Context, tx *sql.Tx, f func(context.Context, *sql.Tx) error) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	name := fmt.Sprintf("postrider_%016x", rand.Uint64())
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(savepointSQL, name)); err != nil {
		return s.inTransaction("make a savepoint", err)
	}
	err := f(ctx, tx)
	if err == nil {
		if _, err = tx.ExecContext(ctx, fmt.Sprintf(releasePutSQL, name)); err == nil {
			return nil
		}
		err = s.inTransaction("release a savepoint", err)
	}
	ctx, cancel := undoing(ctx)
	defer cancel()
	for _, text := range []string{rollbackToSQL, releasePutSQL} {
		if _, undo := tx.ExecContext(ctx, fmt.Sprintf(text, name)); undo != nil {
			return errors.Join(err, store.ErrUndone, s.inTransaction("return to a savepoint", undo))
		}
	}
	return err
}

const (
	// claimSQL inserts in sorted order: two calls that claim the same messages meet at the first of them. It waits for a row that
	// another open transaction has inserted.
	claimSQL     = `INSERT IGNORE INTO {prefix}claims (consumer, id, token, claimed_at) VALUES %s`
	claimRow     = `(?, ?, ?, {now})`
	claimedSQL   = `SELECT id FROM {prefix}claims WHERE consumer = ? AND id IN ? AND token = ?`
	heldAmongSQL = `SELECT message_key FROM {prefix}held WHERE relay = ? AND message_key IN ?`
)

// Claim implements store.Ledger. It looks up the keys after the statement that may wait.
func (s *Store) Claim(ctx context.Context, tx *sql.Tx, consumer string, msgs []store.ClaimRequest) ([]store.ClaimResult, error) {
	var ids, keys []string
	for _, c := range msgs {
		ids = append(ids, c.ID)
		if c.Key != "" {
			keys = append(keys, c.Key)
		}
	}
	out := make([]store.ClaimResult, len(msgs))
	err := s.within("claim messages", tx, func(t txn) error {
		if len(msgs) == 0 {
			return nil
		}
		fresh, err := t.claim(ctx, consumer, distinct(ids))
		if err != nil {
			return err
		}
		held, err := t.heldAmong(ctx, consumer, keys)
		if err != nil {
			return err
		}
		fresher, holding := set(fresh), set(held)
		for i, c := range msgs {
			out[i] = store.ClaimResult{Fresh: fresher[c.ID], Held: c.Key != "" && holding[c.Key]}
			fresher[c.ID] = false // only the first counts
		}
		return nil
	})
	return out, err
}

// claim returns those of the sorted ids that were not claimed before.
func (t txn) claim(ctx context.Context, consumer string, ids []string) ([]string, error) {
	token := rand.Int64()
	rows := make([]string, len(ids))
	for i, id := range ids {
		rows[i] = render(claimRow, []any{consumer, id, token})
	}
	n, err := t.exec(ctx, strings.Replace(claimSQL, `%s`, strings.Join(rows, `, `), 1))
	switch {
	case err != nil || n == 0:
		return nil, err
	case int(n) == len(ids):
		return ids, nil
	}
	return stored.Column[string](ctx, t.query, claimedSQL, consumer, ids, token)
}

func (t txn) heldAmong(ctx context.Context, consumer string, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return stored.Column[string](ctx, t.query, heldAmongSQL, consumer, distinct(keys))
}

// distinct sorts strings and removes duplicates.
func distinct(texts []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(texts)))
}

const (
	makeVersionSQL = `INSERT INTO {prefix}versions (consumer, message_key, version) VALUES (?, ?, 0)
		ON DUPLICATE KEY UPDATE consumer = VALUES(consumer)`
	versionSQL    = `SELECT version FROM {prefix}versions WHERE consumer = ? AND message_key = ?`
	setVersionSQL = `INSERT INTO {prefix}versions (consumer, message_key, version) VALUES (?1, ?2, ?3)
		ON DUPLICATE KEY UPDATE version = ?3`
)

// Version implements store.Ledger.
func (s *Store) Version(ctx context.Context, tx *sql.Tx, consumer, key string) (int64, error) {
	return find(s, "read an aggregate version", tx, func(t txn) (v int64, err error) {
		if _, err := t.exec(ctx, makeVersionSQL, consumer, key); err != nil {
			return 0, err
		}
		err = t.get(ctx, versionSQL, []any{consumer, key}, &v)
		return v, err
	})
}

// SetVersion implements store.Ledger.
func (s *Store) SetVersion(ctx context.Context, tx *sql.Tx, consumer, key string, version int64) error {
	return s.within("note an aggregate version", tx, func(t txn) error {
		_, err := t.exec(ctx, setVersionSQL, consumer, key, version)
		return err
	})
}

const removeClaimsSQL = `DELETE FROM {prefix}claims WHERE consumer = ?1 AND claimed_at < {now} - ?2 ORDER BY claimed_at LIMIT ?3`

// RemoveClaims implements store.Ledger.
func (s *Store) RemoveClaims(ctx context.Context, consumer string, age time.Duration, limit int) (int, error) {
	var n int64
	err := s.write(ctx, "remove claims", func(t txn) (err error) {
		n, err = t.exec(ctx, removeClaimsSQL, consumer, age.Microseconds(), limit)
		return err
	})
	return int(n), err
}
