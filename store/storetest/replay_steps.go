package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/replay"
	"github.com/postrider/postrider/store"
)

func replayOfKey(e *env) {
	w := e.worker("r", "a")
	var want []string
	for range 30 {
		want = append(want, w.delivered(append(e.messages("order/1", 40), e.messages("order/2", 10)...)...)[:40]...)
	}
	r := e.startReplay(replay.Plan{Filter: replay.Filter{Key: "order/1"}})
	r, _, err := e.replays().Step(e.ctx, r.ID)
	e.must(err, "step")
	e.wantReplay(r, replay.Finished, 1_200, 1_200, 0, 0)
	var got []string
	for _, run := range w.dueOf(store.DueRequest{Runs: 10, RunLength: 2_000, MaxBytes: 64 << 20}).Runs {
		got = append(got, recordIDs(run.Entries)...)
	}
	e.wantIDs("due", got, want)
}

func replayContinues(e *env) {
	w := e.worker("r", "a")
	var all []*postrider.Message
	for i := range 1_300 {
		all = append(all, e.message(fmt.Sprint("order/", i)))
	}
	want := w.delivered(all...)
	r := e.startReplay(replay.Plan{})
	r, wait, err := e.replays().Step(e.ctx, r.ID) // then the process is gone
	e.must(err, "step")
	e.wantReplay(r, replay.Running, 1_300, 500, 0, 0)
	if wait != 0 {
		e.t.Errorf("a replay without a rate wants to wait for %s", wait)
	}
	end, err := replay.New(e.reopen(e.t)).Drive(e.ctx, r.ID, nil)
	e.must(err, "drive")
	e.wantReplay(end, replay.Finished, 1_300, 1_300, 0, 0)
	var got []string
	for _, run := range w.dueOf(store.DueRequest{Runs: 2_000, RunLength: 10, MaxBytes: 64 << 20}).Runs {
		got = append(got, recordIDs(run.Entries)...)
	}
	e.wantSet("due", got, want)
}

func replayOnce(e *env) {
	w := e.worker("r", "a")
	want := w.delivered(append(e.messages("order/1", 40), e.messages("", 40)...)...)
	r := e.startReplay(replay.Plan{Rate: 20_000})
	var driving sync.WaitGroup
	for _, s := range []store.Records{e.database, e.reopen(e.t), e.reopen(e.t)} {
		driving.Go(func() {
			if _, err := replay.New(s).Drive(e.ctx, r.ID, nil); err != nil {
				e.t.Errorf("drive: %v", err)
			}
		})
	}
	driving.Wait()
	shown, err := e.replays().Show(e.ctx, r.ID)
	e.must(err, "show")
	e.wantReplay(shown, replay.Finished, 80, 80, 0, 0)
	e.wantSet("due", w.dueIDs(), want)
	again := e.startReplay(replay.Plan{}) // all of them are parked now
	e.wantReplay(e.driveReplay(again.ID), replay.Finished, 0, 0, 80, 0)
}

// replaysTakeTurns: what is parked for one consumer is a duplicate to the other, which must get the messages as well.
func replaysTakeTurns(e *env) {
	w := e.worker("r", "a")
	want := w.delivered(append(e.messages("order/1", 2), e.messages("", 2)...)...)
	first := e.startReplay(replay.Plan{Consumer: "billing"})
	e.driveReplay(first.ID)
	for _, filter := range []replay.Filter{{Key: "order/1"}, {}} {
		second := e.startReplay(replay.Plan{Consumer: "stock", Filter: filter})
		r, _, err := e.replays().Step(e.ctx, second.ID)
		if err != nil || r.State != replay.Running || !r.Waiting || r.Done+r.Skipped > 0 {
			e.t.Fatalf("while the messages are parked for another consumer: %+v, %v; want it to wait", r, err)
		}
		w.redeliver("billing")
		r = e.driveReplay(second.ID)
		if got := w.redeliver("stock"); filter.Key == "" {
			e.wantReplay(r, replay.Finished, 4, 4, 0, 0)
			e.wantSet("replayed", got, want)
		} else {
			e.wantReplay(r, replay.Finished, 2, 2, 0, 0)
			e.wantIDs("replayed", got, want[:2])
		}
		e.driveReplay(e.startReplay(replay.Plan{Consumer: "billing"}).ID)
	}
}

// redeliver settles all that is due, which was replayed for a consumer, as delivered, and returns it.
func (w *worker) redeliver(consumer string) (got []string) {
	w.t.Helper()
	for _, run := range w.due().Runs {
		st := store.Settlement{Partition: run.Partition}
		for _, rec := range run.Entries {
			if _, named := rec.Message.Replay(); named != consumer {
				w.t.Errorf("message %s is replayed for %q, want %q", rec.Message.ID, named, consumer)
			}
			st.Removed = append(st.Removed, rec.Message.Sequence)
			got = append(got, rec.Message.ID)
		}
		if run.Key != "" {
			st.Release = []string{run.Key}
		}
		w.settle(st)
	}
	return got
}

func replayRate(e *env) {
	w := e.worker("r", "a")
	w.delivered(e.messages("", 3)...)
	r := e.startReplay(replay.Plan{Rate: 0.01})
	r, wait, err := e.replays().Step(e.ctx, r.ID)
	e.must(err, "step")
	e.wantReplay(r, replay.Running, 3, 1, 0, 0)
	if wait < 99*time.Second || wait > 100*time.Second {
		e.t.Errorf("after one message at 0.01 a second the replay wants to wait for %s", wait)
	}
	again, wait, err := replay.New(e.reopen(e.t)).Step(e.ctx, r.ID)
	e.must(err, "step")
	e.wantReplay(again, replay.Running, 3, 1, 0, 0)
	if wait <= 0 || wait > 100*time.Second {
		e.t.Errorf("another process is told to wait for %s", wait)
	}
}

func replayChanges(e *env) {
	w := e.worker("r", "a")
	w.delivered(e.messages("", 3)...)
	r := e.startReplay(replay.Plan{})
	s := e.replays()
	if _, err := s.Resume(e.ctx, r.ID, "ann"); !errors.Is(err, replay.ErrState) {
		e.t.Errorf("resume a running replay: %v, want %v", err, replay.ErrState)
	}
	paused, err := s.Pause(e.ctx, r.ID, "ann")
	if err != nil || paused.State != replay.Paused || paused.ChangedBy != "ann" {
		e.t.Errorf("paused: %+v, %v", paused, err)
	}
	e.wantReplay(e.driveReplay(r.ID), replay.Paused, 3, 0, 0, 0)
	_, err = s.Resume(e.ctx, r.ID, "ann")
	e.must(err, "resume")
	e.wantReplay(e.driveReplay(r.ID), replay.Finished, 3, 3, 0, 0)
	if _, err := s.Pause(e.ctx, r.ID, "ann"); !errors.Is(err, replay.ErrEnded) {
		e.t.Errorf("pause a finished replay: %v, want %v", err, replay.ErrEnded)
	}
	second := e.startReplay(replay.Plan{})
	cancelled, err := s.Cancel(e.ctx, second.ID, "ann")
	if err != nil || cancelled.State != replay.Cancelled || cancelled.EndedAt.IsZero() {
		e.t.Errorf("cancelled: %+v, %v", cancelled, err)
	}
	var listed []string
	for r, err := range s.List(e.ctx) {
		e.must(err, "list")
		listed = append(listed, r.ID)
	}
	e.wantIDs("replays", listed, []string{second.ID, r.ID})
	if _, err := s.Show(e.ctx, postrider.NewID()); !errors.Is(err, replay.ErrNoReplay) {
		e.t.Errorf("unknown replay: %v, want %v", err, replay.ErrNoReplay)
	}
}

func replayWaits(e *env) {
	w := e.worker("r", "a")
	for range 11 {
		w.delivered(e.messages("", 500)...)
	}
	r := e.startReplay(replay.Plan{})
	for range 10 {
		var err error
		r, _, err = e.replays().Step(e.ctx, r.ID)
		e.must(err, "step")
	}
	e.wantReplay(r, replay.Running, 5_500, 5_000, 0, 0)
	r, wait, err := e.replays().Step(e.ctx, r.ID)
	e.must(err, "step")
	if !r.Waiting || r.Done != 5_000 || wait <= 0 {
		e.t.Errorf("with %d parked messages: %+v, wait %s; want it to wait", replay.MaxParked, r, wait)
	}
}

func replayKeepsLog(e *env) {
	w := e.worker("r", "a")
	want := w.delivered(e.messages("", 10)...)
	r := e.startReplay(replay.Plan{Rate: 1})
	r, _, err := e.replays().Step(e.ctx, r.ID)
	e.must(err, "step")
	from, err := e.replays().KeepFrom(e.ctx)
	if err != nil || from <= r.Position || from > r.UpTo {
		e.t.Fatalf("the log is kept from %d, %v; want from after %d", from, err, r.Position)
	}
	e.maintain(store.Retention{KeepFrom: from})
	for _, id := range want[1:] {
		if got := e.logged("other-" + id); !slices.Contains(got, id) {
			e.t.Errorf("kept: %v, want %s too", got, id)
		}
	}
	_, err = e.replays().Cancel(e.ctx, r.ID, "ann")
	e.must(err, "cancel")
	if from, err := e.replays().KeepFrom(e.ctx); from != 0 || err != nil {
		e.t.Errorf("without a replay the log is kept from %d, %v", from, err)
	}
}

func replaysArePurged(e *env) {
	e.worker("r", "a").delivered(e.message(""))
	ended, running := e.startReplay(replay.Plan{}), e.startReplay(replay.Plan{Rate: 1})
	e.driveReplay(ended.ID)
	e.clockMoves(2 * time.Millisecond)
	for _, c := range []struct {
		age  time.Duration
		want int
	}{{0, 0}, {time.Hour, 0}, {time.Millisecond, 1}, {time.Millisecond, 0}} {
		if n, err := e.replays().Purge(e.ctx, c.age); n != c.want || err != nil {
			e.t.Errorf("purge of what ended %s ago: %d, %v; want %d", c.age, n, err, c.want)
		}
	}
	if _, err := e.replays().Show(e.ctx, running.ID); err != nil {
		e.t.Errorf("the running replay: %v", err)
	}
}

func replayMissing(e *env) {
	w := e.worker("r", "a")
	w.delivered(e.messages("", 5)...)
	r := e.startReplay(replay.Plan{})
	e.maintain(store.Retention{}) // a program that does not know replays
	e.wantReplay(e.driveReplay(r.ID), replay.Finished, 5, 0, 0, 5)
}

func replaysAreChecked(e *env) {
	e.worker("r", "a").delivered(e.message(""))
	past := time.Now().Add(-time.Hour)
	for _, p := range []replay.Plan{
		{}, {Relay: "r", Rate: -1}, {Relay: "r", Rate: 5, Filter: replay.Filter{Key: "order/1"}}, {Relay: "r", Filter: replay.Filter{From: past, To: past}},
	} {
		if _, err := e.replays().Start(e.ctx, p); err == nil {
			e.t.Errorf("plan %+v was accepted", p)
		}
	}
	if _, err := e.replays().Start(e.ctx, replay.Plan{Relay: "nobody"}); !errors.Is(err, replay.ErrNoRelay) {
		e.t.Errorf("replay to an unknown relay: %v, want %v", err, replay.ErrNoRelay)
	}
}
