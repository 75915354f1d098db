package outbox

import "context"

// Track follows a transaction that the caller began, so that its end reaches relays and hooks as with InTx:
//
//	tx, err := pool.Begin(ctx)
//	...
//	tracked, ended := box.Track(ctx, tx)
//	_, err = box.Publish(tracked, tx, m) // and everything else in the transaction
//	...
//	err = tx.Commit(ctx)
//	ended(err)
//
// Call ended once the transaction has ended: with nil after a commit, which wakes relays and runs the AfterCommit hooks, or with
// the cause after a rollback or a failed commit, which runs the AfterRollback hooks. A second call does nothing; without a call
// no hook runs. The outbox does not see savepoints of such a transaction: hooks are given the messages of those that were rolled
// back, too.
//
// If ctx belongs to a transaction that has not ended, because InTx or Track gave it, it is returned unchanged, and ended does
// nothing: tx is that transaction or nested in it, and the end is that of the outer call. For another transaction, begin with a
// context of its own.
func (o *Outbox[Tx]) Track(ctx context.Context, tx Tx) (tracked context.Context, ended func(err error)) {
	if outer, ok := ctx.Value(transactionKey[Tx]{o}).(*transaction[Tx]); ok && outer.open() {
		return ctx, func(error) {}
	}
	t := &transaction[Tx]{tx: tx}
	return context.WithValue(ctx, transactionKey[Tx]{o}, t), func(err error) {
		switch {
		case !t.end():
		case err != nil:
			o.afterRollback(context.WithoutCancel(ctx), t, err)
		default:
			o.store.Wake()
			o.afterCommit(ctx, t)
		}
	}
}
