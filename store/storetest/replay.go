package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/replay"
	"github.com/postrider/postrider/store"
)

var replayTests = []test{
	{name: "ReplayParksWhatWasDelivered", run: replayParks},
	{name: "ReplaySelectsByItsFilter", run: replayFilters},
	{name: "ReplayLeavesOutWhatIsNotDelivered", run: replayLeavesOut, statements: true},
	{name: "ReplayLeavesOutWhatCommitsLate", run: replayLeavesOutLate, late: true},
	{name: "ReplayedMessagesQueueInAHeldKey", run: replayQueues},
	{name: "KeyOfReplayedMessagesIsReleasedAfterTheLast", run: replayReleases},
	{name: "ReplayTakesWhatItsRelayTakes", run: replayTopics},
	{name: "ReplayOfAKeyIsOneStep", run: replayOfKey},
	{name: "ReplayContinuesInAnotherProcess", run: replayContinues},
	{name: "ReplayParksEachMessageOnce", run: replayOnce},
	{name: "ReplaysForTwoConsumersTakeTurns", run: replaysTakeTurns},
	{name: "ReplayHasARate", run: replayRate},
	{name: "ReplayIsPausedResumedAndCancelled", run: replayChanges},
	{name: "ReplayWaitsForParkedMessages", run: replayWaits},
	{name: "ReplayKeepsTheLog", run: replayKeepsLog},
	{name: "ReplayOfDroppedMessagesSaysSo", run: replayMissing, exact: true},
	{name: "EndedReplaysArePurged", run: replaysArePurged, statements: true},
	{name: "ReplaysAreChecked", run: replaysAreChecked},
}

func (e *env) replays() replay.Store { return replay.New(e.database) }

func (e *env) startReplay(p replay.Plan) replay.Replay {
	e.t.Helper()
	p.Relay, p.By = "r", "olga"
	r, err := e.replays().Start(e.ctx, p)
	e.must(err, "start a replay")
	return r
}

func (e *env) driveReplay(id string) replay.Replay {
	e.t.Helper()
	r, err := e.replays().Drive(e.ctx, id, nil)
	e.must(err, "drive a replay")
	return r
}

func (e *env) wantReplay(r replay.Replay, state replay.State, selected, done, skipped, missing int64) {
	e.t.Helper()
	if r.State != state || r.Selected != selected || r.Done != done || r.Skipped != skipped || r.Missing != missing {
		e.t.Fatalf("replay %+v, want it %s with %d selected, %d done, %d skipped, %d missing", r, state, selected, done, skipped, missing)
	}
}

// delivered publishes messages and settles them as delivered.
func (w *worker) delivered(msgs ...*postrider.Message) []string {
	w.t.Helper()
	w.publish(msgs...)
	w.drain()
	w.settleRead()
	return ids(msgs)
}

func replayParks(e *env) {
	w := e.worker("r", "a")
	first := e.messages("order/1", 3)
	first[0].Headers = map[string]string{"trace": "t"}
	alone := e.messages("", 2)
	w.delivered(append(slices.Clone(first), alone...)...)
	r := e.startReplay(replay.Plan{Reason: "lost", Consumer: "billing"})
	e.wantReplay(r, replay.Running, 5, 0, 0, 0)
	e.wantSet("due before the first step", w.dueIDs(), nil)
	e.wantReplay(e.driveReplay(r.ID), replay.Finished, 5, 5, 0, 0)
	var single []string
	for _, run := range w.due().Runs {
		for _, rec := range run.Entries {
			id, consumer := rec.Message.Replay()
			if rec.Reason != store.ParkReplayed || id != r.ID || consumer != "billing" || rec.Attempts != 0 || rec.Err != nil || len(rec.Message.Payload) == 0 {
				e.t.Errorf("replayed message: %+v", rec)
			}
		}
		if run.Key == "" {
			single = append(single, recordIDs(run.Entries)...)
			continue
		}
		e.wantIDs("queued of the key", recordIDs(run.Entries), ids(first))
		if h := run.Entries[0].Message.Headers; len(h) != 3 || h["trace"] != "t" {
			e.t.Errorf("headers of a replayed message: %v", h)
		}
	}
	e.wantSet("due without a key", single, ids(alone))
	if shown, err := e.replays().Show(e.ctx, r.ID); err != nil || shown.EndedAt.Before(shown.StartedAt) || shown.By != "olga" || shown.Reason != "lost" {
		e.t.Errorf("replay at its end: %+v, %v", shown, err)
	}
}

func replayFilters(e *env) {
	w := e.worker("r", "a")
	for i := range 12 {
		m := e.message(fmt.Sprint("order/", i%2))
		m.Type, m.Topic, m.Tenant = fmt.Sprint("type", i%3), fmt.Sprint("topic.", i%4), fmt.Sprint("tenant", i%2)
		w.delivered(m)
		e.clockMoves(2 * time.Millisecond)
	}
	var middle time.Time
	e.viewRecords(func(r store.Reader) error {
		page, err := r.Logged(e.ctx, store.LogQuery{UpTo: 1 << 60, Limit: 100})
		if len(page.Messages) == 12 {
			middle = page.Messages[6].CreatedAt
		}
		return err
	})
	for _, c := range []struct {
		filter replay.Filter
		want   int64
	}{
		{replay.Filter{}, 12}, {replay.Filter{Key: "order/1"}, 6}, {replay.Filter{Type: "type0"}, 4}, {replay.Filter{Topic: "topic.1"}, 3},
		{replay.Filter{Topic: "topic.*"}, 12}, {replay.Filter{Tenant: "tenant1"}, 6}, {replay.Filter{Key: "order/1", Type: "type0"}, 2},
		{replay.Filter{MessageID: "m-000003"}, 1}, {replay.Filter{From: middle}, 6}, {replay.Filter{To: middle}, 6}, {replay.Filter{Key: "order/7"}, 0},
	} {
		found, err := e.replays().Count(e.ctx, replay.Plan{Relay: "r", Filter: c.filter})
		if err != nil || found.Messages != c.want || found.Undelivered != 0 {
			e.t.Errorf("filter %+v selects %+v, %v; want %d", c.filter, found, err, c.want)
		}
	}
	r := e.startReplay(replay.Plan{Filter: replay.Filter{Type: "type0"}})
	e.wantReplay(e.driveReplay(r.ID), replay.Finished, 4, 4, 0, 0)
	e.wantSet("due", w.dueIDs(), []string{"m-000001", "m-000004", "m-000007", "m-000010"})
}

func replayLeavesOut(e *env) {
	w := e.worker("r", "a")
	sent := w.deadLetter("rejected", e.messages("", 2)...)
	_, err := e.RedriveDead(e.ctx, store.DeadFilter{MessageID: sent[0]}, "olga", 0)
	e.must(err, "redrive")
	_, err = e.DiscardDead(e.ctx, store.DeadFilter{MessageID: sent[1]}, "olga", "no use", 0)
	e.must(err, "discard")
	for _, run := range w.due().Runs { // the redriven one is delivered
		w.settle(store.Settlement{Partition: run.Partition, Removed: []int64{run.Entries[0].Message.Sequence}})
	}
	w.deadLetter("rejected", e.message(""))
	parked := e.message("order/1")
	w.publish(parked)
	seq := w.drain()[0].Message.Sequence
	p := e.partition("order/1")
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Parked: []store.ParkOutcome{
		{Sequence: seq, Key: "order/1", FromLog: true, Reason: store.ParkRetry, After: time.Hour, Attempts: 2, Cause: "refused"},
	}})
	delivered := w.delivered(e.message("order/2"))
	e.publishKeys("order/2") // not read yet
	r := e.startReplay(replay.Plan{})
	e.wantReplay(r, replay.Running, 2, 0, 0, 0)
	e.wantReplay(e.driveReplay(r.ID), replay.Finished, 2, 2, 3, 0)
	e.wantSet("due", w.dueIDs(), append(delivered, sent[0]))
	e.viewRecords(func(r store.Reader) error {
		found, err := r.ParkedByID(e.ctx, "r", parked.ID)
		if err != nil || len(found) != 1 || found[0].Reason != store.ParkRetry || found[0].Attempts != 2 {
			e.t.Errorf("the parked message: %+v, %v; want it as it was", found, err)
		}
		return nil
	})
}

// replayLeavesOutLate: a message that commits late has a sequence below the cursor and has not been delivered.
func replayLeavesOutLate(e *env) {
	w := e.worker("r", "a")
	slow := e.open()
	late := e.message("order/1")
	e.insert(slow, late)
	want := w.delivered(e.messages("order/1", 2)...)
	e.commit(slow)
	r := e.startReplay(replay.Plan{})
	e.wantReplay(e.driveReplay(r.ID), replay.Finished, 2, 2, 1, 0)
	e.wantIDs("due", w.dueIDs(), want)
	next := w.takeOver("b")
	e.wantIDs("fetched", recordIDs(next.drain()), []string{late.ID})
}

func replayQueues(e *env) {
	w := e.worker("r", "a")
	want := w.delivered(e.messages("order/1", 2)...)
	failed := e.message("order/1")
	w.publish(failed)
	seq, p := w.drain()[0].Message.Sequence, e.partition("order/1")
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Parked: []store.ParkOutcome{
		{Sequence: seq, Key: "order/1", FromLog: true, Reason: store.ParkRetry, Waits: true, Attempts: 2, Cause: "refused"},
	}, Held: []store.HeldKey{{Key: "order/1", Sequence: seq, Reason: store.ParkRetry, Cause: "refused", Attempts: 2, After: time.Hour}}})
	r := e.startReplay(replay.Plan{})
	e.wantReplay(e.driveReplay(r.ID), replay.Finished, 2, 2, 1, 0)
	e.wantSet("due while the key is held", w.dueIDs(), nil)
	e.must(e.retry("r", "order/1"), "retry")
	e.wantIDs("due", w.dueIDs(), append(want, failed.ID))
}

// replayReleases: a message is queued after the replayed ones while the last of these is delivered, and the key stays held.
func replayReleases(e *env) {
	w := e.worker("r", "a")
	want := w.delivered(e.messages("order/1", 2)...)
	e.driveReplay(e.startReplay(replay.Plan{}).ID)
	runs, p := w.due().Runs, e.partition("order/1")
	fresh := e.message("order/1")
	w.publish(fresh)
	seq := w.drain()[0].Message.Sequence
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Parked: []store.ParkOutcome{
		{Sequence: seq, Key: "order/1", FromLog: true, Reason: store.ParkHeld, Waits: true},
	}})
	var removed []int64
	for _, rec := range runs[0].Entries {
		removed = append(removed, rec.Message.Sequence)
	}
	e.wantIDs("due", recordIDs(runs[0].Entries), want)
	out := w.settle(store.Settlement{Partition: p, Removed: removed, Release: []string{"order/1"}})
	if len(out.Released) > 0 {
		e.t.Errorf("released %v with a queued message", out.Released)
	}
	e.wantIDs("due after the replayed ones", w.dueIDs(), []string{fresh.ID})
	out = w.settle(store.Settlement{Partition: p, Removed: []int64{seq}, Release: []string{"order/1"}})
	if len(out.Released) != 1 || len(e.held("r")) != 0 {
		e.t.Errorf("released %v, held %+v; want order/1 released", out.Released, e.held("r"))
	}
}

func replayTopics(e *env) {
	w := e.worker("r", "a")
	o := w.owner
	o.Topics = []string{"orders"}
	_, err := e.Heartbeat(e.ctx, "r", o, longTTL)
	e.must(err, "heartbeat")
	other := e.message("")
	other.Topic = "invoices"
	want := w.delivered(e.message(""), other)[:1]
	r := e.startReplay(replay.Plan{})
	e.wantReplay(e.driveReplay(r.ID), replay.Finished, 1, 1, 0, 0)
	e.wantSet("due", w.dueIDs(), want)
}
