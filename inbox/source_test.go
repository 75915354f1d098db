package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// outboxes is an outbox in one database and a consumer of it in another.
type outboxes struct {
	t        *testing.T
	from, to *memory.Store
	c        *inbox.Consumer[*memory.Tx]
	handled  *text // messages whose handlers have returned, unless they were told to give up
}

func newOutboxes(t *testing.T, from, to memory.Config) *outboxes {
	if from.Partitions == 0 {
		from.Partitions = 1
	}
	return &outboxes{t: t, from: memory.New(from), to: memory.New(to), handled: &text{}}
}

// commit adds messages to the outbox, each with its key as its ID, or with what follows the key in it.
func (o *outboxes) commit(ids ...string) {
	o.t.Helper()
	var msgs []*postrider.Message
	for _, id := range ids {
		key, _, _ := strings.Cut(id, "/")
		msgs = append(msgs, &postrider.Message{ID: id, Type: "t", Topic: "t", Key: key, Time: time.Now(), Payload: []byte("{}")})
	}
	tx, err := o.from.Begin(o.t.Context())
	if err == nil {
		err = errors.Join(o.from.Insert(o.t.Context(), tx, msgs), o.from.Commit(o.t.Context(), tx))
	}
	if err != nil {
		o.t.Fatal(err)
	}
	o.from.Wake()
}

// consume runs the consumer until the test ends, or stop is called. Handlers of messages whose ID begins with "hang" return when released is
// closed.
func (o *outboxes) consume(source relay.Config, cfg inbox.ConsumerConfig, released chan struct{}) (stop func()) {
	o.t.Helper()
	return o.consumeFrom(o.from, source, cfg, released)
}

func (o *outboxes) consumeFrom(from store.Relay, source relay.Config, cfg inbox.ConsumerConfig, released chan struct{}) (stop func()) {
	o.t.Helper()
	source.Name, source.Logger = "to-view", slog.New(slog.DiscardHandler)
	reads, err := inbox.FromRelay(from, source)
	if err != nil {
		o.t.Fatal(err)
	}
	in, err := inbox.New(o.to)
	if err != nil {
		o.t.Fatal(err)
	}
	cfg.Name, cfg.Logger, cfg.AttemptTimeout = "view", slog.New(slog.DiscardHandler), 24*time.Hour
	if o.c, err = inbox.NewConsumer(in, reads, cfg); err != nil {
		o.t.Fatal(err)
	}
	if err := o.c.HandleFunc("t", func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error {
		if strings.HasPrefix(m.ID, "hang") {
			<-released
		}
		if ctx.Err() == nil {
			fmt.Fprintf(o.handled, "[%s]", m.ID)
		}
		return nil
	}); err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c, done := o.c, make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			o.t.Logf("run: %v", err)
		}
	})
	o.t.Cleanup(stop)
	return stop
}

// wantInOrder checks that the messages of a key were handled once each, in order.
func (o *outboxes) wantInOrder(key string, n int) {
	o.t.Helper()
	var got, want []string
	for id := range strings.SplitSeq(strings.Trim(o.handled.String(), "[]"), "][") {
		if strings.HasPrefix(id, key+"/") {
			got = append(got, id)
		}
	}
	for i := range n {
		want = append(want, fmt.Sprintf("%s/%d", key, i+1))
	}
	if !slices.Equal(got, want) {
		o.t.Errorf("handled %v, want %v", got, want)
	}
}

// state is what the relay that reads the outbox has recorded.
func (o *outboxes) state() store.RelayStatus {
	o.t.Helper()
	st, err := o.from.Status(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	i := slices.IndexFunc(st.Relays, func(r store.RelayStatus) bool { return r.Name == "to-view" })
	if i < 0 {
		o.t.Fatal("the relay is unknown")
	}
	return st.Relays[i]
}

// TestSlowMessageOfAnOutbox: a handler hangs. The messages of other keys that were read together with its message are done, and so are
// those after them; those of its own key wait: hang/2 is taken back. However long the handler takes, it runs once, and no attempt is counted.
func TestSlowMessageOfAnOutbox(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]relay.Config{"16 calls": {}, "one call": {Concurrency: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := newOutboxes(t, memory.Config{}, memory.Config{})
				released := make(chan struct{})
				o.commit("hang/1", "hang/2", "a/1")
				o.consume(source, inbox.ConsumerConfig{}, released)
				time.Sleep(time.Second)
				o.commit("a/2", "b/1", "hang/3")
				time.Sleep(20 * time.Second)
				if got := o.handled.String(); got != "[a/1][a/2][b/1]" && got != "[a/1][b/1][a/2]" {
					t.Errorf("handled %s while a handler hangs, want a/1, a/2 and b/1", got)
				}
				time.Sleep(3 * time.Hour)
				o.commit("b/2")
				time.Sleep(20 * time.Second)
				if got := o.handled.String(); !strings.HasSuffix(got, "[b/2]") {
					t.Errorf("handled %s after three hours, want b/2 as well", got)
				}
				if st := o.state(); st.Failed != 0 || st.Backlog.N != 0 {
					t.Errorf("%+v", st)
				}
				close(released)
				time.Sleep(time.Minute)
				if got := o.handled.String(); !strings.HasSuffix(got, "[hang/1][hang/2][hang/3]") {
					t.Errorf("handled %s after the handler has returned", got)
				}
				if st, s := o.state(), o.c.Stats(); st.Parked.N != 0 || st.Failed != 0 || s.Lost != 1 || s.Applied != 7 || s.Received != 7+1 {
					t.Errorf("%+v, %+v", st, s)
				}
			})
		})
	}
}

// TestMemoryAfterASlowMessageOfAnOutbox: what is taken back from a key whose handler hangs takes no memory, so its handler is not interrupted.
func TestMemoryAfterASlowMessageOfAnOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutboxes(t, memory.Config{}, memory.Config{})
		released := make(chan struct{})
		for i := range 40 {
			o.commit(fmt.Sprintf("hang/%d", i))
		}
		o.consume(relay.Config{}, inbox.ConsumerConfig{MaxInFlight: 40}, released)
		time.Sleep(time.Minute)
		o.commit("a/1")
		time.Sleep(time.Minute)
		if got := o.handled.String(); got != "[a/1]" {
			t.Errorf("handled %s while a handler hangs, want a/1", got)
		}
		close(released)
		time.Sleep(time.Minute)
		if got, st := o.handled.String(), o.state(); !strings.HasPrefix(got, "[a/1][hang/0][hang/1]") || strings.Count(got, "[") != 41 || st.Failed != 0 {
			t.Errorf("handled %s after the handler has returned; %+v", got, st)
		}
	})
}

// TestGateAfterAnOutbox: what waits for a gate in the memory of the consumer is not slow, and nothing is parked.
func TestGateAfterAnOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, g := newOutboxes(t, memory.Config{}, memory.Config{}), &gate{}
		g.free.Store(1)
		released := make(chan struct{})
		o.commit("hang/1", "a/1", "b/1")
		o.consume(relay.Config{}, inbox.ConsumerConfig{Gate: g}, released)
		time.Sleep(time.Second)
		g.free.Store(0)
		time.Sleep(time.Minute)
		if st := o.state(); st.Parked.N != 0 || o.handled.String() != "" {
			t.Errorf("%d messages are parked, handled %s; want all to wait", st.Parked.N, o.handled.String())
		}
		close(released)
		g.free.Store(1)
		time.Sleep(5 * time.Minute)
		if st := o.state(); o.c.Stats().Applied != 3 || st.Backlog.N+st.Parked.N+st.Failed != 0 {
			t.Errorf("%+v, %+v", st, o.c.Stats())
		}
	})
}

// TestSlowMessageAfterAGate: a message on which the consumer works for long has passed the gate of the relay that reads the outbox. It keeps
// no others back.
func TestSlowMessageAfterAGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, g := newOutboxes(t, memory.Config{}, memory.Config{}), &gate{}
		g.free.Store(1)
		released := make(chan struct{})
		o.commit("hang/1", "hang/2", "a/1", "a/2")
		o.consume(relay.Config{Gate: g}, inbox.ConsumerConfig{}, released)
		time.Sleep(30 * time.Second)
		o.wantInOrder("a", 2)
		close(released)
		time.Sleep(time.Minute)
		o.wantInOrder("hang", 2)
	})
}

// TestLeaseLostWithASlowMessage: the outbox's database is away for so long that the lease ends, while a handler hangs. Then all is read and
// handed over again, and has its effect once.
func TestLeaseLostWithASlowMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		o := newOutboxes(t, memory.Config{Fault: func(string, bool) error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		}}, memory.Config{})
		released := make(chan struct{})
		o.commit("hang/1", "hang/2", "a/1")
		o.consume(relay.Config{}, inbox.ConsumerConfig{}, released)
		time.Sleep(20 * time.Second)
		away.Store(true)
		time.Sleep(time.Minute)
		away.Store(false)
		time.Sleep(time.Minute)
		o.commit("a/2", "b/1")
		time.Sleep(20 * time.Second)
		if got := o.handled.String(); got != "[a/1][a/2][b/1]" && got != "[a/1][b/1][a/2]" {
			t.Errorf("handled %s while a handler hangs, want a/1, a/2 and b/1", got)
		}
		close(released)
		time.Sleep(time.Minute)
		if st, s := o.state(), o.c.Stats(); s.Applied != 5 || st.Backlog.N+st.Parked.N+st.Failed != 0 {
			t.Errorf("handled %s, %+v, %+v", o.handled.String(), st, s)
		}
		o.wantInOrder("hang", 2)
	})
}

// TestLeaseLostByOneOfTwo: another instance takes the lease while a handler of the first hangs. It handles the other keys, and those of the
// message that hangs in order: whichever instance commits it, what follows it is committed later, once.
func TestLeaseLostByOneOfTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		o := newOutboxes(t, memory.Config{}, memory.Config{})
		first := faultyRelay{Store: o.from, away: &away}
		released := make(chan struct{})
		o.commit("hang/1", "hang/2", "a/1")
		o.consumeFrom(first, relay.Config{}, inbox.ConsumerConfig{}, released)
		time.Sleep(20 * time.Second)
		away.Store(true)
		o.consume(relay.Config{}, inbox.ConsumerConfig{}, released)
		time.Sleep(time.Minute)
		o.commit("a/2", "b/1")
		time.Sleep(20 * time.Second)
		close(released)
		time.Sleep(time.Minute)
		o.wantInOrder("hang", 2)
		o.wantInOrder("a", 2)
		o.wantInOrder("b", 1)
		if st := o.state(); st.Backlog.N+st.Parked.N+st.Failed != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// faultyRelay is a process's connection to an outbox, which it may lose.
type faultyRelay struct {
	*memory.Store
	away *atomic.Bool
}

func (s faultyRelay) Heartbeat(ctx context.Context, name string, owner store.Owner, ttl time.Duration) (store.View, error) {
	if s.away.Load() {
		return store.View{}, errors.New("away")
	}
	return s.Store.Heartbeat(ctx, name, owner, ttl)
}

func (s faultyRelay) Settle(ctx context.Context, name string, all []store.Settlement) (store.Settled, error) {
	if s.away.Load() {
		return store.Settled{}, errors.New("away")
	}
	return s.Store.Settle(ctx, name, all)
}

// TestStopWithASlowMessage: a consumer stops while a handler hangs. The next one handles its message, and those after it, in order.
func TestStopWithASlowMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutboxes(t, memory.Config{}, memory.Config{})
		released := make(chan struct{})
		o.commit("hang/1", "hang/2", "a/1")
		stop := o.consume(relay.Config{}, inbox.ConsumerConfig{StopTimeout: time.Second}, released)
		time.Sleep(20 * time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the stop took %s", took)
		}
		o.consume(relay.Config{}, inbox.ConsumerConfig{}, released)
		time.Sleep(time.Minute)
		close(released)
		time.Sleep(time.Minute)
		o.wantInOrder("hang", 2)
		o.wantInOrder("a", 1)
		if st := o.state(); st.Backlog.N+st.Parked.N+st.Failed != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestSlowProbeOfAnOutbox: the consumer's database is down for so long that its relay takes the consumer for unavailable, and the message that
// probes hangs. Others probe, and are done.
func TestSlowProbeOfAnOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		o := newOutboxes(t, memory.Config{}, memory.Config{Fault: func(op string, _ bool) error {
			if op == "Begin" && away.Load() {
				return errors.New("away")
			}
			return nil
		}})
		released := make(chan struct{})
		o.commit("hang/1", "hang/2")
		o.consume(relay.Config{AttemptTimeout: 10 * time.Second}, inbox.ConsumerConfig{}, released)
		time.Sleep(30 * time.Second)
		if st := o.state(); st.Parked.N != 0 || st.Owners[0].Destination.State != store.DestinationDown {
			t.Errorf("%d messages are parked, and the consumer is %s; want it to be down", st.Parked.N, st.Owners[0].Destination.State)
		}
		o.commit("a/1", "a/2")
		away.Store(false)
		time.Sleep(time.Minute)
		o.wantInOrder("a", 2)
		close(released)
		time.Sleep(time.Minute)
		o.wantInOrder("hang", 2)
		if st := o.state(); st.Backlog.N+st.Parked.N+st.Failed != 0 {
			t.Errorf("%+v", st)
		}
	})
}
