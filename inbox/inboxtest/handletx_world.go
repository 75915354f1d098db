package inboxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// effectType is the type of the messages that handlers publish.
const effectType = "effect"

// txWorld is one test's database, in which a relay with transactions reads the outbox that handlers publish to.
type txWorld[Tx any] struct {
	*world[Tx]
	tx store.TxSettler[Tx]
}

func newTxWorld[Tx any](t testing.TB, h Harness[Tx]) *txWorld[Tx] {
	w := newWorld(t, h)
	tx, ok := any(w.store).(store.TxSettler[Tx])
	if !ok {
		t.Fatalf("%T is no store.TxSettler", w.store)
	}
	return &txWorld[Tx]{world: w, tx: tx}
}

// commit publishes a message for each key, each in its own transaction, and returns their IDs.
func (w *txWorld[Tx]) commit(keys ...string) []string {
	w.t.Helper()
	var out []string
	for _, key := range keys {
		m := w.message(key)
		w.inTx(m)
		out = append(out, m.ID)
	}
	return out
}

// inTx publishes messages in one transaction.
func (w *txWorld[Tx]) inTx(msgs ...*postrider.Message) {
	w.t.Helper()
	_, err := w.outbox.InTx(w.ctx, func(ctx context.Context, tx Tx) error {
		_, err := w.outbox.Publish(ctx, tx, msgs...)
		return err
	})
	w.must(err, "publish")
}

// begun publishes messages in a transaction that stays open until the returned function commits it.
func (w *txWorld[Tx]) begun(keys ...string) (ids []string, commit func()) {
	w.t.Helper()
	tx, err := w.store.Begin(w.ctx)
	w.must(err, "begin")
	for _, key := range keys {
		m := w.message(key)
		ids = append(ids, m.ID)
		_, err := w.outbox.Publish(w.ctx, tx, m)
		w.must(err, "publish")
	}
	return ids, func() {
		w.t.Helper()
		w.must(w.store.Commit(w.ctx, tx), "commit")
		w.store.Wake()
	}
}

// effects are the IDs of the messages whose effects were committed, in the order in which they were written.
func (w *txWorld[Tx]) effects() []string {
	w.t.Helper()
	var out []string
	for _, m := range w.committed() {
		if m.Type == effectType {
			out = append(out, strings.TrimPrefix(m.ID, effectType+" of "))
		}
	}
	return out
}

func (w *txWorld[Tx]) effectsOf(key string) []string {
	return slices.DeleteFunc(w.effects(), func(id string) bool { return !strings.HasSuffix(id, ":"+key) })
}

// apply is the effect: a message, published in the transaction.
func (w *txWorld[Tx]) apply(ctx context.Context, tx Tx, m *postrider.Message) error {
	_, err := w.outbox.Publish(ctx, tx, &postrider.Message{ID: effectType + " of " + m.ID, Type: effectType, Key: m.Key})
	return err
}

// untilApplied waits for exactly these effects, in any order.
func (w *txWorld[Tx]) untilApplied(want ...string) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("effects %v, status %+v, held %+v", w.effects(), w.status(), w.held())
		}
	}()
	w.until(fmt.Sprint("effects ", want), func() bool { return len(w.effects()) >= len(want) })
	w.wantSet("effects", w.effects(), want)
}

// untilAtRest waits until nothing is parked and the relay has read everything.
func (w *txWorld[Tx]) untilAtRest() {
	w.t.Helper()
	w.until("everything is settled", func() bool {
		st := w.status()
		return st.Parked.N == 0 && st.Held.N == 0 && st.Backlog.N == 0
	})
}

// txSetting configures a process.
type txSetting[Tx any] struct {
	cfg     relay.Config
	handler inbox.Handler[Tx]
	fault   func(op string, done bool) error
}

// txProcess is one process of the relay.
type txProcess[Tx any] struct {
	*relay.Relay
	w          *txWorld[Tx]
	connection *txLine[Tx]
	done       chan error
	once       sync.Once
}

func (w *txWorld[Tx]) build(s txSetting[Tx]) *txProcess[Tx] {
	w.t.Helper()
	cfg := s.cfg
	cfg.Name, cfg.Topics = consumer, []string{topic}
	cfg.BackoffBase, cfg.BackoffMax = cmp.Or(cfg.BackoffBase, 5*time.Millisecond), cmp.Or(cfg.BackoffMax, 20*time.Millisecond)
	cfg.UnavailableWait = 50 * time.Millisecond
	cfg.LeaseTTL, cfg.PollMax = cmp.Or(cfg.LeaseTTL, w.lease()), 250*time.Millisecond
	cfg.Logger = slog.New(slog.DiscardHandler)
	p := &txProcess[Tx]{w: w, done: make(chan error, 1), connection: &txLine[Tx]{
		connection: &connection[Tx]{Store: w.store, fault: s.fault, open: make(map[any]Tx)}, tx: w.tx,
	}}
	var err error
	p.Relay, err = relay.New(p.connection, cfg)
	w.must(err, "relay")
	handler := s.handler
	if handler == nil {
		handler = w.apply
	}
	w.must(relay.HandleTxFunc(p.Relay, messageType, handler), "handle")
	return p
}

// start runs a process until the test ends.
func (w *txWorld[Tx]) start(s txSetting[Tx]) *txProcess[Tx] {
	w.t.Helper()
	p := w.build(s)
	go func() { p.done <- p.Run(w.ctx) }()
	w.t.Cleanup(p.stop)
	return p
}

func (p *txProcess[Tx]) stop() {
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(p.Stop(ctx), <-p.done); err != nil {
			p.w.t.Errorf("stop: %v", err)
		}
	})
}

// kill ends the process like a power failure.
func (p *txProcess[Tx]) kill() {
	p.connection.cut()
	p.once.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.w.killed.Go(func() {
			_ = p.Stop(ctx)
			<-p.done
		})
	})
}

// txLine is the database connection of a relay with transactions.
type txLine[Tx any] struct {
	*connection[Tx]
	tx store.TxSettler[Tx]
	// delay, if not nil, is given a settlement and says whether it will run it later, while its response is lost.
	delay func(settle func()) bool
}

func (l *txLine[Tx]) CommitSettled(ctx context.Context, tx Tx, name string, s store.Settlement) ([]string, error) {
	defer l.ended(tx)
	released, err := within(l.connection, "CommitSettled", tx, func() ([]string, error) { return l.tx.CommitSettled(ctx, tx, name, s) })
	if err != nil {
		_ = l.Store.Rollback(context.WithoutCancel(ctx), tx) // like a database that loses its client
	}
	return released, err
}

func (l *txLine[Tx]) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	return through(l.connection, "Fetch", func() ([]store.Batch, error) { return l.Store.Fetch(ctx, name, req) })
}

func (l *txLine[Tx]) Settle(ctx context.Context, name string, s []store.Settlement) (store.Settled, error) {
	later := func() { _, _ = l.Store.Settle(context.WithoutCancel(ctx), name, s) } // its response is lost
	if l.delay != nil && l.delay(later) {
		return store.Settled{}, errCut
	}
	return l.connection.Settle(ctx, name, s)
}
