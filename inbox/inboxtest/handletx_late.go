package inboxtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
)

// txLate: messages of transactions that commit after later ones were read.
func txLate[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		p := w.start(s)
		late, commit := w.begun("a", "b", "", "a", "c", "c", "c", "c", "c", "c")
		want := w.commit("d", "e", "f", "g", "")
		w.untilApplied(want...)
		commit()
		want = append(append(want, late...), w.commit("a", "b")...)
		w.untilApplied(want...)
		w.want("order of key a", w.effectsOf("a"), []string{late[0], late[3], want[len(want)-2]})
		w.untilAtRest()
		p.stop()
		w.start(s)
		w.untilApplied(append(want, w.commit("a")...)...)
	})
}

func txLateFails[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		var bad sync.Map
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if err := w.apply(ctx, tx, m); err != nil {
				return err
			}
			if left, ok := bad.Load(m.ID); ok && left.(*atomic.Int64).Add(-1) >= 0 {
				return errBoom
			}
			return nil
		}
		p := w.start(s)
		late, commit := w.begun("a", "b", "", "a", "c", "a", "b")
		for _, i := range []int{0, 3, 4} {
			left := new(atomic.Int64)
			left.Store(3)
			bad.Store(late[i], left)
		}
		want := w.commit("d", "e", "f", "g", "")
		w.untilApplied(want...)
		commit()
		want = append(append(want, late...), w.commit("a", "c")...)
		w.untilApplied(want...)
		w.want("order of key a", w.effectsOf("a"), []string{late[0], late[3], late[5], want[len(want)-2]})
		w.want("order of key b", w.effectsOf("b"), []string{late[1], late[6]})
		w.untilAtRest()
		p.stop()
	})
}

// txLateParked: some of a group of late messages have to be parked, and the process is killed in the middle of the group.
// Its successor reads the group again.
func txLateParked[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		keys := keysOf(0, 7)
		began, release, late := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var reads atomic.Int64
		mortal := s
		mortal.fault = func(op string, done bool) error {
			if op == "Fetch" && done {
				reads.Add(1)
			}
			return nil
		}
		mortal.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			switch m.Key {
			case keys[0]:
				close(began)
				<-release
			case keys[1]:
				close(late)
				<-ctx.Done()
				return ctx.Err()
			}
			return w.apply(ctx, tx, m)
		}
		p := w.build(mortal)
		go func() { p.done <- p.Run(w.ctx) }()
		tx, err := w.store.Begin(w.ctx)
		w.must(err, "begin")
		group := []*postrider.Message{w.message(keys[1])}
		for _, key := range keys[2:] { // parked when they are read
			m := w.message(key)
			m.DeliverAfter = 1500 * time.Millisecond
			group = append(group, m)
		}
		_, err = w.outbox.Publish(w.ctx, tx, group...)
		w.must(err, "publish")
		want := w.commit(keys[0])
		<-began
		w.must(w.store.Commit(w.ctx, tx), "commit")
		w.store.Wake()
		before := reads.Load()
		w.until("the group is read", func() bool { return reads.Load() > before+1 })
		close(release)
		<-late
		p.kill()
		q := w.start(s)
		want = append(want, ids(group)...)
		w.untilApplied(want...)
		w.untilAtRest()
		w.wantSet("effects", w.effects(), want)
		q.stop()
	})
}

// keysOf returns n different keys of one of the four partitions.
func keysOf(partition, n int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		if key := fmt.Sprint("k", i); postrider.PartitionOf(key, "", partitions) == partition {
			out = append(out, key)
		}
	}
	return out
}

// txLateDies: a process is killed as soon as the first of a group of late messages has its effect.
func txLateDies[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		keys := keysOf(0, 4)
		want := w.commit(keys[0])
		late, commit := w.begun(keys[1], keys[2], keys[3], keys[1], keys[2], keys[3], keys[1], keys[2], keys[3])
		want = append(want, w.commit(keys[0])...)
		var p *txProcess[Tx]
		var once sync.Once
		mortal := s
		mortal.fault = func(op string, done bool) error {
			if op == "CommitSettled" && done && p.w.applied(late[0]) {
				once.Do(p.kill)
			}
			return nil
		}
		p = w.build(mortal)
		go func() { p.done <- p.Run(w.ctx) }()
		w.untilApplied(want...)
		commit()
		want = append(want, late...)
		w.until("the first of the group", func() bool { return w.applied(late[0]) })
		p.kill()
		q := w.start(s)
		w.untilApplied(want...)
		w.untilAtRest()
		w.wantSet("effects", w.effects(), want)
		q.stop()
	})
}
