package inboxtest

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

// killedAtEachStep publishes messages while a process dies before or after a step of its transaction, and returns the IDs of
// those that had their effects in the process after it.
func (w *world[Tx]) killedAtEachStep(source *txWorld[Tx],
	run func(fault func(op string, done bool) error, h inbox.Handler[Tx]) *process[Tx]) (want []string) {
	for _, step := range []string{"Begin", "Claim", "Commit"} {
		for _, done := range []bool{false, true} {
			var p *process[Tx]
			var died atomic.Bool
			p = run(func(op string, after bool) error {
				if op == step && after == done && died.CompareAndSwap(false, true) {
					p.kill()
					return errCut
				}
				return nil
			}, nil)
			want = append(want, source.commit("a", "b", "a", "")...)
			w.until("death", died.Load)
			q := run(nil, nil)
			w.untilEffects(want...)
			q.stop()
		}
	}
	return want
}

// relayAsSource: consumers of an outbox in another database, which are killed at each step, fail, and lose that database.
func relayAsSource[Tx any](w *world[Tx]) {
	for _, n := range w.sizes() {
		source := newTxWorld(w.t, w.h) // only its database and publishing are used
		w := newWorld(w.t, w.h)
		var away atomic.Bool
		run := func(fault func(op string, done bool) error, h inbox.Handler[Tx]) *process[Tx] {
			connection := &txLine[Tx]{tx: source.tx, connection: &connection[Tx]{Store: source.store, open: make(map[any]Tx),
				fault: func(string, bool) error {
					if away.Load() {
						return errCut
					}
					return nil
				}}}
			reads, err := inbox.FromRelay(connection, relay.Config{
				Name: "to-view", Topics: []string{topic}, LeaseTTL: w.lease(), PollMax: 250 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			})
			w.must(err, "read the outbox")
			s := setting[Tx]{reads: reads, fault: fault, handler: h, cfg: inbox.ConsumerConfig{Batch: n, MaxAttempts: 20}}
			p := w.build(s)
			go func() { p.done <- p.Run(w.ctx) }()
			w.t.Cleanup(p.stop)
			return p
		}
		want := w.killedAtEachStep(source, run)
		var failed atomic.Int64
		p := run(nil, func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if err := w.effect(ctx, tx, m); err != nil || m.Key != "b" || failed.Add(1) > 5 {
				return err
			}
			return errBoom
		})
		want = append(want, source.commit("a", "b", "a", "b")...)
		w.until("the others", func() bool { return len(w.effects()) >= len(want)-2 })
		away.Store(true)
		w.elapse(2 * w.lease())
		away.Store(false)
		want = append(want, source.commit("a", "b", "")...)
		w.untilEffects(want...)
		w.until("all is settled", func() bool { st := w.status(); return st.Parked.N == 0 && st.Held.N == 0 })
		for _, key := range []string{"a", "b"} {
			var of []string
			for _, id := range want {
				if keyOf(id) == key {
					of = append(of, id)
				}
			}
			w.want("order of key "+key, w.effectsOf(key), of)
		}
		p.stop()
	}
}
