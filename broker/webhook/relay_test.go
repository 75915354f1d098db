package webhook_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// commit publishes n messages of different keys in one transaction.
func commit(t *testing.T, store *memory.Store, kind string, n int) {
	t.Helper()
	tx, err := store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var msgs []*postrider.Message
	for i := range n {
		m := message()
		m.ID, m.Key, m.Time = fmt.Sprint(kind, i), fmt.Sprint(kind, "/", i), time.Now()
		msgs = append(msgs, m)
	}
	if err := store.Insert(t.Context(), tx, msgs); err != nil {
		t.Fatal(err)
	}
	if err := store.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	store.Wake()
}

// TestPoisonedKeysDoNotStopOthers: the receiver answers 500 to the messages of 1,500 keys and 200 to all others, which arrive
// while the failing ones are retried.
func TestPoisonedKeysDoNotStopOthers(t *testing.T) {
	t.Parallel()
	const poisoned, others = 1500, 200
	var mu sync.Mutex
	arrived := make(map[string]bool)
	refused, all := make(chan struct{}, 2*poisoned), make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		id := req.Header.Get("Idempotency-Key")
		if strings.HasPrefix(id, "bad") {
			w.WriteHeader(http.StatusInternalServerError)
			select {
			case refused <- struct{}{}:
			default:
			}
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if arrived[id] = true; len(arrived) == others {
			close(all)
		}
	})
	store := memory.New(memory.Config{Partitions: 4})
	commit(t, store, "bad", poisoned)
	r, err := relay.New(store, relay.Config{
		Name: "to-partner", Publisher: open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback}),
		MaxAttempts: 1000, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	patience := time.After(time.Minute)
	for n := range poisoned + 10 { // until the retries have begun
		select {
		case <-refused:
		case <-patience:
			t.Fatalf("waited a minute for %d answers to failing messages, got %d", poisoned+10, n)
		}
	}
	began := time.Now()
	commit(t, store, "good", others)
	select {
	case <-all:
		t.Logf("%d messages arrived within %s", others, time.Since(began).Round(time.Millisecond))
	case <-patience:
		mu.Lock()
		defer mu.Unlock()
		t.Errorf("waited a minute for %d messages of keys that do not fail, %d arrived", others, len(arrived))
	}
}

// TestReceiverThatAsksToWait: a receiver that asks to wait for three keys in a row is unavailable for that time. It is available for
// others as long as it asks only for one key, and as soon as it answers otherwise.
func TestReceiverThatAsksToWait(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if strings.HasPrefix(req.Header.Get("Idempotency-Key"), "good") {
			return
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	p := open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback})
	for i, step := range []struct {
		key  string
		want postrider.OutcomeKind
	}{
		{"one", postrider.Retried}, {"one", postrider.Retried}, {"one", postrider.Retried}, {"two", postrider.Retried},
		{"good", postrider.Delivered},
		{"one", postrider.Retried}, {"two", postrider.Retried}, {"three", postrider.BrokerUnavailable}, {"one", postrider.BrokerUnavailable},
		{"good", postrider.Delivered}, {"four", postrider.Retried},
	} {
		m := message()
		m.ID, m.Key = fmt.Sprint(step.key, i), step.key
		var err error
		if errs := p.Publish(t.Context(), []*postrider.Message{m}); errs != nil {
			err = errs[0]
		}
		o := postrider.OutcomeOf(err)
		if o.Kind != step.want || o.Kind != postrider.Delivered && o.After != 7*time.Second {
			t.Errorf("step %d, key %s: %v after %s, want %v", i, step.key, o.Kind, o.After, step.want)
		}
	}
}
