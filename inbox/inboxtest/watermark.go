package inboxtest

import (
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
)

func watermarkSkips[Tx any](w *world[Tx]) {
	s := setting[Tx]{cfg: inbox.ConsumerConfig{Dedup: inbox.ByPosition}}
	s.source.Partitions = 1
	p := w.start(s)
	want := w.send("a", "a")
	w.untilEffects(want...)
	same := w.message("a") // another message with the ID of the first: with ByPosition IDs do not matter
	same.ID = want[0]
	w.publish(same)
	w.untilEffects(append(want, same.ID)...)
	w.broker.Redeliver(consumer, want...)
	w.until("duplicates", func() bool { return p.Stats().Duplicates >= 2 && len(w.unsettled()) == 0 })
	w.wantSet("effects", w.effects(), append(want, same.ID))
}

func recreatedTopic[Tx any](w *world[Tx]) {
	s := setting[Tx]{cfg: inbox.ConsumerConfig{Dedup: inbox.ByPosition}}
	s.source.Partitions = 1
	p := w.start(s)
	old := w.send("a", "a", "a")
	w.untilEffects(old...)
	w.broker.Recreate(topic)
	fresh := w.send("a", "a")
	w.untilEffects(append(old, fresh...)...)
	w.untilQuiet()
	if st := p.Stats(); st.LogsReplaced != 1 || st.Duplicates != 0 {
		w.t.Errorf("%d logs replaced, %d duplicates, want 1 and none", st.LogsReplaced, st.Duplicates)
	}
}

// lostTail: the broker loses messages that were consumed, reuses their positions, and redelivers some of those it kept.
// The consumer runs during the loss or starts after it, and notices it before the new log has reached the watermark, at
// it, or beyond it.
func lostTail[Tx any](w *world[Tx]) {
	for _, restart := range []bool{false, true} {
		for _, batch := range []int{1, 100} {
			for _, added := range []int{2, 5, 9} {
				w := newWorld(w.t, w.h)
				s := setting[Tx]{cfg: inbox.ConsumerConfig{Dedup: inbox.ByPosition, Batch: batch}}
				s.source.Partitions = 1
				p := w.start(s)
				want := w.send("a", "b", "a", "b", "a", "b", "a", "b", "a", "b")
				w.untilEffects(want...)
				w.untilQuiet()
				if restart {
					p.stop()
				}
				w.broker.SetUnavailable(errCut)
				w.broker.LoseTail(topic, 5)
				w.broker.Redeliver(consumer, want[3:5]...)
				w.broker.SetUnavailable(nil)
				for range added {
					want = append(want, w.send("a")...)
				}
				if restart {
					p = w.start(s)
				}
				w.untilEffects(want...)
				w.untilQuiet()
				w.broker.Redeliver(consumer, want[0:3]...)
				w.broker.Redeliver(consumer, want[10:]...)
				w.until("the duplicates", func() bool { return len(w.unsettled()) == 0 })
				w.untilQuiet()
				w.wantSet("effects", w.effects(), want)
				if st := p.Stats(); st.LogsReplaced != 1 || st.Duplicates != int64(5+added) {
					w.t.Errorf("%d logs replaced, %d duplicates, want 1 and %d", st.LogsReplaced, st.Duplicates, 5+added)
				}
				p.stop()
			}
		}
	}
}

// rewound: everything is redelivered from an unchanged log.
func rewound[Tx any](w *world[Tx]) {
	s := setting[Tx]{cfg: inbox.ConsumerConfig{Dedup: inbox.ByPosition, Batch: 1}}
	s.source.Partitions = 1
	p := w.start(s)
	n := 20
	if w.h.Bubble {
		n += store.RememberedMoves
	}
	var want []string
	for range n {
		want = append(want, w.send("a")...)
	}
	w.untilEffects(want...)
	w.untilQuiet()
	w.broker.Redeliver(consumer, want...)
	w.until("duplicates", func() bool { return p.Stats().Duplicates == int64(n) })
	w.wantSet("effects", w.effects(), want)
	if st := p.Stats(); st.LogsReplaced != 0 {
		w.t.Errorf("%d logs replaced, want none", st.LogsReplaced)
	}
}
