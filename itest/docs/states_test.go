package docs_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestStates makes everything happen to messages that can, and compares the observed transitions with the diagram in
// docs/architecture.md: they must be equal.
func TestStates(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[transition]bool{}
	_, drawing, _ := strings.Cut(string(text), "stateDiagram-v2")
	drawing, _, _ = strings.Cut(drawing, "```")
	for _, m := range regexp.MustCompile(`(\S+) --> (\w+)`).FindAllStringSubmatch(drawing, -1) {
		drawn[transition{m[1], m[2]}] = true
	}
	synctest.Test(t, func(t *testing.T) {
		seen := observe(t)
		for s := range maps.Keys(seen) {
			if !drawn[s] {
				t.Errorf("seen and not drawn: %s", s)
			}
		}
		for d := range maps.Keys(drawn) {
			if !seen[d] {
				t.Errorf("drawn and not seen: %s", d)
			}
		}
	})
}

// TestParkReasons: the table in docs/architecture.md has every reason.
func TestParkReasons(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(filepath.Join(root, "store/parked.go"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range regexp.MustCompile(`ParkReason = "(\w+)"`).FindAllStringSubmatch(string(code), -1) {
		want = append(want, m[1])
	}
	_, table, _ := strings.Cut(string(text), "| reason | waits for |")
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the table has %q, the code %q", got, want)
	}
}

type transition struct{ from, to string }

func (t transition) String() string { return t.from + " --> " + t.to }

// observer is a store that records what happens to messages.
type observer struct {
	*memory.Store
	mu    sync.Mutex
	state map[int64]string
	seen  map[transition]bool
}

// to records that a message is in a state. Being parked again is a transition; repeating any other state is not.
func (o *observer) to(state string, sequences ...int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seq := range sequences {
		from, known := o.state[seq]
		if !known {
			from = "[*]"
		}
		if from != state || state == "parked" {
			o.seen[transition{from, state}] = true
		}
		o.state[seq] = state
	}
}

func (o *observer) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	batches, err := o.Store.Fetch(ctx, name, req)
	for _, b := range batches {
		for _, r := range b.Entries {
			o.to("waiting", r.Message.Sequence)
		}
	}
	return batches, err
}

func (o *observer) Settle(ctx context.Context, name string, all []store.Settlement) (store.Settled, error) {
	settled, err := o.Store.Settle(ctx, name, all)
	for _, s := range all {
		if err != nil || slices.Contains(settled.Lost, s.Partition) {
			continue
		}
		for _, p := range s.Parked {
			o.to("parked", p.Sequence)
		}
		for _, d := range s.Dead {
			if d.Discarded {
				o.to("discarded", d.Sequence)
			} else {
				o.to("dead", d.Sequence)
			}
		}
		o.to("delivered", slices.Concat(s.Delivered, s.Removed)...)
	}
	return settled, err
}

// running is an interceptor.
func (o *observer) running(next postrider.Handler) postrider.Handler {
	return func(ctx context.Context, m *postrider.Message) error {
		o.mu.Lock()
		dead := o.state[m.Sequence] == "dead"
		o.mu.Unlock()
		if dead { // it was sent back, and is here before the operator has heard of it
			o.to("parked", m.Sequence)
		}
		o.to("running", m.Sequence)
		return next(ctx, m)
	}
}

// decided records what an operator's decision has changed, according to the dead letters.
func (o *observer) decided(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for l, err := range deadletter.New(o).ListDead(t.Context(), store.DeadFilter{State: store.DeadAny}, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		o.mu.Lock()
		was, seq := o.state[l.Message.Sequence], l.Message.Sequence
		o.mu.Unlock()
		switch {
		case l.State == store.DeadRedriven && was == "dead":
			o.to("parked", seq)
		case l.State == store.DeadDiscarded && (was == "dead" || was == "parked"):
			o.to("discarded", seq)
		case l.State == store.DeadOpen && was == "parked":
			o.to("dead", seq)
		}
	}
}

// observe runs the scenario in a synctest bubble, where time passes at once, and returns the observed transitions.
func observe(t *testing.T) map[transition]bool {
	t.Helper()
	o := &observer{Store: memory.New(memory.Config{}), state: map[int64]string{}, seen: map[transition]bool{}}
	ob, err := outbox.New(o.Store, outbox.Config{Source: "docs"})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(messages ...*postrider.Message) {
		t.Helper()
		if _, err := ob.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			_, err := ob.Publish(ctx, tx, messages...)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}

	r, ended := start(t, o, behave)
	publish(
		&postrider.Message{Type: "delivered"},
		&postrider.Message{Type: "fails once", Key: "flows again"},
		&postrider.Message{Type: "delivered", Key: "flows again"},
		&postrider.Message{Type: "slow"},
		&postrider.Message{Type: "is obsolete"},
		&postrider.Message{Type: "dies", Key: "redriven"},
		&postrider.Message{Type: "dies", Key: "discarded"},
		&postrider.Message{Type: "put off", Key: "skipped"},
		&postrider.Message{Type: "put off", Key: "given up"},
		&postrider.Message{Type: "put off", Key: "delayed"},
		&postrider.Message{Type: "delivered", Key: "delayed", DeliverAfter: time.Minute},
	)
	time.Sleep(5 * time.Minute)
	_, err = deadletter.New(o).RedriveDead(t.Context(), store.DeadFilter{Key: "redriven"}, "operator", 0)
	o.decided(t, err)
	_, err = deadletter.New(o).DiscardDead(t.Context(), store.DeadFilter{Key: "discarded"}, "operator", "not needed", 0)
	o.decided(t, err)
	_, err = held.Decide(t.Context(), o.Store, store.Decision{Relay: "docs", Key: "skipped", Verb: store.VerbSkip, By: "operator", Reason: "not needed"})
	o.decided(t, err)
	_, err = held.Decide(t.Context(), o.Store, store.Decision{Relay: "docs", Key: "given up", Verb: store.VerbDead, By: "operator", Reason: "needs a look"})
	o.decided(t, err)
	time.Sleep(2 * time.Hour)

	publish(&postrider.Message{Type: "hangs"})
	time.Sleep(time.Second)
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := r.Stop(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Stop: %v, want that the handler had to be cut short", err)
	}
	<-ended
	again, ended := start(t, o, func(context.Context, *postrider.Message) error { return nil })
	time.Sleep(time.Minute)
	if err := again.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
	return o.seen
}

// behave does what the message's type says.
func behave(ctx context.Context, m *postrider.Message) error {
	switch m.Type {
	case "fails once":
		if m.Attempt == 1 {
			return errors.New("no")
		}
	case "slow":
		time.Sleep(10 * time.Second)
	case "dies":
		return postrider.Dead("unfit", nil)
	case "is obsolete":
		return postrider.Discard("obsolete", nil)
	case "put off":
		if m.Attempt == 1 {
			return postrider.Retry(time.Hour, errors.New("not yet"))
		}
	case "hangs":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// start runs a relay with a handler for every message type of the scenario.
func start(t *testing.T, o *observer, h postrider.Handler) (*relay.Relay, <-chan error) {
	t.Helper()
	r, err := relay.New(o, relay.Config{
		Name: "docs", Interceptors: []relay.Interceptor{o.running}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, messageType := range []string{"delivered", "fails once", "slow", "is obsolete", "dies", "put off", "hangs"} {
		if err := r.HandleFunc(messageType, h); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.WithoutCancel(t.Context())) }()
	return r, ended
}
