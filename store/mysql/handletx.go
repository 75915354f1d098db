package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

var _ relay.TxStore[*sql.Tx] = (*Store)(nil)

// commitSettledSQL is one round trip, so that the lease is not locked while this process could be paused.
const commitSettledSQL = `CALL {prefix}commit_settled(?, ?, ?, ?, ?, ?, ?, ?, ?)`

// CommitSettled implements relay.TxStore. When only the cursor moves it is one statement. What is put aside takes several, while
// which the lease is locked. It settles nothing when the transaction has ended since Begin, as by a deadlock whose error the
// handler has passed over: its effects are lost, or committed already.
func (s *Store) CommitSettled(ctx context.Context, tx *sql.Tx, name string, owner relay.Owner, st relay.Settlement) (released []string, err error) {
	if tx == nil {
		return nil, outbox.ErrNoTransaction
	}
	if !touches(st) {
		return nil, s.commitMoved(ctx, tx, name, owner.ID, st)
	}
	err = s.consume("settle in a transaction", tx, func(t txn) error {
		if err := stillBegun(ctx, t.on); err != nil {
			return err
		}
		if err := t.look(ctx); err != nil {
			return err
		}
		released, err = t.settleOurs(ctx, name, owner.ID, st)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, s.Rollback(ctx, tx))
	}
	return released, s.inTransaction("commit", tx.Commit())
}

// commitMoved is CommitSettled when only the cursor moves. The procedure commits; what is left for tx is to end.
func (s *Store) commitMoved(ctx context.Context, tx *sql.Tx, name, owner string, st relay.Settlement) error {
	_, err := txn{s: s, on: tx}.exec(ctx, commitSettledSQL, name, st.Partition, owner, st.Epoch, st.Moved, st.Cursor.Position,
		st.Cursor.Snapshot, st.DeliveredCount, st.FailedCount)
	switch s.cfg.ErrorCode(err) {
	case codeLeaseLost:
		err = relay.ErrLeaseLost
	case codeNoneSuch:
		err = fmt.Errorf("%w: %w", errEnded, err)
	}
	if err != nil {
		return errors.Join(s.inTransaction("settle in a transaction", err), s.Rollback(ctx, tx))
	}
	_ = tx.Rollback() // it is committed: an error is the connection's, which is not used again
	return nil
}

// settleOurs applies a settlement if its lease is the caller's and what is to be removed is parked.
func (t txn) settleOurs(ctx context.Context, name, owner string, st relay.Settlement) ([]string, error) {
	leases, err := t.fence(ctx, name, owner, []relay.Settlement{st})
	if err != nil {
		return nil, err
	}
	l, ours := leases[st.Partition]
	if !ours || l.epoch != st.Epoch {
		return nil, relay.ErrLeaseLost
	}
	if len(st.Removed) > 0 {
		n, err := t.exec(ctx, removeSQL, name, st.Removed)
		if err != nil {
			return nil, err
		}
		if int(n) != len(st.Removed) {
			return nil, relay.ErrNotParked
		}
		st.Removed = nil
	}
	released, err := t.settle(ctx, name, st, l)
	if err == nil {
		_, err = t.moveAll(ctx, name, owner, []relay.Settlement{st})
	}
	return released, err
}
