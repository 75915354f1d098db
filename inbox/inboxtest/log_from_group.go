package inboxtest

import "github.com/postrider/postrider/inbox"

// logFromWatermark: a consumer that read the log by watermark, in a group, reads it by its position from now on.
func logFromWatermark[Tx any](w *world[Tx]) {
	before := setting[Tx]{cfg: inbox.ConsumerConfig{Dedup: inbox.ByPosition}}
	p := w.start(before)
	want := w.send("a", "b", "c", "", "a", "b")
	w.untilEffects(want...)
	w.untilQuiet()
	p.stop()
	want = append(want, w.send("a", "b", "c", "")...)
	p = w.start(setting[Tx]{log: true})
	w.untilEffects(want...)
	w.untilQuiet()
	w.wantSet("effects", w.effects(), want)
	if st := p.Stats(); st.Received != 4 || st.LogsReplaced != 0 || st.Missing != 0 {
		w.t.Errorf("stats: %+v, want the 4 new messages", st)
	}
}

// logFromIDs: the same for a consumer by ID, which has no position: it begins with the oldest message.
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
