package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

var _ relay.TxStore[*sql.Tx] = (*Store)(nil)

const countParkedSQL = `SELECT count(*) FROM {prefix}parked WHERE relay = ?1 AND seq IN (SELECT value FROM json_each(?2))`

// CommitSettled implements relay.TxStore. The transaction holds the write lock, so that nothing changes before its commit. It
// settles nothing when the transaction has ended since Begin: the effects of its messages are lost, or committed already.
func (s *Store) CommitSettled(ctx context.Context, tx *sql.Tx, name string, owner relay.Owner, st relay.Settlement) (released []string, err error) {
	if tx == nil {
		return nil, outbox.ErrNoTransaction
	}
	err = s.consume("settle in a transaction", tx, func(t txn) error {
		if err := s.stillBegun(ctx, tx); err != nil {
			return err
		}
		released, err = t.settleOurs(ctx, name, owner, st)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, s.Rollback(ctx, tx))
	}
	return released, s.commit(tx)
}

// settleOurs applies a settlement if its lease is the caller's and what is to be removed is parked.
func (t txn) settleOurs(ctx context.Context, name string, owner relay.Owner, st relay.Settlement) ([]string, error) {
	var position int64
	err := t.get(ctx, fenceSQL, []any{name, st.Partition, owner.ID, st.Epoch}, &position)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, relay.ErrLeaseLost
	}
	if err != nil {
		return nil, err
	}
	if len(st.Removed) > 0 {
		var n int
		if err := t.get(ctx, countParkedSQL, []any{name, list(st.Removed)}, &n); err != nil {
			return nil, err
		}
		if n != len(st.Removed) {
			return nil, relay.ErrNotParked
		}
	}
	return t.settle(ctx, name, st, position)
}
