package outbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/store"
)

// InTx runs do in a transaction and commits it if do returns nil. After the commit, it wakes relays and runs the
// AfterCommit hooks. It returns the IDs of the messages published in the transaction, in the order of publishing.
//
// Inside do, publish with the context that do is given: it tells the outbox what belongs to this transaction. A
// transaction nested in tx, such as pgx's savepoints, belongs to it too. Messages whose savepoint was rolled back are
// neither returned nor given to AfterCommit hooks. Savepoints made by hand ("SAVEPOINT a") are considered only if there
// is an AfterCommit hook, because checking costs a round trip.
//
// With store/postgres, the transaction is begun with the first statement in do, and what was published is written with the next
// statement or with the commit: an order and its message take two round trips. If the database refuses a message, that statement
// or the commit returns the error, and nothing is committed. After tx.Begin, tx.Conn or tx.LargeObjects, everything is sent at
// once.
//
// If do returns an error or panics, or the commit fails, the transaction is rolled back and the AfterRollback hooks run.
// Errors: that of do, joined with that of the rollback if it failed too; that of ctx, if it has ended when do returns; those of the
// store. After an error, nothing was committed, and InTx can be called again. The exception is store.ErrUncertain: the connection broke
// during the commit, or the commit took much longer than ctx, and it is unknown whether it took effect.
func (o *Outbox[Tx]) InTx(ctx context.Context, do func(ctx context.Context, tx Tx) error) ([]string, error) {
	begin := o.store.Begin
	if p, ok := o.store.(store.TxPipeliner[Tx]); ok {
		begin = p.BeginPipelined
	}
	tx, err := begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	t := &transaction[Tx]{tx: tx}
	returned := false
	defer func() {
		if !returned {
			_ = o.rollback(ctx, t, errUnwound) // the caller sees the panic
		}
	}()
	err = do(context.WithValue(ctx, transactionKey[Tx]{o}, t), tx)
	if err == nil {
		err = o.commit(ctx, t)
	}
	returned = true
	if err != nil {
		return nil, o.rollback(ctx, t, err)
	}
	o.store.Wake()
	o.afterCommit(ctx, t)
	return t.ids, nil
}

// commit removes messages that savepoints may have undone from the result, and commits.
func (o *Outbox[Tx]) commit(ctx context.Context, t *transaction[Tx]) error {
	t.end()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	if len(t.ids) > 0 && (t.nested || o.hasAfterCommit) {
		written, err := o.store.Written(ctx, t.tx, t.ids)
		if err != nil {
			return fmt.Errorf("look for messages undone by savepoints: %w", err)
		}
		t.keep(written)
	}
	if err := o.store.Commit(ctx, t.tx); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}

// rollbackTimeout limits a rollback, which continues when the caller's context has ended.
const rollbackTimeout = 10 * time.Second

// rollback ends the transaction, runs the AfterRollback hooks and returns cause, joined with the rollback's own error if
// any.
func (o *Outbox[Tx]) rollback(ctx context.Context, t *transaction[Tx], cause error) error {
	t.end()
	ctx = context.WithoutCancel(ctx)
	rollback, cancel := context.WithTimeout(ctx, rollbackTimeout)
	defer cancel()
	if err := o.store.Rollback(rollback, t.tx); err != nil {
		cause = errors.Join(cause, fmt.Errorf("roll back transaction: %w", err))
	}
	o.afterRollback(ctx, t, cause)
	return cause
}

func (o *Outbox[Tx]) afterRollback(ctx context.Context, t *transaction[Tx], cause error) {
	if len(t.messages) == 0 {
		return
	}
	for _, h := range o.config.Hooks {
		if h.AfterRollback != nil {
			o.after(ctx, "AfterRollback", t, func() error { return h.AfterRollback(ctx, t.messages, cause) })
		}
	}
}

func (o *Outbox[Tx]) afterCommit(ctx context.Context, t *transaction[Tx]) {
	if len(t.messages) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	for _, h := range o.config.Hooks {
		if h.AfterCommit != nil {
			o.after(ctx, "AfterCommit", t, func() error { return h.AfterCommit(ctx, t.messages) })
		}
	}
}

// after runs a hook whose failure has no effect, since the transaction has ended.
func (o *Outbox[Tx]) after(ctx context.Context, name string, t *transaction[Tx], hook func() error) {
	first, count := t.messages[0].ID, len(t.messages)
	report := func(err error, stack string) {
		o.config.Logger.ErrorContext(ctx, "outbox: "+name+" hook failed; what was committed or rolled back stays so",
			"error", err, "messages", count, "first_message", first, "stack", stack)
	}
	defer func() {
		if r := recover(); r != nil {
			report(fmt.Errorf("panic: %v", r), string(debug.Stack()))
		}
	}()
	if err := hook(); err != nil {
		report(err, "")
	}
}

// transaction records what is published in a transaction that InTx began or Track follows.
type transaction[Tx any] struct {
	tx Tx

	mu       sync.Mutex
	ended    bool
	nested   bool // something was published through a value other than tx
	ids      []string
	messages []*postrider.Message // only if there are After hooks
}

type transactionKey[Tx any] struct{ outbox *Outbox[Tx] }

// track records messages that were written in a transaction of InTx or Track.
func (o *Outbox[Tx]) track(ctx context.Context, tx Tx, msgs []*postrider.Message, withPayload bool) {
	if after := signal.AfterOf(ctx); after != nil {
		for _, m := range msgs {
			after.Add(o, m.Topic)
		}
	}
	t, ok := ctx.Value(transactionKey[Tx]{o}).(*transaction[Tx])
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.nested = t.nested || !same(t.tx, tx)
	for _, m := range msgs {
		t.ids = append(t.ids, m.ID)
	}
	if !o.hasAfter {
		return
	}
	if withPayload {
		t.messages = append(t.messages, msgs...)
		return
	}
	for _, m := range msgs {
		c := *m
		c.Payload = nil
		t.messages = append(t.messages, &c)
	}
}

// end keeps goroutines that outlive the transaction from changing its results. It reports false if it was called before.
func (t *transaction[Tx]) end() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.ended
	t.ended = true
	return !was
}

func (t *transaction[Tx]) open() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ended
}

// keep drops everything that is not among the written IDs.
func (t *transaction[Tx]) keep(written []string) {
	there := make(map[string]bool, len(written))
	for _, id := range written {
		there[id] = true
	}
	ids, messages := t.ids, t.messages
	t.ids, t.messages = nil, nil
	for i, id := range ids {
		if !there[id] {
			continue
		}
		t.ids = append(t.ids, id)
		if messages != nil {
			t.messages = append(t.messages, messages[i])
		}
	}
}

// same compares transactions; types that == cannot compare count as different.
func same(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
