package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/postrider/postrider/store"
)

var _ store.TxSettler[*sql.Tx] = (*Store)(nil)

// commitSettledSQL is one round trip, so that the lease is not locked while this process could be paused.
const commitSettledSQL = `CALL {prefix}commit_settled(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// CommitSettled implements store.TxSettler. If only the cursor moves or parked messages are removed, it is one statement. Parking
// takes several, during which the lease is locked, for at most Config.IdleTimeout. It settles nothing if the transaction has
// ended since Begin, e.g. by a deadlock whose error the handler ignored: the handler's changes are lost, or already committed.
func (s *Store) CommitSettled(ctx context.Context, tx *sql.Tx, name string, st store.Settlement) (released []string, err error) {
	if tx == nil {
		return nil, store.ErrNoTransaction
	}
	if len(st.Parked)+len(st.Dead)+len(st.Held)+len(st.Release)+len(st.Unrouted) == 0 {
		return nil, s.commitMoved(ctx, tx, name, st)
	}
	err = s.within("settle in a transaction", tx, func(t txn) error {
		if err := stillBegun(ctx, t.on); err != nil {
			return err
		}
		released, err = t.settleOurs(ctx, name, st)
		return err
	})
	if err == nil {
		err = s.inTransaction("commit", s.end(ctx, tx))
	}
	if err != nil {
		return nil, errors.Join(err, s.Rollback(ctx, tx))
	}
	return released, nil
}

// commitMoved is CommitSettled for when only the cursor moves or messages are removed. The procedure commits; after that, tx only
// has to end.
func (s *Store) commitMoved(ctx context.Context, tx *sql.Tx, name string, st store.Settlement) error {
	content := st.Digest()
	removed := make([]string, len(st.Removed))
	for i, seq := range st.Removed {
		removed[i] = strconv.FormatInt(seq, 10)
	}
	_, err := txn{s: s, on: tx}.exec(ctx, commitSettledSQL, name, st.Partition, st.Token, st.Number, content[:], st.Moved,
		st.Cursor.Position, st.Cursor.Snapshot, st.DeliveredCount, st.FailedCount, strings.Join(removed, ","))
	switch s.cfg.ErrorCode(err) {
	case codeLeaseLost:
		err = store.ErrLeaseLost
	case codeNotParked:
		err = store.ErrNotParked
	case codeNoneSuch:
		err = fmt.Errorf("%w: %w", errEnded, err)
	}
	if err != nil {
		return errors.Join(s.inTransaction("settle in a transaction", err), s.Rollback(ctx, tx))
	}
	_ = tx.Rollback() // already committed: an error is the connection's, which is not used again
	s.leave(tx)
	return nil
}

// settleOurs applies a settlement if its lease is valid, its number is the next, and the messages to remove are parked.
func (t txn) settleOurs(ctx context.Context, name string, st store.Settlement) ([]string, error) {
	leases, err := t.leases(ctx, fenceSQL, name, []store.Settlement{st})
	if err != nil {
		return nil, err
	}
	l := leases[st.Partition]
	if l.stage(st) != stageNext {
		return nil, store.ErrLeaseLost
	}
	t.now = l.now
	settled := st
	if len(st.Removed) > 0 {
		n, err := t.exec(ctx, removeSQL, name, st.Removed)
		if err != nil {
			return nil, err
		}
		if int(n) != len(st.Removed) {
			return nil, store.ErrNotParked
		}
		settled.Removed = nil
	}
	released, err := t.settle(ctx, name, settled)
	if err == nil {
		err = t.moveAll(ctx, name, []store.Settlement{st})
	}
	return released, err
}
