package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/erasure"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/legalhold"
	"github.com/postrider/postrider/replay"
	"github.com/postrider/postrider/retention"
	"github.com/postrider/postrider/store"
)

var keepTests = []test{
	{name: "LegalHoldKeepsEverything", run: holdKeeps},
	{name: "LegalHoldIsKeptByWhoeverLookedBefore", run: holdIsKeptByAll},
	{name: "UnreadableLegalHoldIsReleased", run: unreadableHold},
	{name: "LegalHoldsAreReleasedOnce", run: holdsAreReleased},
	{name: "TopicIsKeptLonger", run: topicIsKept, exact: true},
	{name: "SizeLimitDropsWhatNoTopicKeeps", run: sizeLimitWithTopics, exact: true},
	{name: "WithoutARelayMessagesAreDroppedByAge", run: withoutRelay, exact: true},
	{name: "WithoutARelayThatIsRegisteredNothingIsDropped", run: withoutRelayThatIs},
	{name: "UnreadableReplayKeepsTheLogUntilItIsCancelled", run: unreadableReplay},
}

// keep maintains the log once.
func (e *env) keep(c retention.Config) store.Maintained {
	e.t.Helper()
	k, err := retention.New(e.database, c)
	e.must(err, "configure retention")
	done, err := k.Maintain(e.ctx)
	e.must(err, "maintain")
	return done
}

func holdKeeps(e *env) {
	w := e.worker("r", "a")
	want := w.delivered(e.messages("order/1", 2)...)
	e.importOpen("r", 1)
	e.discardAll(store.DeadFilter{})
	first, err := legalhold.New(e.database).Place(e.ctx, "olga", "case 17")
	e.must(err, "place a hold")
	second, err := legalhold.New(e.database).Place(e.ctx, "olga", "case 18")
	e.must(err, "place another hold")
	_, err = legalhold.New(e.reopen(e.t)).Release(e.ctx, first.ID, "olga", "closed")
	e.must(err, "release one of them")
	ended, err := e.replays().Cancel(e.ctx, e.startReplay(replay.Plan{}).ID, "olga")
	e.must(err, "cancel a replay")
	e.clockMoves(20 * time.Millisecond)
	if done := e.keep(retention.Config{MaxBytes: 1, Redrives: time.Millisecond}); done.Dropped != 0 || !strings.Contains(done.Deferred, "case 18") {
		e.t.Errorf("maintained %+v, want nothing dropped because of case 18", done)
	}
	_, err = e.replays().Show(e.ctx, ended.ID)
	e.must(err, "show the replay")
	if _, err := e.Store.Purge(e.ctx, deadletter.PurgePlan{ResolvedFor: deadletter.MinResolvedFor, By: "olga"}, nil); !errors.Is(err, legalhold.ErrHeld) {
		e.t.Errorf("purge: %v, want %v", err, legalhold.ErrHeld)
	}
	if done, err := erasure.New(e.database).Erase(e.ctx, erasure.Plan{Key: "order/1", By: "olga"}, nil); !errors.Is(err, legalhold.ErrHeld) || done.Logged != 0 {
		e.t.Errorf("erase: %+v, %v, want %v", done, err, legalhold.ErrHeld)
	}
	reader := e.worker("later", "reader")
	e.wantIDs("in the log", recordIDs(reader.drain()), want)
	reader.leave()
	_, err = held.New(e).RemoveRelay(e.ctx, "later", "olga", "test", false)
	e.must(err, "remove the reader")
	_, err = legalhold.New(e.database).Release(e.ctx, second.ID, "olga", "closed")
	e.must(err, "release")
	e.wantDropped(e.keep(retention.Config{}), 2)
}

// holdIsKeptByAll: a process has looked for a hold before it was placed, and goes on now.
func holdIsKeptByAll(e *env) {
	want := e.worker("r", "a").delivered(e.messages("order/1", 2)...)
	h, err := legalhold.New(e.database).Place(e.ctx, "olga", "case 17")
	e.must(err, "place a hold")
	if done := e.maintain(store.Retention{MaxBytes: 1}); done.Dropped != 0 {
		e.t.Errorf("maintained %+v, want nothing dropped", done)
	}
	e.wantIDs("in the log", e.logged("later"), want)
	_, err = legalhold.New(e.database).Release(e.ctx, h.ID, "olga", "closed")
	e.must(err, "release")
}

// unreadableHold: a hold that nobody can read is active, can be seen, and can be released.
func unreadableHold(e *env) {
	s, id := legalhold.New(e.database), postrider.NewID()
	e.changeRecords(func(w store.Writer) error {
		return w.PutRecord(e.ctx, store.Record{Table: store.WorkRecords, Kind: store.KindLegalHold, ID: id, Body: []byte("{no JSON")})
	})
	placed, err := s.Place(e.ctx, "olga", "case 17")
	e.must(err, "place")
	var seen []string
	for h, err := range s.List(e.ctx) {
		if seen = append(seen, h.ID); (err != nil) != (h.ID == id) {
			e.t.Errorf("listed %+v, %v", h, err)
		}
	}
	e.wantIDs("holds", seen, []string{placed.ID, id})
	_, err = s.Release(e.ctx, placed.ID, "olga", "closed")
	e.must(err, "release")
	e.viewRecords(func(r store.Reader) error {
		if err := legalhold.Check(e.ctx, r); !errors.Is(err, legalhold.ErrHeld) {
			e.t.Errorf("check: %v, want %v", err, legalhold.ErrHeld)
		}
		return nil
	})
	h, err := s.Release(e.ctx, id, "olga", "cannot be read")
	if err != nil || h.ReleasedBy != "olga" {
		e.t.Errorf("released %+v, %v", h, err)
	}
	e.viewRecords(func(r store.Reader) error { return legalhold.Check(e.ctx, r) })
}

// wantDropped expects how many messages were dropped, if the store drops them at once, and that nothing was put off.
func (e *env) wantDropped(done store.Maintained, n int64) {
	e.t.Helper()
	if e.suite.features.CoarseRetention == "" && done.Dropped != n || done.Deferred != "" {
		e.t.Errorf("maintained %+v, want %d messages dropped", done, n)
	}
}

func holdsAreReleased(e *env) {
	s := legalhold.New(e.database)
	h, err := s.Place(e.ctx, "olga", "case 17")
	e.must(err, "place")
	_, err = s.Release(e.ctx, h.ID, "eva", "closed")
	e.must(err, "release")
	if _, err := s.Release(e.ctx, h.ID, "eva", "again"); !errors.Is(err, legalhold.ErrReleased) {
		e.t.Errorf("released twice: %v, want %v", err, legalhold.ErrReleased)
	}
	if _, err := s.Release(e.ctx, postrider.NewID(), "eva", "none"); !errors.Is(err, legalhold.ErrNoHold) {
		e.t.Errorf("release of no hold: %v, want %v", err, legalhold.ErrNoHold)
	}
	for listed, err := range s.List(e.ctx) {
		if err != nil || listed.ID != h.ID || listed.By != "olga" || listed.Reason != "case 17" || listed.ReleasedBy != "eva" || listed.ReleasedAt.Before(listed.PlacedAt) {
			e.t.Errorf("listed %+v, %v", listed, err)
		}
	}
}

func topicIsKept(e *env) {
	w := e.worker("r", "a")
	before := e.messages("order/1", 3)
	audit := e.message("order/1")
	audit.Topic = "audit.log"
	w.delivered(before...)
	want := w.delivered(append([]*postrider.Message{audit}, e.messages("order/1", 2)...)...)
	c := retention.Config{Topics: map[string]time.Duration{"audit.*": time.Hour, "other": 2 * time.Hour}}
	if done := e.keep(c); done.Dropped != 3 {
		e.t.Errorf("maintained %+v, want the 3 messages dropped before the one to keep", done)
	}
	e.wantIDs("in the log", e.logged("later"), want)
	_, err := retention.New(e.database, retention.Config{For: time.Hour, Topics: map[string]time.Duration{"audit.*": time.Minute}})
	if err == nil {
		e.t.Error("a topic that is kept for less than all others was accepted")
	}
}

// sizeLimitWithTopics: a log that is too large is dropped up to the first message that its topic keeps.
func sizeLimitWithTopics(e *env) {
	if !e.suite.features.Bubble {
		e.t.Skip("it takes 11 minutes")
	}
	w := e.worker("r", "a")
	w.delivered(e.messages("order/1", 3)...)
	audit := e.message("order/1")
	audit.Topic = "audit.log"
	w.delivered(append([]*postrider.Message{audit}, e.messages("order/1", 2)...)...)
	c := retention.Config{For: 24 * time.Hour, MaxBytes: 1, Topics: map[string]time.Duration{"audit.*": 48 * time.Hour}}
	e.wantDropped(e.keep(c), 0)
	e.elapse(11 * time.Minute)
	e.wantDropped(e.keep(c), 3)
}

func withoutRelay(e *env) {
	e.publishKeys("order/1", "", "order/2")
	e.clockMoves(20 * time.Millisecond)
	if done := e.keep(retention.Config{For: time.Millisecond}); done.Dropped != 0 {
		e.t.Errorf("dropped %d messages without a relay", done.Dropped)
	}
	if done := e.keep(retention.Config{For: time.Hour, WithoutRelay: true}); done.Dropped != 0 {
		e.t.Errorf("dropped %d messages before their time", done.Dropped)
	}
	if done := e.keep(retention.Config{For: time.Millisecond, WithoutRelay: true}); done.Dropped != 3 {
		e.t.Errorf("dropped %d messages, want 3", done.Dropped)
	}
	want := e.publishKeys("order/1")
	e.wantIDs("in the log", e.logged("later"), want)
	if _, err := retention.New(e.database, retention.Config{WithoutRelay: true}); err == nil {
		e.t.Error("accepted to drop everything at once")
	}
}

func withoutRelayThatIs(e *env) {
	w := e.worker("r", "a")
	want := e.publishKeys("order/1", "", "order/2")
	e.clockMoves(20 * time.Millisecond)
	e.keep(retention.Config{For: time.Millisecond, WithoutRelay: true})
	e.wantSet("fetched", recordIDs(w.drain()), want)
}

func unreadableReplay(e *env) {
	w := e.worker("r", "a")
	w.delivered(e.messages("order/1", 2)...)
	id := postrider.NewID()
	e.changeRecords(func(w store.Writer) error {
		return w.PutRecord(e.ctx, store.Record{Table: store.WorkRecords, Kind: "replay", ID: id, Body: []byte("{no JSON")})
	})
	readable := e.startReplay(replay.Plan{})
	if done := e.keep(retention.Config{}); done.Dropped != 0 || !strings.Contains(done.Deferred, "replay") {
		e.t.Errorf("maintained %+v, want the log kept for the replay", done)
	}
	e.driveReplay(readable.ID)
	var states []replay.State
	for r, err := range e.replays().List(e.ctx) {
		e.must(err, "list")
		states = append(states, r.State)
	}
	if len(states) != 2 || states[0] != replay.Finished || states[1] != replay.Unreadable {
		e.t.Errorf("the replays are %v", states)
	}
	if r, err := e.replays().Pause(e.ctx, id, "olga"); !errors.Is(err, replay.ErrState) {
		e.t.Errorf("paused: %+v, %v, want %v", r, err, replay.ErrState)
	}
	r, err := e.replays().Cancel(e.ctx, id, "olga")
	if err != nil || r.State != replay.Cancelled || r.ChangedBy != "olga" {
		e.t.Errorf("cancelled: %+v, %v", r, err)
	}
	for _, run := range w.due().Runs {
		st := store.Settlement{Partition: run.Partition, Release: []string{run.Key}}
		for _, entry := range run.Entries {
			st.Removed = append(st.Removed, entry.Message.Sequence)
		}
		w.settle(st)
	}
	e.wantDropped(e.keep(retention.Config{}), 2)
}
