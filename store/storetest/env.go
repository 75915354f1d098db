package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

const (
	// longTTL is for leases that must not end during a test, shortTTL for those that must.
	longTTL  = 10 * time.Minute
	shortTTL = 400 * time.Millisecond
	// patience limits the wait for something that must happen; it is longer in a bubble, where waiting costs nothing.
	patience, bubblePatience = 5 * time.Minute, 10 * time.Minute
)

// env is one test's database and everything the test needs to use it. Its methods end the test on a failure.
type env struct {
	t   *testing.T
	ctx context.Context
	database
	deadletter.Store
	suite      *suite
	partitions int
	made       int // number of messages made
	holders    map[string]*worker
}

// until waits for a condition.
func (e *env) until(what string, condition func() bool) {
	e.t.Helper()
	limit := e.longer(bubblePatience, patience)
	began := time.Now()
	for !condition() {
		waited := time.Since(began)
		if waited > limit {
			e.t.Fatalf("%s: not within %s", what, limit)
		}
		// Most conditions read the database: the longer the wait, the fewer looks.
		<-time.After(min(max(waited/8, 10*time.Millisecond), 100*time.Millisecond))
	}
}

// clockMoves waits until d has passed.
func (e *env) clockMoves(d time.Duration) {
	e.t.Helper()
	began := time.Now()
	e.until("the clock moves", func() bool { return time.Since(began) > d })
}

// message makes a message with all fields that Publish would set.
func (e *env) message(key string) *postrider.Message {
	e.made++
	return &postrider.Message{
		ID: fmt.Sprintf("m-%06d", e.made), Type: "order.placed", Topic: "orders", Source: "storetest", Key: key,
		Time: time.Now().UTC().Truncate(time.Microsecond), ContentType: "application/json", Payload: []byte(`{"n":1}`),
	}
}

// messages makes n messages of a key.
func (e *env) messages(key string, n int) []*postrider.Message {
	var out []*postrider.Message
	for range n {
		out = append(out, e.message(key))
	}
	return out
}

func (e *env) open() transaction {
	e.t.Helper()
	tx, err := e.begin(e.ctx)
	e.must(err, "begin")
	return tx
}

func (e *env) insert(tx transaction, msgs ...*postrider.Message) {
	e.t.Helper()
	e.must(tx.insert(e.ctx, msgs...), "insert")
}

func (e *env) commit(tx transaction) {
	e.t.Helper()
	e.must(tx.commit(e.ctx), "commit")
}

// publish writes messages in a transaction of their own and returns their IDs.
func (e *env) publish(msgs ...*postrider.Message) []string {
	e.t.Helper()
	tx := e.open()
	e.insert(tx, msgs...)
	e.commit(tx)
	return ids(msgs)
}

// publishKeys publishes one message for each key and returns the messages' IDs.
func (e *env) publishKeys(keys ...string) []string {
	e.t.Helper()
	var msgs []*postrider.Message
	for _, key := range keys {
		msgs = append(msgs, e.message(key))
	}
	return e.publish(msgs...)
}

func (e *env) partition(key string) int { return postrider.PartitionOf(key, "", e.partitions) }

func (e *env) allPartitions() []int {
	var out []int
	for p := range e.partitions {
		out = append(out, p)
	}
	return out
}

// keysOf returns n different keys of one partition.
func (e *env) keysOf(partition, n int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		if key := fmt.Sprintf("order/%d", i); e.partition(key) == partition {
			out = append(out, key)
		}
	}
	return out
}

// worker reads and settles all partitions, as one process of a relay does.
type worker struct {
	*env
	relay  string
	owner  store.Owner
	leases map[int]store.Lease
	read   map[int]store.Cursor // how far each partition was fetched
	number map[int]int64        // of the last settlement of each partition
}

func owner(id string) store.Owner { return store.Owner{ID: id, Host: "host-" + id, Version: "test"} }

// worker leases all partitions, which must be free.
func (e *env) worker(name, id string) *worker {
	e.t.Helper()
	return e.workerFrom(name, id, fromOldest)
}

func (e *env) workerFrom(name, id string, fromNow bool) *worker {
	e.t.Helper()
	w := &worker{env: e, relay: name, owner: owner(id),
		leases: make(map[int]store.Lease), read: make(map[int]store.Cursor), number: make(map[int]int64)}
	if _, err := e.Heartbeat(e.ctx, name, w.owner, longTTL); err != nil {
		e.t.Fatalf("heartbeat of %s: %v", id, err)
	}
	leases, err := e.Acquire(e.ctx, name, w.owner, store.AcquireRequest{Claims: claims(e.allPartitions()...), TTL: longTTL, FromNow: fromNow})
	e.must(err, "acquire")
	if len(leases) != e.partitions {
		e.t.Fatalf("%s acquired %d of %d partitions, although nobody else holds one", id, len(leases), e.partitions)
	}
	for _, l := range leases {
		w.leases[l.Partition], w.read[l.Partition], w.number[l.Partition] = l, l.Cursor, l.Settled
	}
	if e.holders == nil {
		e.holders = make(map[string]*worker)
	}
	e.holders[name] = w
	return w
}

// claims requests the leases of partitions, each under a new token.
func claims(partitions ...int) []store.LeaseClaim {
	out := make([]store.LeaseClaim, len(partitions))
	for i, p := range partitions {
		out[i] = store.LeaseClaim{Partition: p, Token: store.NewToken()}
	}
	return out
}

// ref returns the reference to the worker's lease of a partition.
func (w *worker) ref(partition int) store.LeaseRef {
	l := w.leases[partition]
	return store.LeaseRef{Partition: partition, Token: l.Token}
}

// decide makes an operator's decision; the relay's worker, if there is one, applies it.
func (e *env) decide(name, key string, verb store.Verb, reason string) (count int, err error) {
	d := store.Decision{ID: store.NewToken(), Relay: name, Key: key, Verb: verb, By: "olga", Reason: reason}
	if w := e.holders[name]; w != nil {
		if err := held.New(e).RecordDecision(e.ctx, d); err != nil {
			return 0, err
		}
		if err := held.New(e).Apply(e.ctx, name, w.ref(e.partition(key)), d.ID); err != nil && !errors.Is(err, store.ErrLeaseLost) {
			return 0, err
		}
	}
	d, err = held.Decide(e.ctx, e.database, d)
	return d.Count, err
}

func (e *env) retry(name, key string) error {
	_, err := e.decide(name, key, store.VerbRetry, "")
	return err
}

func (e *env) skip(name, key, reason string) error {
	_, err := e.decide(name, key, store.VerbSkip, reason)
	return err
}

func (e *env) dead(name, key, reason string, all bool) (int, error) {
	if all {
		return e.decide(name, key, store.VerbDeadAll, reason)
	}
	return e.decide(name, key, store.VerbDead, reason)
}

// takeOver ends a worker without further settlements and begins another.
func (w *worker) takeOver(id string) *worker {
	w.t.Helper()
	w.must(w.Leave(w.ctx, w.relay, w.owner), "leave")
	return w.worker(w.relay, id)
}

// fetch continues reading in all partitions.
func (w *worker) fetch(limit, maxBytes int) []store.Batch {
	w.t.Helper()
	req := store.FetchRequest{Limit: limit, MaxBytes: maxBytes}
	for p := range w.partitions {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: w.ref(p), After: w.read[p]})
	}
	batches, err := w.Fetch(w.ctx, w.relay, req)
	w.must(err, "fetch")
	seen := make(map[int]bool)
	for _, b := range batches {
		if b.Lost {
			w.t.Fatalf("fetch: partition %d counts as lost, but %s holds it", b.Partition, w.owner.ID)
		}
		if seen[b.Partition] {
			w.t.Fatalf("fetch returned partition %d twice", b.Partition)
		}
		seen[b.Partition] = true
		w.checkBatch(b, w.read[b.Partition], limit)
		w.read[b.Partition] = b.Next
	}
	return batches
}

// checkBatch checks what must hold for every batch.
func (w *worker) checkBatch(b store.Batch, after store.Cursor, limit int) {
	w.t.Helper()
	if len(b.Entries) > limit {
		w.t.Fatalf("partition %d: %d records, asked for at most %d", b.Partition, len(b.Entries), limit)
	}
	if b.Late < 0 || b.Late > len(b.Entries) {
		w.t.Fatalf("partition %d: %d late of %d records", b.Partition, b.Late, len(b.Entries))
	}
	last := int64(0)
	for i, r := range b.Entries {
		m := r.Message
		if late := i < b.Late; late != (m.Sequence <= after.Position) {
			w.t.Fatalf("partition %d: record %d of %d with sequence %d after position %d, of which %d are late",
				b.Partition, i, len(b.Entries), m.Sequence, after.Position, b.Late)
		}
		if i == b.Late {
			last = after.Position
		}
		if m.Sequence <= last {
			w.t.Fatalf("partition %d: sequence %d follows %d", b.Partition, m.Sequence, last)
		}
		last = m.Sequence
		if p := postrider.PartitionOf(m.Key, m.ID, w.partitions); p != b.Partition && m.Type != store.ErasedType {
			w.t.Fatalf("message %s with key %q came in partition %d, belongs to %d", m.ID, m.Key, b.Partition, p)
		}
		if m.Attempt != 0 || r.Attempts != 0 || r.Reason != "" {
			w.t.Fatalf("message %s comes from the log with attempt %d, attempts %d, reason %q", m.ID, m.Attempt, r.Attempts, r.Reason)
		}
	}
}

// drain fetches until nothing is left and returns the records; those of one partition are in delivery order.
func (w *worker) drain() []store.Entry {
	w.t.Helper()
	var out []store.Entry
	for {
		more := false
		for _, b := range w.fetch(1_000, 16<<20) {
			out = append(out, b.Entries...)
			more = more || b.More || len(b.Entries) > 0
		}
		if !more {
			return out
		}
	}
}

// settle records outcomes in one partition, under the worker's lease, which must be valid.
func (w *worker) settle(st store.Settlement) store.Settled {
	w.t.Helper()
	w.number[st.Partition]++
	return w.repeat(st)
}

// repeat settles with the number of the partition's last settlement, as after a lost response.
func (w *worker) repeat(st store.Settlement) store.Settled {
	w.t.Helper()
	out := w.send(st)
	if len(out.Lost)+len(out.Failed) > 0 {
		w.t.Fatalf("settle partition %d, which %s holds: %+v", st.Partition, w.owner.ID, out)
	}
	return out
}

// send settles with the number of the partition's last settlement and returns the result, whatever it is.
func (w *worker) send(st store.Settlement) store.Settled {
	w.t.Helper()
	st.Token, st.Number = w.leases[st.Partition].Token, w.number[st.Partition]
	out, err := w.Settle(w.ctx, w.relay, []store.Settlement{st})
	w.must(err, "settle")
	return out
}

// settleRead settles everything fetched as delivered.
func (w *worker) settleRead() {
	w.t.Helper()
	for p, c := range w.read {
		w.settle(store.Settlement{Partition: p, Cursor: c, Moved: true})
	}
}

// due asks for all due work in all partitions.
func (w *worker) due() store.DueResult {
	w.t.Helper()
	return w.dueOf(store.DueRequest{Runs: 1_000, RunLength: 1_000, MaxBytes: 16 << 20})
}

func (w *worker) dueOf(req store.DueRequest) store.DueResult {
	w.t.Helper()
	return w.dueIn(req, w.allPartitions()...)
}

func (w *worker) dueIn(req store.DueRequest, partitions ...int) store.DueResult {
	w.t.Helper()
	for _, p := range partitions {
		req.Leases = append(req.Leases, w.ref(p))
	}
	out, err := w.Due(w.ctx, w.relay, req)
	w.must(err, "due")
	if len(out.Lost) > 0 {
		w.t.Fatalf("due: partitions %v count as lost, but %s holds them", out.Lost, w.owner.ID)
	}
	return out
}

func ids(msgs []*postrider.Message) []string {
	var out []string
	for _, m := range msgs {
		out = append(out, m.ID)
	}
	return out
}

func recordIDs(records []store.Entry) []string {
	var out []string
	for _, r := range records {
		out = append(out, r.Message.ID)
	}
	return out
}

// wantIDs compares IDs, including their order.
func (e *env) wantIDs(what string, got, want []string) {
	e.t.Helper()
	if !slices.Equal(got, want) {
		e.t.Fatalf("%s:\n got %s\nwant %s", what, brief(got), brief(want))
	}
}

// wantSet compares IDs regardless of their order, including how often each occurs.
func (e *env) wantSet(what string, got, want []string) {
	e.t.Helper()
	e.wantIDs(what, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

func brief(ids []string) string {
	if len(ids) > 40 {
		return fmt.Sprintf("%s … (%d)", strings.Join(ids[:40], " "), len(ids))
	}
	return fmt.Sprintf("%s (%d)", strings.Join(ids, " "), len(ids))
}
