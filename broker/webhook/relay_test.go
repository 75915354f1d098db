package webhook_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	poststore "github.com/postrider/postrider/store"
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

// send runs a relay to a URL until the end of the test.
func send(t *testing.T, store *memory.Store, url string, cfg relay.Config) {
	t.Helper()
	cfg.Name, cfg.Publisher = "to-partner", open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback})
	cfg.Logger = slog.New(slog.DiscardHandler)
	r, err := relay.New(store, cfg)
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
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// whenDown signals that the destination was found to be down.
func whenDown(down chan<- struct{}) *observe.Relay {
	return &observe.Relay{DestinationChanged: func(d poststore.Destination) {
		if d.State == poststore.DestinationDown {
			select {
			case down <- struct{}{}:
			default:
			}
		}
	}}
}

// TestPoisonedKeysDoNotStopOthers: the receiver answers 500 to the messages of 1,500 keys and 200 to all others, which arrive
// while the failing ones are retried.
func TestPoisonedKeysDoNotStopOthers(t *testing.T) {
	t.Parallel()
	poisonedKeys(t, http.StatusInternalServerError, 1500)
}

// TestKeysThatFailTheGatewayDoNotStopOthers: the messages of 30 keys end the receiver's process, a gateway answers 502, and nothing else
// shows that the receiver is there. As soon as messages of other keys come, one of them is a probe, and all arrive.
func TestKeysThatFailTheGatewayDoNotStopOthers(t *testing.T) {
	t.Parallel()
	poisonedKeys(t, http.StatusBadGateway, 30)
}

func poisonedKeys(t *testing.T, status, poisoned int) {
	t.Helper()
	const others = 200
	var mu sync.Mutex
	arrived := make(map[string]bool)
	down := make(chan struct{}, 1)
	refused, all := make(chan struct{}, 2*poisoned), make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		id := req.Header.Get("Idempotency-Key")
		if strings.HasPrefix(id, "bad") {
			w.WriteHeader(status)
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
	send(t, store, url, relay.Config{MaxAttempts: 1000, Observer: whenDown(down)})
	patience := time.After(time.Minute)
	for n := range poisoned + 10 { // until the retries have begun
		select {
		case <-refused:
		case <-patience:
			t.Fatalf("waited a minute for %d answers to failing messages, got %d", poisoned+10, n)
		}
	}
	if status == http.StatusBadGateway { // nothing shows that the receiver is there, until the others come
		select {
		case <-down:
		case <-patience:
			t.Fatal("waited a minute for the destination to be down")
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

// TestGatewayWithoutAReceiver: a gateway answers in place of a receiver that is not there, without Retry-After. The destination is
// down, and messages use up no more attempts, however long that takes. Then all arrive.
func TestGatewayWithoutAReceiver(t *testing.T) {
	t.Parallel()
	const keys = 20
	var back atomic.Bool
	answers := make(chan struct{}, 1000)
	arrived := make(chan string, 10*keys)
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if back.Load() {
			arrived <- req.Header.Get("Idempotency-Key")
			return
		}
		w.WriteHeader([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}[len(answers)%3])
		answers <- struct{}{}
	})
	store := memory.New(memory.Config{Partitions: 4})
	commit(t, store, "m", keys)
	down := make(chan struct{}, 1)
	observer := whenDown(down)
	observer.Attempted = func(_ context.Context, a observe.Attempted) {
		for _, at := range a.Attempts {
			if at.Outcome == observe.AttemptDead {
				t.Errorf("message %s was dead-lettered during the outage: %s", at.Message.ID, at.Reason)
			}
		}
	}
	send(t, store, url, relay.Config{Observer: observer})
	patience := time.After(time.Minute)
	select {
	case <-down:
	case <-patience:
		t.Fatalf("waited a minute for the destination to be down; the gateway answered %d times", len(answers))
	}
	for len(answers) > 0 {
		<-answers
	}
	for range 3 { // probes find the same
		select {
		case <-answers:
		case <-patience:
			t.Fatal("waited a minute for probes")
		}
	}
	back.Store(true)
	ids := make(map[string]bool)
	for len(ids) < keys {
		select {
		case id := <-arrived:
			ids[id] = true
		case <-time.After(time.Minute):
			t.Fatalf("waited a minute for %d messages after the outage, %d arrived", keys, len(ids))
		}
	}
}
