package faults

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/crash"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// addEffect returns a handler for transactions that inserts a row, without a unique constraint.
func addEffect[Tx any](consumer string, session func(Tx) session) func(ctx context.Context, tx Tx, m *postrider.Message) error {
	return func(ctx context.Context, tx Tx, m *postrider.Message) error {
		var f crash.Fact
		if err := json.Unmarshal(m.Payload, &f); err != nil {
			return err
		}
		return session(tx).exec(ctx, "insert into effects (consumer, account, counter, transaction) values (?, ?, ?, ?)",
			consumer, f.Account, f.Counter, f.Transaction)
	}
}

// account is the account of a step.
func account(m *postrider.Message) int64 {
	var f crash.Fact
	_ = json.Unmarshal(m.Payload, &f) // addEffect reports it
	return f.Account
}

// runHandler runs a relay that delivers messages to a recorder.
func (w *world) runHandler(store store.Relay, cfg relay.Config, r *recorder) {
	w.t.Helper()
	rel := w.newRelay(store, cfg)
	if err := rel.HandleFunc("step", r.handle); err != nil {
		w.t.Fatal(err)
	}
	w.run(rel)
}

// runHandlerTx runs a relay whose handler adds effects.
func runHandlerTx[Tx any](w *world, store store.Relay, cfg relay.Config, h func(context.Context, Tx, *postrider.Message) error) {
	w.t.Helper()
	rel := w.newRelay(store, cfg)
	if err := relay.HandleTxFunc(rel, "step", h); err != nil {
		w.t.Fatal(err)
	}
	w.run(rel)
}

// startNATS starts a JetStream server that ends with the test.
func startNATS(t *testing.T) *process.Server {
	t.Helper()
	s, err := process.StartNATS(t.Context(), servertest.Get(t, servertest.NATSBin), filepath.Clean(t.TempDir()), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Kill() })
	return s
}

// runToNATS runs a relay that publishes to the stream STEPS.
func (w *world) runToNATS(store store.Relay, cfg relay.Config, broker string) {
	w.t.Helper()
	p, err := natsbroker.Open(w.t.Context(), broker, natsbroker.Config{Stream: "STEPS", Logger: testLogger(w.t)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Close() })
	cfg.Publisher = p
	w.run(w.newRelay(store, cfg))
}

// newConsumer returns a consumer of the stream STEPS, which keeps the order of each key. The stream redelivers messages
// that were not acknowledged for ackWait.
func newConsumer[Tx any](ctx context.Context, store store.Inbox[Tx], cfg inbox.ConsumerConfig, broker string, ackWait time.Duration,
	h func(context.Context, Tx, *postrider.Message) error) (*inbox.Consumer[Tx], error) {
	source, err := natsbroker.OpenSubscriber(ctx, broker, natsbroker.SubscriberConfig{
		Config: natsbroker.Config{Stream: "STEPS", Logger: cfg.Logger}, Durable: cfg.Name, Ordered: true, AckWait: ackWait,
	})
	if err != nil {
		return nil, err
	}
	in, err := inbox.New(store)
	if err != nil {
		return nil, err
	}
	c, err := inbox.NewConsumer(in, source, cfg)
	if err != nil {
		return nil, err
	}
	return c, c.HandleFunc("step", h)
}

// runConsumer runs a consumer of the stream STEPS.
func runConsumer[Tx any](w *world, store store.Inbox[Tx], name, broker string, h func(context.Context, Tx, *postrider.Message) error) {
	w.t.Helper()
	c, err := newConsumer(w.t.Context(), store, inbox.ConsumerConfig{
		Name: name, BackoffMax: 500 * time.Millisecond, StopTimeout: 5 * time.Second, Logger: testLogger(w.t),
	}, broker, 10*time.Second, h)
	if err != nil {
		w.t.Fatal(err)
	}
	w.run(c)
}

// webhookRelay is the configuration of a relay for startRelay. A message is dead-lettered after three attempts, and then
// holds its key.
func webhookRelay(name, url string) string {
	return fmt.Sprintf(`  - name: %s
    publisher: {url: %q, options: {plain_http: true, allow: 127.0.0.1, secret: %q}}
    on_dead: hold
    max_attempts: 3
    backoff_max: 500ms
`, name, url, "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
}

// redriveDead redrives dead letters, as an operator would. It may fail while the server is unavailable.
func (w *world) redriveDead(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, program, "dead", "redrive", "--all", "--yes", "--force", "--by", "test", "--store", w.url).CombinedOutput()
	if err != nil {
		return fmt.Errorf("redrive dead letters: %w\n%s", err, out)
	}
	return nil
}
