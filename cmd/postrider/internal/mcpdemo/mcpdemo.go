// Package mcpdemo is an outbox on which an agent can try its tools: a shop and a relay to a broker in this process, both of which the agent
// breaks and corrects. Nothing of it leaves the process.
package mcpdemo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// Relay is the name of the relay.
const Relay = "to-broker"

const (
	// orders is how many orders a step places.
	orders = 5
	// lease is short, so that the status of the broker is known soon.
	lease = 3 * time.Second
	// patience is how long a step waits until its messages have arrived, failed or wait.
	patience = 20 * time.Second
)

// World is the shop, its outbox, the relay and the broker.
type World struct {
	Outbox *backend.Temporary
	relay  *relay.Relay
	stop   context.CancelFunc
	ran    sync.WaitGroup

	step sync.Mutex // one at a time

	mu     sync.Mutex
	next   int  // number of the next order
	broken bool // the broker refuses orders
	away   bool // the broker does not answer
}

// Open opens the shop, with its outbox in a new file in dir.
func Open(ctx context.Context, dir string) (*World, error) {
	w := &World{next: 1}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if w.Outbox, err = backend.OpenTemporary(ctx, config.Store{URL: "sqlite:" + filepath.Join(dir, "shop.db")}, "shop", quiet); err != nil {
		return nil, err
	}
	w.relay, err = relay.New(w.Outbox, relay.Config{
		Name: Relay, Publisher: w, LeaseTTL: lease, MaxAttempts: 2, BackoffBase: 50 * time.Millisecond, Logger: quiet,
	})
	if err == nil {
		err = w.relay.Background(func(ctx context.Context) { deadletter.New(w.Outbox).Run(ctx, quiet) })
	}
	if err != nil {
		return nil, errors.Join(err, w.Outbox.Remove())
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.ran.Go(func() { _ = w.relay.Run(ctx) }) // ends with ctx
	return w, nil
}

// Close ends the relay and removes the outbox.
func (w *World) Close() error {
	w.stop()
	w.ran.Wait()
	return w.Outbox.Remove()
}

// Capabilities implements postrider.Publisher.
func (w *World) Capabilities() postrider.Capabilities { return postrider.Capabilities{Ordered: true} }

// Publish implements postrider.Publisher: the broker takes orders with a currency, unless it is away.
func (w *World) Publish(_ context.Context, msgs []*postrider.Message) []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		switch {
		case w.away:
			errs[i] = postrider.Unavailable(errors.New("dial tcp 127.0.0.1:4222: connect: connection refused"))
		case w.broken:
			errs[i] = fmt.Errorf("400 bad request: %s has no currency", m.Key)
		}
	}
	return errs
}

// Step is something that an agent can have happen.
type Step struct {
	// Name is what the agent calls it; Does says what happens.
	Name, Does string
	take       func(w *World, ctx context.Context) (Done, error)
}

// Steps are all steps. An investigation takes them in this order.
var Steps = []Step{
	{"place_orders", "the shop places 5 orders, and the broker gets their messages", (*World).place},
	{"stop_broker", "the broker does not answer from then on; 5 orders are placed, whose messages wait in the outbox", (*World).stopBroker},
	{"start_broker", "the broker answers again, and gets what waits", (*World).startBroker},
	{"break_orders", "the broker refuses orders from then on, since they have no currency; 5 orders become dead letters", (*World).breakOrders},
	{"correct_orders", "the broker takes orders again; what is dead-lettered stays so until it is redriven", (*World).correctOrders},
}

// Done is what a step did.
type Done struct {
	Step string `json:"step"`
	// Did says it in a sentence; Next says what to look at.
	Did  string   `json:"did"`
	Next string   `json:"next"`
	IDs  []string `json:"message_ids,omitempty"`
}

// Take carries out a step, and waits until its effect can be seen.
func (w *World) Take(ctx context.Context, name string) (Done, error) {
	w.step.Lock()
	defer w.step.Unlock()
	for _, s := range Steps {
		if s.Name == name {
			return s.take(w, ctx)
		}
	}
	return Done{}, fmt.Errorf("there is no step %q", name)
}

// set changes what is broken.
func (w *World) set(change func(w *World)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// order places orders, and returns the IDs of their messages.
func (w *World) order(ctx context.Context) ([]string, error) {
	var msgs []*postrider.Message
	w.set(func(w *World) {
		for range orders {
			msgs = append(msgs, &postrider.Message{
				Type: "order.placed", Topic: "orders", Key: fmt.Sprintf("order/%d", w.next), Payload: fmt.Appendf(nil, `{"number":%d,"total":1200}`, w.next),
			})
			w.next++
		}
	})
	return w.Outbox.Publish(ctx, "shop", msgs)
}

// until waits until the status of the relay is as a function says.
func (w *World) until(ctx context.Context, seen func(store.RelayStatus) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the effect cannot be seen after %s", patience))
	defer cancel()
	for {
		status, err := w.Outbox.Status(ctx)
		if err != nil {
			return err
		}
		for _, r := range status.Relays {
			if r.Name == Relay && seen(r) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
