package mysqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

var _ relay.TxStore[*sql.Tx] = (*Store)(nil)

const asideAmongSQL = `SELECT seq FROM {prefix}parked WHERE relay = ?1 AND partition_id = ?2 AND seq IN ?3
	UNION SELECT seq FROM {prefix}dead WHERE relay = ?1 AND partition_id = ?2 AND seq IN ?3`

// CommitSettled implements relay.TxStore. It settles nothing when the transaction has ended since Begin, as by a deadlock
// whose error the handler has passed over: its effects are lost, or committed already.
func (s *Store) CommitSettled(ctx context.Context, tx *sql.Tx, name string, owner relay.Owner, st relay.Settlement) (released []string, err error) {
	if tx == nil {
		return nil, outbox.ErrNoTransaction
	}
	err = s.consume("settle in a transaction", tx, func(t txn) error {
		if err := stillBegun(ctx, t.on); err != nil {
			return err
		}
		if touches(st) {
			if err := t.look(ctx); err != nil {
				return err
			}
		}
		released, err = t.settleOurs(ctx, name, owner.ID, st)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, s.Rollback(ctx, tx))
	}
	return released, s.inTransaction("commit", tx.Commit())
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
	parked, err := t.lockParked(ctx, name, st.Removed)
	if err != nil {
		return nil, err
	}
	if len(parked) != len(st.Removed) {
		return nil, relay.ErrNotParked
	}
	released, err := t.settle(ctx, name, st, l)
	if err == nil {
		_, err = t.moveAll(ctx, name, owner, []relay.Settlement{st})
	}
	return released, err
}

// AsideAmong implements relay.TxStore.
func (s *Store) AsideAmong(ctx context.Context, name string, partition int, sequences []int64) ([]int64, error) {
	aside, err := column[int64](ctx, s.pooled(), asideAmongSQL, name, partition, sequences)
	return aside, s.cfg.explain("look for messages put aside", err)
}
