package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// text is a log buffer that can be read while it is written.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (w *text) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *text) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// started runs a consumer of one partition until the test ends, and returns it with its log.
func started(t *testing.T, b *memorybroker.Broker, source memorybroker.SubscriberConfig, cfg inbox.ConsumerConfig, h inbox.Handler[*memory.Tx]) (*inbox.Consumer[*memory.Tx], *text) {
	t.Helper()
	return startedOn(t, memory.New(memory.Config{}), b, source, cfg, h)
}

// startedFrom runs a consumer that reads a topic as a log.
func startedFrom(t *testing.T, b *memorybroker.Broker, cfg inbox.ConsumerConfig, h inbox.Handler[*memory.Tx]) (*inbox.Consumer[*memory.Tx], *text) {
	t.Helper()
	return run(t, memory.New(memory.Config{}), b, memorybroker.SubscriberConfig{Topics: []string{"t"}, Partitions: 1}, cfg, h)
}

// startedOn is started on a store.
func startedOn(t *testing.T, s store.Inbox[*memory.Tx], b *memorybroker.Broker, source memorybroker.SubscriberConfig, cfg inbox.ConsumerConfig, h inbox.Handler[*memory.Tx]) (*inbox.Consumer[*memory.Tx], *text) {
	t.Helper()
	source.Group, source.Topics, source.Partitions = "view", []string{"t"}, 1
	return run(t, s, b, source, cfg, h)
}

func run(t *testing.T, s store.Inbox[*memory.Tx], b *memorybroker.Broker, source memorybroker.SubscriberConfig, cfg inbox.ConsumerConfig, h inbox.Handler[*memory.Tx]) (*inbox.Consumer[*memory.Tx], *text) {
	t.Helper()
	subscriber, err := b.Subscriber(source)
	if err != nil {
		t.Fatal(err)
	}
	return runFrom(t, s, subscriber, cfg, h)
}

// runFrom runs a consumer of a subscriber until the test ends, and returns it with its log.
func runFrom(t *testing.T, s store.Inbox[*memory.Tx], subscriber postrider.Subscriber, cfg inbox.ConsumerConfig, h inbox.Handler[*memory.Tx]) (*inbox.Consumer[*memory.Tx], *text) {
	t.Helper()
	in, err := inbox.New(s)
	if err != nil {
		t.Fatal(err)
	}
	log := &text{}
	cfg.Name, cfg.Logger = "view", slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := inbox.NewConsumer(in, subscriber, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.HandleFunc("t", h); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	synctest.Wait()
	return c, log
}

func newBroker(t *testing.T) *memorybroker.Broker {
	t.Helper()
	b, err := memorybroker.New(memorybroker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWarnsWhenIDsAreRemovedTooSoon: a consumer compares KeepIDs with the source's redelivery window.
func TestWarnsWhenIDsAreRemovedTooSoon(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		window time.Duration
		cfg    inbox.ConsumerConfig
		want   string // "" for no warning
	}{
		"long enough":           {window: 6 * day},
		"too short":             {window: 7 * day, want: "set KeepIDs to 192h0m0s or more"},
		"too short for replays": {window: day, cfg: inbox.ConsumerConfig{ReplayWindow: 10 * day}, want: "set KeepIDs to 264h0m0s or more"},
		"kept for longer":       {window: 30 * day, cfg: inbox.ConsumerConfig{KeepIDs: 31 * day}},
		"without limit":         {want: "without limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, log := started(t, newBroker(t), memorybroker.SubscriberConfig{RedeliveryWindow: c.window}, c.cfg,
					func(context.Context, *memory.Tx, *postrider.Message) error { return nil })
				const warning = "a message may have its effect twice"
				if got := log.String(); strings.Contains(got, warning) != (c.want != "") || !strings.Contains(got, c.want) {
					t.Errorf("the log says %q, want in a warning %q", got, c.want)
				}
			})
		})
	}
}

// TestStats: a consumer counts its work.
func TestStats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		c, log := started(t, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{LocalAttempts: 1, Unhandled: inbox.SkipUnhandled},
			func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
				switch {
				case m.Key == "refused":
					return postrider.Dead("refused", errors.New("no"))
				case m.ID == "3" && m.Attempt <= 2:
					return postrider.Retry(time.Minute, errors.New("not yet"))
				}
				return nil
			})
		var msgs []*postrider.Message
		for _, m := range [][2]string{{"1", "good"}, {"2", "refused"}, {"3", "fails"}, {"4", "fails"}, {"5", "fails"}, {"6", "good"}, {"1", "good"}} {
			msgs = append(msgs, &postrider.Message{ID: m[0], Type: "t", Topic: "t", Source: "s", Key: m[1], Time: time.Now()})
		}
		msgs = append(msgs, &postrider.Message{ID: "7", Type: "another", Topic: "t", Source: "s", Time: time.Now()})
		if err := errors.Join(b.Publish(t.Context(), msgs)...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		want := inbox.Stats{Received: 8, Applied: 2, Duplicates: 1, Skipped: 1, Failed: 2, Parked: 3, Held: 2, Dead: 1}
		if got := c.Stats(); got != want {
			t.Errorf("at first:\n got %+v\nwant %+v", got, want)
		}
		if said := log.String(); !strings.Contains(said, `reason=refused cause=no`) {
			t.Errorf("the log does not say of what the message died:\n%s", said)
		}
		for _, line := range []string{
			`level=DEBUG msg="message is a duplicate" consumer=view message=1 type=t key=good`,
			`level=DEBUG msg="message is skipped" consumer=view message=7 type=another`,
		} {
			if said := log.String(); strings.Count(said, line) != 1 {
				t.Errorf("the log has not %q once:\n%s", line, said)
			}
		}
		time.Sleep(time.Hour)
		want.Applied, want.Failed = 5, 3
		if got := c.Stats(); got != want {
			t.Errorf("when what was parked is done:\n got %+v\nwant %+v", got, want)
		}
		if text, err := json.Marshal(c.Stats()); err != nil || !strings.Contains(string(text), `"applied":5,"duplicates":1`) {
			t.Errorf("as JSON: %s, %v", text, err)
		}
	})
}

// TestTransactionIsBoundedByTime: a transaction starts no further message after a third of LeaseTTL, and the consumer
// finds out how many there is time for.
func TestTransactionIsBoundedByTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 40
		b := newBroker(t)
		var mu sync.Mutex
		calls, largest, shared, took := 0, 0, make(map[*memory.Tx]int), time.Second
		c, log := started(t, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{Batch: 100},
			func(_ context.Context, tx *memory.Tx, _ *postrider.Message) error {
				mu.Lock()
				defer mu.Unlock()
				calls++
				shared[tx]++
				time.Sleep(took)
				return nil
			})
		publish := func(from int) {
			t.Helper()
			var msgs []*postrider.Message
			for i := range n {
				msgs = append(msgs, &postrider.Message{ID: fmt.Sprint(from + i), Type: "t", Topic: "t", Source: "s", Key: "k", Time: time.Now()})
			}
			if err := errors.Join(b.Publish(t.Context(), msgs)...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			largest = slices.Max(slices.Collect(maps.Values(shared)))
		}
		publish(0)
		if got := c.Stats(); got.Applied != n || got.Duplicates != 0 {
			t.Errorf("%+v\n%s", got, log)
		}
		if largest > 5 || calls > n+5 {
			t.Errorf("%d messages share a transaction, want 5; %d calls for %d messages", largest, calls, n)
		}
		mu.Lock()
		took = time.Millisecond
		mu.Unlock()
		for i := range 5 {
			publish((i + 1) * n)
		}
		if largest < n/2 {
			t.Errorf("quick messages share a transaction by %d at most", largest)
		}
	})
}

// TestSlowHandlersRunAtOnce: no worker keeps messages that another one could begin.
func TestSlowHandlersRunAtOnce(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const n, workers = 4_000, 16
			b := newBroker(t)
			var msgs []*postrider.Message
			for i := range n {
				msgs = append(msgs, &postrider.Message{ID: fmt.Sprint(i), Type: "t", Topic: "t", Source: "s", Key: fmt.Sprint(i), Time: time.Now()})
			}
			if err := errors.Join(b.Publish(t.Context(), msgs)...); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var began, ended time.Time
			c, log := startedFrom(t, b, inbox.ConsumerConfig{Concurrency: workers}, func(context.Context, *memory.Tx, *postrider.Message) error {
				mu.Lock()
				if began.IsZero() {
					began = time.Now()
				}
				mu.Unlock()
				time.Sleep(takes)
				mu.Lock()
				defer mu.Unlock()
				ended = time.Now()
				return nil
			})
			time.Sleep(3 * n / workers * takes)
			if got := c.Stats(); got.Applied != n {
				t.Fatalf("%+v\n%s", got, log)
			}
			if took, least := ended.Sub(began), n/workers*takes; float64(least) < 0.85*float64(took) {
				t.Errorf("handlers of %s took %s together, at least %s: %.2f of the most possible", takes, took, least, float64(least)/float64(took))
			}
		})
	}
}

// endingStore ends the context of the consumer during its first access to the database.
type endingStore struct {
	*memory.Store
	end context.CancelFunc
}

func (s endingStore) Enroll(ctx context.Context, _ string) error {
	s.end()
	return ctx.Err()
}

func TestRunReturnsNilIfItsContextEndsWhileItBegins(t *testing.T) {
	t.Parallel()
	b, err := memorybroker.New(memorybroker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // the end of the context is noticed by another goroutine, later or not
		ctx, end := context.WithCancel(t.Context())
		subscriber, err := b.Subscriber(memorybroker.SubscriberConfig{Group: "view", Topics: []string{"t"}, Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		in, err := inbox.New(endingStore{memory.New(memory.Config{}), end})
		if err != nil {
			t.Fatal(err)
		}
		c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "view", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.HandleFunc("t", func(context.Context, *memory.Tx, *postrider.Message) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := c.Run(ctx); err != nil {
			t.Fatalf("run: %v", err)
		}
	}
}

// TestPausedConsumer: a consumer that is paused processes nothing, not even what it has parked and not right after a restart.
func TestPausedConsumer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := newBroker(t), memory.New(memory.Config{})
		publish := func(id string) {
			m := &postrider.Message{ID: id, Type: "t", Topic: "t", Source: "s", Key: id, Time: time.Now()}
			if err := errors.Join(b.Publish(t.Context(), []*postrider.Message{m})...); err != nil {
				t.Fatal(err)
			}
		}
		fails := func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
			if m.Attempt <= 2 && m.ID == "fails" {
				return postrider.Retry(time.Minute, errors.New("not yet"))
			}
			return nil
		}
		first, _ := startedOn(t, s, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{LocalAttempts: 1}, fails)
		time.Sleep(time.Minute)
		publish("fails")
		time.Sleep(time.Second)
		if _, err := pause.New(s).Pause(t.Context(), pause.Request{Relay: "view", By: "ann", Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		publish("waits")
		second, _ := startedOn(t, s, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{LocalAttempts: 1}, fails)
		time.Sleep(time.Hour)
		if a, b := first.Stats(), second.Stats(); a.Applied+b.Applied != 0 || a.Failed != 1 || a.Parked != 1 {
			t.Errorf("during the pause: %+v and %+v", a, b)
		}
		if _, err := pause.New(s).Resume(t.Context(), "view"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if a, b := first.Stats(), second.Stats(); a.Applied+b.Applied != 2 {
			t.Errorf("after the pause: %+v and %+v", a, b)
		}
	})
}
