package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

const benchParked = 100_000

// BenchmarkDue asks for what is due of 100,000 parked messages, by themselves or each with a held key: none, or 100 of them, which are
// then parked again.
func BenchmarkDue(b *testing.B) {
	for _, keys := range []bool{false, true} {
		b.Run(fmt.Sprintf("keys=%t/due=0", keys), func(b *testing.B) {
			p := park(b, keys, time.Hour)
			b.ReportAllocs()
			for b.Loop() {
				if due := p.due(b, 100); len(due.Runs) > 0 || due.Next <= 0 {
					b.Fatalf("%d are due, the next in %s", len(due.Runs), due.Next)
				}
			}
		})
		b.Run(fmt.Sprintf("keys=%t/due=100", keys), func(b *testing.B) {
			p := park(b, keys, -time.Hour)
			b.ReportAllocs()
			for b.Loop() {
				p.again(b, p.due(b, 100).Runs)
			}
		})
	}
}

// parkedBench is a relay with parked messages.
type parkedBench struct {
	*memory.Store
	leases      []store.Lease
	settlements int64
	after       time.Duration
}

// park returns a relay with 100,000 parked messages, due at random times around after from now.
func park(b *testing.B, keys bool, after time.Duration) *parkedBench {
	p := &parkedBench{Store: memory.New(memory.Config{}), after: after}
	ctx, req := b.Context(), store.AcquireRequest{TTL: time.Hour}
	for partition := range memory.DefaultPartitions {
		req.Claims = append(req.Claims, store.LeaseClaim{Partition: partition, Token: store.NewToken()})
	}
	var err error
	p.leases, err = p.Acquire(ctx, "r", store.Owner{ID: "a"}, req)
	must(b, err)
	msgs := make([]*postrider.Message, benchParked)
	for i := range msgs {
		if msgs[i] = (&postrider.Message{ID: fmt.Sprint(i), Type: "t", Topic: "t"}); keys {
			msgs[i].Key = fmt.Sprint("key ", i)
		}
	}
	tx, err := p.Begin(ctx)
	must(b, err)
	must(b, p.Insert(ctx, tx, msgs))
	must(b, p.Commit(ctx, tx))
	fetch := store.FetchRequest{Limit: benchParked, MaxBytes: 1 << 30}
	for _, l := range p.leases {
		fetch.Partitions = append(fetch.Partitions, store.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
	}
	batches, err := p.Fetch(ctx, "r", fetch)
	must(b, err)
	runs := make([]store.ParkedRun, 0, benchParked)
	for _, batch := range batches {
		for _, e := range batch.Entries {
			runs = append(runs, store.ParkedRun{Partition: batch.Partition, Key: e.Message.Key, Entries: []store.Entry{e}})
		}
	}
	p.again(b, runs)
	return p
}

// due asks for what is due.
func (p *parkedBench) due(b *testing.B, runs int) store.DueResult {
	req := store.DueRequest{Runs: runs, RunLength: 100, MaxBytes: 16 << 20}
	for _, l := range p.leases {
		req.Leases = append(req.Leases, l.Ref())
	}
	due, err := p.Due(b.Context(), "r", req)
	must(b, err)
	return due
}

// again parks messages for a random time.
func (p *parkedBench) again(b *testing.B, runs []store.ParkedRun) {
	p.settlements++
	sts := make([]store.Settlement, len(p.leases))
	for i, l := range p.leases {
		sts[i] = store.Settlement{Partition: l.Partition, Token: l.Token, Number: p.settlements}
	}
	for _, run := range runs {
		st, m, after := &sts[run.Partition], run.Entries[0].Message, p.after+rand.N(time.Minute)
		parked := store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkRetry, Waits: m.Key != "", Attempts: 1}
		if m.Key == "" {
			parked.After = after
		} else {
			st.Held = append(st.Held, store.HeldKey{Key: m.Key, Sequence: m.Sequence, Reason: store.ParkRetry, After: after})
		}
		st.Parked = append(st.Parked, parked)
	}
	settled, err := p.Settle(b.Context(), "r", sts)
	must(b, err)
	if len(settled.Lost)+len(settled.Failed) > 0 {
		b.Fatalf("settle: %+v", settled)
	}
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCloseSagaRuns closes one run of a participant that has records of 10,000.
func BenchmarkCloseSagaRuns(b *testing.B) {
	s, ctx := memory.New(memory.Config{}), b.Context()
	run := func(i int) string { return fmt.Sprint("run ", i%10_000) }
	in := func(f func(tx *memory.Tx) error) {
		tx, err := s.Begin(ctx)
		must(b, err)
		must(b, f(tx))
		must(b, s.Commit(ctx, tx))
	}
	for i := range 10_000 {
		in(func(tx *memory.Tx) error {
			step := store.SagaStep{Run: run(i), Step: "reserve"}
			return s.SaveSagaRecords(ctx, tx, "p", []store.SagaRecord{{SagaStep: step, State: store.SagaStepDone}})
		})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in(func(tx *memory.Tx) error { return s.CloseSagaRuns(ctx, tx, "p", []string{run(i)}) })
	}
}
