package postridertest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// Flow carries messages in memory, through the same code as in production: outbox, relay, broker, inbox. Time is virtual: waits of
// minutes take no time, see testing/synctest. Methods that fail end the test.
type Flow struct {
	t       *testing.T
	faults  []Fault
	store   *memory.Store
	broker  *memorybroker.Broker
	outbox  *outbox.Outbox[*memory.Tx]
	logger  *slog.Logger
	life    context.Context
	running sync.WaitGroup

	started   bool
	consumers []*consumer
}

// EachFault runs a scenario as subtests: without a fault, with each of Faults, and with all of them at once. A service is idempotent
// if the scenario, with the same expectations, passes in all.
func EachFault(t *testing.T, scenario func(t *testing.T, f *Flow)) {
	t.Helper()
	run := func(name string, faults ...Fault) {
		t.Run(name, func(t *testing.T) { Run(t, scenario, faults...) })
	}
	run("no fault")
	for _, f := range Faults() {
		run(string(f), f)
	}
	run("all faults", Faults()...)
}

// Run runs a scenario in a Flow of its own with faults. The scenario runs in a bubble of testing/synctest: it must not use the network,
// and t.Run, t.Parallel and t.Deadline are not available in it.
func Run(t *testing.T, scenario func(t *testing.T, f *Flow), faults ...Fault) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		life, stop := context.WithCancel(t.Context())
		f := newFlow(t, life, faults)
		defer f.running.Wait()
		defer stop()
		scenario(t, f)
	})
}

func newFlow(t *testing.T, life context.Context, faults []Fault) *Flow {
	t.Helper()
	f := &Flow{t: t, faults: faults, life: life, store: memory.New(memory.Config{})}
	f.logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	if f.broker, err = memorybroker.New(memorybroker.Config{}); err != nil {
		t.Fatal(err)
	}
	if f.outbox, err = outbox.New(f.store, outbox.Config{Source: "flow", Logger: f.logger}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Flow) has(fault Fault) bool { return slices.Contains(f.faults, fault) }

// Outbox returns the outbox that services publish to, within handlers too. Its Config.Source is "flow".
func (f *Flow) Outbox() *outbox.Outbox[*memory.Tx] { return f.outbox }

// Store returns the database of all services of the flow.
func (f *Flow) Store() *memory.Store { return f.store }

// Broker returns the broker between the relay and the consumers.
func (f *Flow) Broker() *memorybroker.Broker { return f.broker }

// Publish publishes messages in a transaction of their own.
func (f *Flow) Publish(msgs ...*postrider.Message) {
	f.t.Helper()
	_, err := f.outbox.InTx(f.t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		_, err := f.outbox.Publish(ctx, tx, msgs...)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// Consume adds a consumer of topics. register adds its handlers, as the service does in production; it is called for each process
// of the consumer, so again after a crash. Call Consume before the first Wait.
func (f *Flow) Consume(name string, topics []string, register func(c *inbox.Consumer[*memory.Tx]) error) {
	f.t.Helper()
	if f.started {
		f.t.Fatalf("consumer %s: call Consume before the first Wait", name)
	}
	c := &consumer{flow: f, name: name, topics: topics, register: register}
	c.beforeCommit.enabled, c.beforeAck.enabled = f.has(CrashBeforeCommit), f.has(CrashBeforeAck)
	if _, _, err := c.begin(func() {}); err != nil {
		f.t.Fatal(err)
	}
	f.consumers = append(f.consumers, c)
}

// patience is how long Wait waits, in virtual time: longer than all attempts of a message take.
const patience = 2 * time.Hour

// Wait waits until every message is processed or dead-lettered, also those that handlers publish meanwhile. The first call starts
// the relay and the consumers. It ends the test if something is left after two hours of virtual time, e.g. because there is no
// handler for a message.
func (f *Flow) Wait() {
	f.t.Helper()
	f.start()
	left := "not started"
	for waited, step := time.Duration(0), 10*time.Millisecond; waited < patience; waited, step = waited+step, min(2*step, 10*time.Second) {
		time.Sleep(step)
		synctest.Wait()
		if left = f.left(); left == "" {
			return
		}
	}
	f.t.Fatalf("the flow has not ended after %s of virtual time: %s", patience, left)
}

// DeadLetters returns the dead letters of the relay and all consumers, oldest first, without those of PoisonedMessage.
func (f *Flow) DeadLetters() []store.DeadLetter {
	f.t.Helper()
	var out []store.DeadLetter
	for d, err := range deadletter.New(f.store).ListDead(f.t.Context(), store.DeadFilter{}, 0, 0) {
		if err != nil {
			f.t.Fatal(err)
		}
		if d.Message.Type != poisonType {
			out = append(out, d)
		}
	}
	return out
}

// poisonType is the type of messages of PoisonedMessage.
const poisonType = "postridertest.poison"

// start starts everything, with the faults.
func (f *Flow) start() {
	f.t.Helper()
	if f.started {
		return
	}
	f.started = true
	var publisher postrider.Publisher = f.broker
	if f.has(LostAnswer) {
		loseAnswers(f.broker)
	}
	if f.has(Duplicate) {
		publisher = twice{f.broker}
	}
	if f.has(BrokerDown) {
		f.broker.SetUnavailable(errDown)
		f.running.Go(func() {
			sleep(f.life, 30*time.Second)
			f.broker.SetUnavailable(nil)
		})
	}
	r, err := relay.New(f.store, relay.Config{Name: "relay", Publisher: publisher, Logger: f.logger})
	if err != nil {
		f.t.Fatal(err)
	}
	f.running.Go(func() {
		if err := r.Run(f.life); err != nil {
			f.t.Errorf("relay: %v", err)
		}
	})
	for _, c := range f.consumers {
		if f.has(PoisonedMessage) {
			c.poison()
		}
		f.running.Go(c.run)
	}
}

// left says what the flow still has to do, "" if nothing.
func (f *Flow) left() string {
	f.t.Helper()
	status, err := f.store.Status(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	var left []string
	for _, r := range status.Relays {
		if r.Backlog.N+r.Parked.N > 0 {
			left = append(left, fmt.Sprintf("%s %s has %d waiting and %d parked messages", r.Kind, r.Name, r.Backlog.N, r.Parked.N))
		}
	}
	for _, c := range f.consumers {
		if why := c.ready(); why != nil {
			left = append(left, why.Error())
		}
		if open := f.broker.Unsettled(c.name); len(open) > 0 {
			left = append(left, fmt.Sprintf("consumer %s has not settled %s", c.name, strings.Join(open, ", ")))
		}
	}
	return strings.Join(left, "; ")
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
