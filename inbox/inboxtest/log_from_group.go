package inboxtest

import (
	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// logFromWatermark: the database has the watermarks of a group, which an earlier version has left. Operators see them, and the consumer
// reads the log from there.
func logFromWatermark[Tx any](w *world[Tx]) {
	if w.h.LeaveWatermark == nil {
		return
	}
	s := setting[Tx]{log: true}
	w.build(s) // for its log
	w.send("a", "b", "c", "", "a", "b")
	parts, err := w.log.Partitions(w.ctx)
	w.must(err, "list the partitions")
	for _, p := range parts {
		at := postrider.Position{Partition: p.Name, Incarnation: p.Incarnation, Offset: p.End}
		w.h.LeaveWatermark(w.t, w.store, consumer, at)
		at.Offset, at.Mark = 1<<62, "mark"
		w.h.LeaveWatermark(w.t, w.store, "another", at)
		w.wantWatermark("another", at, store.Watermark{Offset: 1 << 62, Mark: "mark", Known: true})
		at.Incarnation = "another"
		w.wantWatermark("another", at, store.Watermark{})
	}
	want := w.send("a", "b", "c", "")
	p := w.start(s)
	w.untilEffects(want...)
	w.untilQuiet()
	w.wantSet("effects", w.effects(), want)
	if st := p.Stats(); st.Received != 4 || st.LogsReplaced != 0 || st.Missing != 0 {
		w.t.Errorf("stats: %+v, want the 4 new messages", st)
	}
	all, err := any(w.store).(store.StatusReader).Consumers(w.ctx)
	w.must(err, "status of consumers")
	if len(all) != 1 || len(all[0].Watermarks) != len(parts) || all[0].Watermarks[0].Offset != parts[0].End {
		w.t.Errorf("status of consumers: %+v, want the watermarks of %s", all, consumer)
	}
}

func (w *world[Tx]) wantWatermark(consumer string, at postrider.Position, want store.Watermark) {
	w.t.Helper()
	tx, err := w.store.Begin(w.ctx)
	w.must(err, "begin")
	got, err := w.store.Watermark(w.ctx, tx, consumer, at)
	w.must(err, "watermark")
	w.must(w.store.Rollback(w.ctx, tx), "roll back")
	if got != want {
		w.t.Errorf("watermark in %+v: %+v, want %+v", at, got, want)
	}
}

// logFromIDs: a consumer that read the log in a group has no position: it begins with the oldest message.
func logFromIDs[Tx any](w *world[Tx]) {
	p := w.start(setting[Tx]{})
	want := w.send("a", "b", "c", "", "a", "b")
	w.untilEffects(want...)
	w.untilQuiet()
	p.stop()
	want = append(want, w.send("a", "b", "c", "")...)
	p = w.start(setting[Tx]{log: true})
	w.untilEffects(want...)
	w.untilQuiet()
	w.wantSet("effects", w.effects(), want)
	if st := p.Stats(); st.Duplicates != 6 {
		w.t.Errorf("stats: %+v, want 6 duplicates", st)
	}
}
