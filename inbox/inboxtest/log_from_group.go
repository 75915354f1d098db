package inboxtest

import (
	"reflect"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Watermark is how far a consumer in a group had processed a log, as an earlier version kept it: At has an offset and a mark.
type Watermark struct {
	Consumer string
	At       postrider.Position
}

// logFromWatermark: the database has the watermarks of groups, which an earlier version has left. The migration makes positions of them: of
// those in one partition, of the newest. Operators see both, and the consumer reads the log from there.
func logFromWatermark[Tx any](w *world[Tx]) {
	if w.h.MigrateWatermarks == nil {
		return
	}
	s := setting[Tx]{log: true}
	w.build(s) // for its log
	w.send("a", "b", "c", "", "a", "b")
	parts, err := w.log.Partitions(w.ctx)
	w.must(err, "list the partitions")
	var left []Watermark
	var another []store.LogPosition
	for _, p := range parts {
		at := postrider.Position{Partition: p.Name, Incarnation: p.Incarnation, Offset: p.End}
		older := postrider.Position{Partition: p.Name, Incarnation: "older", Offset: 7, Mark: "older"}
		newer := postrider.Position{Partition: p.Name, Incarnation: "new\"er", Offset: 1 << 62, Mark: "\"mark\\ü"}
		left = append(left, Watermark{consumer, at}, Watermark{"bücher", older}, Watermark{"bücher", newer})
		another = append(another, store.LogPosition{
			Partition: p.Name, Number: 1, Incarnation: newer.Incarnation, Offset: newer.Offset, End: newer.Offset,
			Anchors: []store.LogAnchor{{Offset: newer.Offset, Mark: newer.Mark}},
		})
	}
	w.h.MigrateWatermarks(w.t, w.store, left)
	got, err := w.store.LogPositions(w.ctx, "bücher")
	w.must(err, "positions")
	for i := range got {
		got[i].Moved = 0
	}
	if !reflect.DeepEqual(got, another) {
		w.t.Errorf("positions of another consumer:\n%+v, want\n%+v", got, another)
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
