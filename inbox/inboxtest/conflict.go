package inboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
)

// deadlockOfBatches: two consumers lock the same rows, a row for each message, in opposite orders. Where messages share transactions,
// these wait for each other; then none counts as failed, and each of the next messages has a transaction of its own.
func deadlockOfBatches[Tx any](w *world[Tx]) {
	if w.oneWriter() {
		return
	}
	want := w.send(slices.Repeat([]string{"a"}, 12)...)
	var mu sync.Mutex
	used := make(map[string][]any) // the transactions of each consumer
	var first sync.WaitGroup       // each has a row
	start := func(name string, rows []string) *process[Tx] {
		first.Add(1)
		had := sync.OnceFunc(first.Done)
		s := setting[Tx]{cfg: inbox.ConsumerConfig{Name: name, Batch: 20, MaxAttempts: 1}}
		s.source.Partitions = 1
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			mu.Lock()
			used[name] = append(used[name], tx)
			mu.Unlock()
			row := m.ID
			if i := slices.Index(want, m.ID); i >= 0 {
				row = rows[i]
			}
			_, err := w.store.Claim(ctx, tx, "rows", []store.ClaimRequest{{ID: row}})
			had()
			first.Wait()
			return err
		}
		return w.build(s)
	}
	backwards := slices.Clone(want)
	slices.Reverse(backwards)
	both := []*process[Tx]{start("forwards", want), start("backwards", backwards)}
	for _, p := range both {
		w.run(p)
	}
	processed := func(n int64) func() bool {
		return func() bool { return both[0].Stats().Applied == n && both[1].Stats().Applied == n }
	}
	w.until("all are processed", processed(12))
	mu.Lock()
	clear(used)
	mu.Unlock()
	w.send(slices.Repeat([]string{"a"}, 5)...)
	w.until("the later ones too", processed(17))
	conflicts := int64(0)
	for i, name := range []string{"forwards", "backwards"} {
		n := both[i].connection.conflicts.Load()
		conflicts += n
		mu.Lock()
		if txs := slices.Compact(used[name]); n > 0 && len(txs) != 5 { // of one key, so one after another
			w.t.Errorf("after a deadlock, %s used %d transactions for 5 messages", name, len(txs))
		}
		mu.Unlock()
		if st := both[i].Stats(); st.Failed+st.Dead+st.Parked > 0 {
			w.t.Errorf("%s: %+v, want no failed attempt", name, st)
		}
	}
	if conflicts == 0 {
		w.t.Error("there was no deadlock")
	}
}

// undoneByTheDatabase: in the middle of a batch the database rolls back the whole transaction.
func undoneByTheDatabase[Tx any](w *world[Tx]) {
	if w.h.Undo == nil {
		return
	}
	for _, log := range []bool{false, true} {
		w := newWorld(w.t, w.h)
		var j journal
		bad, undone := "", 2 // with all others; and within a savepoint, which does not help in a conflict
		s := setting[Tx]{log: log, cfg: inbox.ConsumerConfig{Batch: 20}}
		s.source.Partitions = 1
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if m.ID != bad || j.note(m) > undone {
				return w.effect(ctx, tx, m)
			}
			err := w.h.Undo(ctx, w.store, tx)
			if w.store.Conflicted(err) {
				undone = 1
			}
			return err
		}
		want := w.send("a", "b", "", "a", "b")
		bad = want[1]
		p := w.start(s)
		w.untilEffects(want...)
		w.untilQuiet()
		w.wantSet("effects", w.effects(), want)
		if st := p.Stats(); j.count(bad) != undone+1 || st.Failed != 0 {
			w.t.Errorf("tried %d times with %d failed attempts, want %d, and none that is the message's fault", j.count(bad), st.Failed, undone+1)
		}
		p.stop()
	}
}
