package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var _ store.Inbox[pgx.Tx] = (*Store)(nil)

// The statements of a savepoint. PostgreSQL uses the innermost savepoint of a name.
const (
	savepointSQL = `savepoint postrider_inbox`
	releaseToSQL = `release savepoint postrider_inbox`
	rollbackTo   = `rollback to savepoint postrider_inbox`
)

// errNotYours: only the code that began a transaction may end it.
var errNotYours = errors.New("a handler ended the transaction that it was given; return nil to have it committed, or an error")

// savepointTx is the transaction that runs within a savepoint: ending it must not end the outer transaction, which others need.
type savepointTx struct {
	pgx.Tx
	ended bool
}

func (tx *savepointTx) Commit(context.Context) error {
	tx.ended = true
	return errNotYours
}

func (tx *savepointTx) Rollback(context.Context) error {
	tx.ended = true
	return errNotYours
}

// Savepoint implements store.Transactor. It fails if f commits or rolls back the transaction that it was given.
func (s *Store) Savepoint(ctx context.Context, tx pgx.Tx, f func(context.Context, pgx.Tx) error) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	exec := func(ctx context.Context, text string) error {
		_, err := tx.Exec(ctx, text)
		return err
	}
	return savepoint(ctx, exec, func(ctx context.Context) error {
		inner := &savepointTx{Tx: tx}
		if err := f(ctx, inner); err != nil || !inner.ended {
			return err
		}
		return errNotYours
	})
}

// savepoint runs f between the statements of a savepoint. They have no parameters and so are not prepared: a failed transaction
// would refuse to prepare them.
func savepoint(ctx context.Context, exec func(context.Context, string) error, f func(context.Context) error) error {
	if err := exec(ctx, savepointSQL); err != nil {
		return translate("make a savepoint", err)
	}
	err := f(ctx)
	if err == nil {
		if err = exec(ctx, releaseToSQL); err == nil {
			return nil
		}
		err = translate("release a savepoint", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if undo := errors.Join(exec(ctx, rollbackTo), exec(ctx, releaseToSQL)); undo != nil {
		return errors.Join(err, store.ErrUndone, translate("return to a savepoint", undo))
	}
	return err
}

// Claim implements store.Ledger.
func (s *Store) Claim(ctx context.Context, tx pgx.Tx, consumer string, msgs []store.ClaimRequest) ([]store.ClaimResult, error) {
	return s.claim(ctx, pgxCaller{tx}, consumer, msgs)
}

// Version implements store.Ledger.
func (s *Store) Version(ctx context.Context, tx pgx.Tx, consumer, key string) (int64, error) {
	return s.version(ctx, pgxCaller{tx}, consumer, key)
}

// SetVersion implements store.Ledger.
func (s *Store) SetVersion(ctx context.Context, tx pgx.Tx, consumer, key string, version int64) error {
	return s.setVersion(ctx, pgxCaller{tx}, consumer, key, version)
}

// Park implements store.Parker.
func (s *Store) Park(ctx context.Context, tx pgx.Tx, consumer string, failed []store.ParkRequest) error {
	return s.park(ctx, pgxCaller{tx}, consumer, failed)
}

// Take implements store.Parker.
func (s *Store) Take(ctx context.Context, tx pgx.Tx, consumer string, m *postrider.Message) (store.TakeResult, error) {
	return s.take(ctx, pgxCaller{tx}, consumer, m)
}
