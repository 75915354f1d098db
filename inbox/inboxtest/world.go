package inboxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
)

const (
	partitions  = 4
	messageType = "order.placed"
	topic       = "orders"
	consumer    = "view"
	// lease is long enough to be renewed on a machine that opens a database within a quarter of it; a slower one gets
	// longer leases, up to maxLease. A bubble loses no time, and each tick of a wait for a lease's end costs.
	lease, maxLease, bubbleLease = time.Second, 15 * time.Second, 300 * time.Millisecond
	// patience is how long to wait for something that must happen; it is longer in a bubble, where waiting costs nothing.
	patience, bubblePatience = 5 * time.Minute, 10 * time.Minute
)

var errBoom = errors.New("boom")

// relayOwner is a process of a relay.
var relayOwner = store.Owner{ID: "relay", Host: "host"}

// world is one test's database and broker.
type world[Tx any] struct {
	t      testing.TB
	ctx    context.Context
	h      Harness[Tx]
	store  Store[Tx]
	outbox *outbox.Outbox[Tx]
	broker *memorybroker.Broker
	opened time.Duration // how long opening the store took
	made   int
	killed sync.WaitGroup // goroutines and settlements that outlive their process
	log    postrider.Log  // what a process reads without a group
	// emptied has the keys all of whose messages an operator has moved to the dead letters.
	emptied map[string]bool
}

func newWorld[Tx any](t testing.TB, h Harness[Tx]) *world[Tx] {
	ctx := context.WithoutCancel(t.Context()) // processes are stopped in cleanups
	began := time.Now()
	w := &world[Tx]{t: t, ctx: ctx, h: h, store: h.Open(t), emptied: make(map[string]bool)}
	w.opened = time.Since(began)
	var err error
	w.outbox, err = outbox.New(w.store, outbox.Config{Source: "inboxtest"})
	w.must(err, "outbox")
	w.broker, err = memorybroker.New(memorybroker.Config{})
	w.must(err, "broker")
	t.Cleanup(w.killed.Wait)
	return w
}

func (w *world[Tx]) must(err error, doing string) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", doing, err)
	}
}

// until waits for a condition.
func (w *world[Tx]) until(what string, condition func() bool) {
	w.t.Helper()
	limit := patience
	if w.h.Bubble {
		limit = bubblePatience
	}
	began := time.Now()
	for !condition() {
		waited := time.Since(began)
		if waited > limit {
			w.t.Fatalf("%s: not within %s", what, limit)
		}
		// Most conditions read the database: the longer the wait, the fewer looks.
		<-time.After(min(max(waited/8, 5*time.Millisecond), 100*time.Millisecond))
	}
}

func (w *world[Tx]) lease() time.Duration {
	if w.h.Bubble {
		return bubbleLease
	}
	return min(max(lease, 4*w.opened), maxLease)
}

// keptLease is for a process whose leases nobody waits for: it releases them when it stops.
func (w *world[Tx]) keptLease() time.Duration {
	if w.h.Bubble {
		return bubbleLease
	}
	return maxLease
}

// elapse lets time pass.
func (w *world[Tx]) elapse(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// message returns a new message, with an ID of its number and key: "3:a".
func (w *world[Tx]) message(key string) *postrider.Message {
	w.made++
	return &postrider.Message{
		ID: fmt.Sprintf("%d:%s", w.made, key), Type: messageType, Topic: topic, Source: "inboxtest", Key: key,
		Time: time.Now().UTC().Truncate(time.Microsecond), ContentType: "application/json", Payload: []byte(`{}`),
	}
}

// send publishes a message to the broker for each key and returns their IDs.
func (w *world[Tx]) send(keys ...string) []string {
	w.t.Helper()
	var msgs []*postrider.Message
	for _, key := range keys {
		msgs = append(msgs, w.message(key))
	}
	w.publish(msgs...)
	return ids(msgs)
}

func (w *world[Tx]) publish(msgs ...*postrider.Message) {
	w.t.Helper()
	for _, err := range w.broker.Publish(w.ctx, msgs) {
		w.must(err, "publish")
	}
}

func ids(msgs []*postrider.Message) []string {
	var out []string
	for _, m := range msgs {
		out = append(out, m.ID)
	}
	return out
}

// effect is what the default handler writes to the database: a message with the ID of the handled one, published in the
// transaction.
func (w *world[Tx]) effect(ctx context.Context, tx Tx, m *postrider.Message) error {
	_, err := w.outbox.Publish(ctx, tx, &postrider.Message{ID: m.ID, Type: "effect", Key: m.Key})
	return err
}

// decided is the reason of operators' decisions.
const decided = "decided"

// decide applies an operator's decision to a held key.
func (w *world[Tx]) decide(key string, verb store.Verb) error {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	_, err := held.Decide(ctx, w.store, store.Decision{Relay: consumer, Key: key, Verb: verb, By: "olga", Reason: decided})
	return err
}

// committed reads the committed effects, in the order in which they were written.
func (w *world[Tx]) committed() []*postrider.Message {
	w.t.Helper()
	req := store.FetchRequest{Limit: 100_000, MaxBytes: 1 << 30}
	for p := range partitions {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: store.LeaseRef{Partition: p}})
	}
	batches, err := w.store.Fetch(w.ctx, "", req)
	w.must(err, "fetch the effects")
	var out []*postrider.Message
	for _, b := range batches {
		for _, r := range b.Entries {
			out = append(out, r.Message)
		}
	}
	slices.SortFunc(out, func(a, b *postrider.Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return out
}

func (w *world[Tx]) effects() []string { return ids(w.committed()) }

// keyOf is the key of a message created by message.
func keyOf(id string) string {
	_, key, _ := strings.Cut(id, ":")
	return key
}

// effectsOf are the effects of one key.
func (w *world[Tx]) effectsOf(key string) []string {
	return slices.DeleteFunc(w.effects(), func(id string) bool { return !strings.HasSuffix(id, ":"+key) })
}

// untilEffects waits for these effects, in any order.
func (w *world[Tx]) untilEffects(want ...string) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("effects: %v", w.effects())
		}
	}()
	w.until(fmt.Sprint("effects ", want), func() bool { return len(w.effects()) >= len(want) })
	w.wantSet("effects", w.effects(), want)
}

// untilQuiet waits until the broker has nothing unsettled, and nothing is parked.
func (w *world[Tx]) untilQuiet() {
	w.t.Helper()
	w.until("everything is settled", func() bool {
		if len(w.unsettled()) > 0 {
			return false
		}
		st := w.status() // after the broker: a message is parked before it is settled there
		return st.Parked.N == 0 && st.Held.N == 0
	})
}

func (w *world[Tx]) status() store.RelayStatus {
	w.t.Helper()
	st, err := w.store.Status(w.ctx)
	w.must(err, "status")
	for _, r := range st.Relays {
		if r.Name == consumer {
			return r
		}
	}
	return store.RelayStatus{}
}

func (w *world[Tx]) held() []store.HeldInfo {
	w.t.Helper()
	var out []store.HeldInfo
	for h, err := range held.New(w.store).ListHeld(w.ctx, consumer) {
		w.must(err, "list held keys")
		out = append(out, h)
	}
	return out
}

func (w *world[Tx]) deadLetters(state store.DeadState) []store.DeadLetter {
	w.t.Helper()
	var out []store.DeadLetter
	for l, err := range deadletter.New(w.store).ListDead(w.ctx, store.DeadFilter{Relay: consumer, State: state}, 0, 0) {
		w.must(err, "list dead letters")
		out = append(out, l)
	}
	return out
}

func (w *world[Tx]) want(what string, got, want []string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func (w *world[Tx]) wantSet(what string, got, want []string) {
	w.t.Helper()
	w.want(what, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}
