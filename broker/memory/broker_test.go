package memorybroker_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	memorybroker "github.com/postrider/postrider/broker/memory"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	configs := map[string]struct {
		cfg      memorybroker.Config
		features brokertest.Features
	}{
		"plain":  {memorybroker.Config{}, brokertest.Features{NoDedupe: true, NoSizeLimit: true}},
		"limits": {memorybroker.Config{MaxBatch: 7, MaxMessageBytes: 64 << 10, DedupeWindow: time.Hour}, brokertest.Features{}},
	}
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// There is no connection to drop, to lose messages, or to pause.
			c.features.NoDrop, c.features.NoLoseMessages, c.features.NoPause = true, true, true
			brokertest.Run(t, c.features, func(t *testing.T) brokertest.Harness { return harness(t, c.cfg) })
		})
	}
}

// harness maps the broker's faults to message IDs.
func harness(t *testing.T, cfg memorybroker.Config) brokertest.Harness {
	b, err := memorybroker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	before, after := make(map[string]bool), make(map[string]bool)
	mark := func(marked map[string]bool) func(ids ...string) {
		return func(ids ...string) {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				marked[id] = true
			}
		}
	}
	b.FailWhen(func(m *postrider.Message) (error, error) {
		mu.Lock()
		defer mu.Unlock()
		if before[m.ID] {
			delete(before, m.ID)
			return errors.New("refused"), nil
		}
		if after[m.ID] {
			delete(after, m.ID)
			return nil, errors.New("acknowledgement lost")
		}
		return nil, nil
	})
	return brokertest.Harness{
		Publisher: b,
		Close:     b.Close,
		Arrived:   func(_ testing.TB, topic string) []*postrider.Message { return b.Messages(topic) },
		Refuse:    mark(before),
		LoseAcks:  mark(after),
		Stop:      func(testing.TB) { b.SetUnavailable(errors.New("stopped")) },
		Start:     func(testing.TB) { b.SetUnavailable(nil) },
	}
}

func open(t *testing.T, cfg memorybroker.Config) *memorybroker.Broker {
	t.Helper()
	b, err := memorybroker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func numbered(n int) []*postrider.Message {
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		msgs[i] = &postrider.Message{ID: strconv.Itoa(i + 1), Topic: "numbers"}
	}
	return msgs
}

func arrived(b *memorybroker.Broker) string {
	var ids strings.Builder
	for _, m := range b.Messages("numbers") {
		ids.WriteString(m.ID)
	}
	return ids.String()
}

func TestFailNth(t *testing.T) {
	t.Parallel()
	b := open(t, memorybroker.Config{})
	refused, lost := errors.New("refused"), errors.New("lost")
	b.FailBefore(2, refused)
	b.FailAfter(3, lost)
	errs := b.Publish(t.Context(), numbered(4))
	if errs[0] != nil || errs[1] != refused || errs[2] != lost || errs[3] != nil {
		t.Errorf("errors = %v, want the second refused and the third lost", errs)
	}
	if got := arrived(b); got != "134" {
		t.Errorf("arrived %s, want 134", got)
	}
	if errs := b.Publish(t.Context(), numbered(4)); errs != nil {
		t.Errorf("a fault came twice: %v", errs)
	}
}

func TestHoldAcks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memorybroker.Config{})
		release := make(chan struct{})
		b.HoldAcks(release)
		done := make(chan []error, 1)
		go func() { done <- b.Publish(t.Context(), numbered(1)) }()
		synctest.Wait()
		if len(done) != 0 || arrived(b) != "1" {
			t.Fatalf("returned: %v, arrived %q; want no return, and 1", len(done) != 0, arrived(b))
		}
		close(release)
		if errs := <-done; errs != nil {
			t.Errorf("errors = %v", errs)
		}

		b.HoldAcks(make(chan struct{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if errs := b.Publish(ctx, numbered(1)); !errors.Is(errs[0], context.DeadlineExceeded) {
			t.Errorf("error = %v, want that of the context", errs[0])
		}
	})
}

func TestDedupeWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memorybroker.Config{DedupeWindow: time.Minute})
		b.Publish(t.Context(), numbered(1))
		time.Sleep(time.Minute - 1) // on the bubble's clock
		b.Publish(t.Context(), numbered(1))
		if got := arrived(b); got != "1" {
			t.Errorf("within the window arrived %s, want 1", got)
		}
		time.Sleep(1)
		b.Publish(t.Context(), numbered(1))
		if got := arrived(b); got != "11" {
			t.Errorf("after the window arrived %s, want 11", got)
		}
	})
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memorybroker.Config{})
		msgs := numbered(3)
		b.Publish(t.Context(), msgs[:2])
		var got strings.Builder
		var reader sync.WaitGroup
		reader.Go(func() {
			for m := range b.Subscribe(t.Context(), "numbers") {
				got.WriteString(m.ID)
			}
		})
		synctest.Wait()
		b.Publish(t.Context(), msgs[2:])
		synctest.Wait()
		if got.String() != "123" {
			t.Errorf("got %s, want 123", got.String())
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		reader.Wait()
	})
}

// TestCopies checks that neither the publisher nor a reader can change stored messages.
func TestCopies(t *testing.T) {
	t.Parallel()
	b := open(t, memorybroker.Config{})
	m := &postrider.Message{ID: "1", Topic: "copies", Payload: []byte("a"), Headers: map[string]string{"h": "a"}}
	b.Publish(t.Context(), []*postrider.Message{m})
	for range 2 {
		m.Payload[0], m.Headers["h"], m.ID = 'b', "b", "2"
		m = b.Messages("copies")[0]
		if string(m.Payload) != "a" || m.Headers["h"] != "a" || m.ID != "1" {
			t.Fatalf("kept message was changed to %+v", m)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := memorybroker.New(memorybroker.Config{MaxBatch: -1, MaxMessageBytes: -1, DedupeWindow: -1})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("error = %v, want all three faults", err)
	}
}
