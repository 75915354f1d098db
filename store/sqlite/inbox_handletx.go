package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postrider/postrider/store"
)

var _ store.TxSettler[*sql.Tx] = (*Store)(nil)

const (
	countParkedSQL    = `SELECT count(*) FROM {prefix}parked WHERE relay = ?1 AND seq IN (SELECT value FROM json_each(?2))`
	countDeliveredSQL = `UPDATE {prefix}cursors SET delivered = delivered + ?3 WHERE relay = ?1 AND partition = ?2`
)

// CommitSettled implements store.TxSettler. The transaction holds the write lock, so nothing changes before its commit. It settles
// nothing if the transaction has ended since Begin: the side effects of its messages are lost, or already committed.
func (s *Store) CommitSettled(ctx context.Context, tx *sql.Tx, name string, st store.Settlement) (released []string, err error) {
	if tx == nil {
		return nil, store.ErrNoTransaction
	}
	err = s.within("settle in a transaction", tx, func(t txn) error {
		if err := s.incarnation.replaced(); err != nil {
			return err
		}
		if err := s.stillBegun(ctx, tx); err != nil {
			return err
		}
		released, err = t.settleNext(ctx, name, &st)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, s.Rollback(ctx, tx))
	}
	return released, s.commit(tx)
}

// settleNext applies a settlement if its lease holds, it is the next one, and every message to remove is parked. A settlement
// without a number only removes messages and counts them.
func (t txn) settleNext(ctx context.Context, name string, st *store.Settlement) ([]string, error) {
	last, err := t.lease(ctx, name, store.LeaseRef{Partition: st.Partition, Token: st.Token})
	if err != nil {
		return nil, err
	}
	if st.Number > 0 && st.Number != last.number+1 {
		return nil, store.ErrLeaseLost
	}
	if len(st.Removed) > 0 {
		var n int
		if err := t.get(ctx, countParkedSQL, []any{name, list(st.Removed)}, &n); err != nil {
			return nil, err
		}
		if n != len(st.Removed) {
			return nil, store.ErrNotParked
		}
	}
	if st.Number == 0 {
		if _, err := t.exec(ctx, removeSQL, name, list(st.Removed)); err != nil {
			return nil, err
		}
		_, err := t.exec(ctx, countDeliveredSQL, name, st.Partition, st.DeliveredCount)
		return nil, err
	}
	content := st.Digest()
	return t.settle(ctx, name, st, content[:])
}
