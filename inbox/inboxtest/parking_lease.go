package inboxtest

import (
	"context"
	"sync/atomic"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// retryFenced: the database gives the leases of a process to another one while a retry runs, and the process does not know.
func retryFenced[Tx any](w *world[Tx]) {
	if w.oneWriter() {
		return // the transaction of the one keeps the other from taking the lease
	}
	var failed, cut atomic.Bool
	begun, release := make(chan struct{}, 10), make(chan struct{})
	s := setting[Tx]{}
	s.cfg.LeaseTTL = w.keptLease()
	s.fault = func(op string, _ bool) error {
		if cut.Load() && (op == "Heartbeat" || op == "Acquire") {
			return errCut
		}
		return nil
	}
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if !failed.Swap(true) {
			return postrider.Snooze(1)
		}
		begun <- struct{}{}
		<-release
		return w.effect(ctx, tx, m)
	}
	p := w.start(s)
	want := w.send("a")
	<-begun
	cut.Store(true)
	w.takeLeases()
	other := setting[Tx]{}
	other.cfg.LeaseTTL = w.keptLease()
	q := w.start(other)
	w.until("the other process works", func() bool { return q.Ready() == nil && len(w.status().Owners) > 1 })
	close(release)
	w.untilEffects(want...)
	w.untilQuiet()
	if p, q := p.Stats(), q.Stats(); p.Applied != 0 || q.Applied != 1 {
		w.t.Errorf("the process without a lease has applied %d messages, the other one %d; want 0 and 1", p.Applied, q.Applied)
	}
}

// takeLeases ends the leases of the only process, as a failover of the database to an older copy does.
func (w *world[Tx]) takeLeases() {
	w.t.Helper()
	owner := store.Owner{ID: w.status().Owners[0].ID}
	view, err := w.store.Heartbeat(w.ctx, consumer, owner, w.keptLease())
	w.must(err, "look at the leases")
	var leases []store.LeaseRef
	for _, p := range view.Partitions {
		leases = append(leases, store.LeaseRef{Partition: p.Partition, Token: p.Token})
	}
	w.must(w.store.Release(w.ctx, consumer, leases), "release the leases")
}
