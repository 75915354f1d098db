package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/erasure"
	"github.com/postrider/postrider/replay"
	"github.com/postrider/postrider/store"
)

var eraseTests = []test{
	{name: "ErasesTheLog", run: erasesLog},
	{name: "ErasingUndeliveredMessagesEndsLeases", run: eraseEndsLeases},
	{name: "ErasesParkedMessagesAndKeysGoOn", run: erasesParked},
	{name: "ErasesDeadLetters", run: erasesDead, statements: true},
	{name: "ErasureInStepsDeliversNothing", run: erasesRedriven},
	{name: "ErasesATenantEverywhere", run: erasesTenant},
	{name: "ErasedDeadLetterNoLongerHoldsItsKey", run: erasesDeadOfHeldKey},
	{name: "ErasedMessagesAreNotReplayed", run: erasedAreNotReplayed},
	{name: "ErasureIsOnRecordAndContinues", run: erasureContinues},
	{name: "ErasureSurvivesTheDeathOfItsProcess", run: erasureSurvives},
	{name: "ErasureDoesNotDependOnTheClock", run: erasesWithAnySlowClock},
	{name: "MessagesThatMoveAreErased", run: erasesWhatMoves, late: true},
	{name: "MessagesThatAreBeingReplayedAreErased", run: erasesWhatIsBeingReplayed, late: true},
	{name: "DeadLetteredMessageIsNotReplayed", run: deadIsNotReplayed},
}

func (e *env) erase(p erasure.Plan) erasure.Erased {
	e.t.Helper()
	p.By, p.Reason = "olga", "request 1217"
	counted, err := erasure.New(e.database).Count(e.ctx, p)
	e.must(err, "count")
	done, err := erasure.New(e.database).Erase(e.ctx, p, nil)
	e.must(err, "erase")
	if done.Erased != counted || done.EndedAt.Before(done.StartedAt) || done.By != "olga" {
		e.t.Errorf("erased %+v, counted %+v", done, counted)
	}
	return done.Erased
}

func (e *env) wantErased(got erasure.Erased, logged, parked, dead int64) {
	e.t.Helper()
	if want := (erasure.Erased{Logged: logged, Parked: parked, DeadLetters: dead}); got != want {
		e.t.Errorf("erased %+v, want %+v", got, want)
	}
}

// personal returns messages of a key with something in every field.
func (e *env) personal(key, tenant string, n int) []*postrider.Message {
	out := e.messages(key, n)
	for _, m := range out {
		m.Tenant, m.Subject, m.CorrelationID, m.CausationID, m.Headers = tenant, "ann", "c1", "c2", map[string]string{"name": "ann"}
		m.SchemaVersion, m.AggregateVersion, m.DeliverAt = 3, 4, m.Time.Add(-time.Hour)
	}
	return out
}

// isErased reports whether nothing is left of a message but its place.
func isErased(m *postrider.Message) bool {
	return m.Type == store.ErasedType && m.ContentType == store.ErasedContentType && len(m.Payload)+len(m.Headers) == 0 && m.DeliverAt.IsZero() &&
		m.Key+m.Tenant+m.Subject+m.CorrelationID+m.CausationID == "" && m.SchemaVersion == 0 && m.AggregateVersion == 0
}

func erasesLog(e *env) {
	w := e.worker("r", "a")
	delivered := w.delivered(append(e.personal("order/1", "acme", 2), e.personal("order/2", "acme", 1)...)...)
	waiting := e.publish(append(e.personal("order/1", "other", 2), e.personal("order/3", "other", 1)...)...)
	e.record(time.Hour, attempt(delivered[0], "r", 1), attempt(delivered[2], "r", 1))
	e.wantErased(e.erase(erasure.Plan{Key: "order/1"}), 4, 0, 0)
	e.checkAttempts(delivered[0])
	e.checkAttempts(delivered[2], attempt(delivered[2], "r", 1))
	e.wantErased(e.erase(erasure.Plan{Key: "order/1"}), 0, 0, 0)
	e.wantErased(e.erase(erasure.Plan{Tenant: "other"}), 1, 0, 0)
	var erased []string
	for _, r := range e.worker("s", "a").drain() {
		if isErased(r.Message) {
			erased = append(erased, r.Message.ID)
		} else if r.Message.ID != delivered[2] || r.Message.Headers["name"] != "ann" || r.Err != nil {
			e.t.Errorf("message of another key: %+v, %v", r.Message, r.Err)
		}
	}
	e.wantSet("erased", erased, append(delivered[:2:2], waiting...))
	for _, p := range []erasure.Plan{{}, {Key: "a", Tenant: "b"}} {
		if _, err := erasure.New(e.database).Erase(e.ctx, p, nil); err == nil {
			e.t.Errorf("plan %+v was accepted", p)
		}
	}
}

// eraseEndsLeases: a relay that has the message in memory would park it under its old key.
func eraseEndsLeases(e *env) {
	first, second := e.worker("first", "a"), e.worker("second", "a")
	e.publishKeys("order/1", "order/1")
	first.drain()
	first.settleRead()
	second.drain()
	e.wantErased(e.erase(erasure.Plan{Key: "order/1"}), 2, 0, 0)
	p := e.partition("order/1")
	first.settle(store.Settlement{Partition: p, Cursor: first.read[p], Moved: true})
	second.number[p]++
	if out := second.send(store.Settlement{Partition: p, Cursor: second.read[p], Moved: true}); !slices.Equal(out.Lost, []int{p}) {
		e.t.Errorf("a relay with an erased message in memory settles: %+v, want partition %d lost", out, p)
	}
	for _, r := range e.worker("second", "a").drain() {
		if !isErased(r.Message) {
			e.t.Errorf("fetched %+v", r.Message)
		}
	}
}

func erasesParked(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 4, time.Hour)
	alone := w.parkAlone(e.message("order/1"), store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour})
	other := w.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkRetry})
	e.wantErased(e.erase(erasure.Plan{MessageID: records[0].Message.ID}), 1, 1, 0)
	if out := w.send(store.Settlement{Partition: e.partition("order/1")}); len(out.Lost) != 1 {
		e.t.Errorf("settled %+v, want the partition lost", out)
	}
	w = e.worker("r", "a")
	var key []string
	for _, run := range w.due().Runs {
		if run.Key == "order/1" {
			key = recordIDs(run.Entries)
		}
	}
	e.wantIDs("due of the key", key, recordIDs(records[1:]))
	e.wantErased(e.erase(erasure.Plan{Key: "order/1"}), 4, 4, 0)
	w = e.worker("r", "a")
	var due []string
	for _, run := range w.due().Runs {
		due = append(due, recordIDs(run.Entries)...)
	}
	e.wantIDs("due", due, []string{other.Message.ID})
	e.wantAlone("r", other.Message.ID)
	if st := e.status("r"); st.Parked.N != 1 || alone.Message.ID == "" {
		e.t.Errorf("status: %+v, want one parked message", st)
	}
}

func erasesDead(e *env) {
	w := e.worker("r", "a")
	sent := w.deadLetter("rejected", append(e.personal("order/1", "acme", 3), e.personal("order/2", "acme", 1)...)...)
	open := e.deadLetters(store.DeadFilter{Key: "order/1"})
	_, err := e.EditDead(e.ctx, open[0].Number, store.Edit{Payload: []byte("{}"), By: "olga", Why: "fixed"})
	e.must(err, "edit")
	_, err = e.DiscardDead(e.ctx, store.DeadFilter{MessageID: sent[1]}, "olga", "no use", 0)
	e.must(err, "discard")
	_, err = e.RedriveDead(e.ctx, store.DeadFilter{MessageID: sent[2]}, "olga", 0)
	e.must(err, "redrive")
	e.wantErased(e.erase(erasure.Plan{Key: "order/1"}), 3, 1, 3)
	for _, l := range e.deadLetters(store.DeadFilter{State: store.DeadAny}) {
		switch edits, err := e.ListEdits(e.ctx, l.Number); {
		case l.Message.ID == sent[3]:
			if isErased(l.Message) || l.State != store.DeadOpen || l.Cause == "" {
				e.t.Errorf("dead letter of another key: %+v", l)
			}
		case !isErased(l.Message), l.Unreadable != "", l.Cause != "", len(l.History) > 0, l.State == store.DeadOpen, len(edits) > 0, l.Edits > 0, err != nil:
			e.t.Errorf("erased dead letter: %+v with message %+v, edits %+v, %v", l, l.Message, edits, err)
		case l.Message.ID == sent[0] && (l.State != store.DeadDiscarded || l.ResolvedBy != "olga"):
			e.t.Errorf("dead letter that was open: %+v", l)
		}
	}
	if due := e.worker("r", "a").dueIDs(); len(due) > 0 {
		e.t.Errorf("due: %v, want nothing: the redriven message is erased", due)
	}
}

// erasesRedriven: an erasure takes several steps while a redrive waits for its first message, which is one of the erased ones. After no step
// does the redrive count it as delivered, which would let it send the next one.
func erasesRedriven(e *env) {
	w := e.worker("r", "a")
	const many = 600 // more than one step erases
	old := make([]store.ArchivedDead, many)
	for i := range old {
		old[i].DeadLetter = store.DeadLetter{
			Number: int64(i + 1), Relay: "r", Message: e.personal("order/1", "acme", 1)[0], Reason: "rejected", DiedAt: time.Now().Add(-time.Hour),
			State: store.DeadOpen,
		}
	}
	_, err := e.ImportDead(e.ctx, old)
	e.must(err, "import")
	e.discardAll(everyOpen)
	w.deadLetter("rejected", append(e.personal("order/2", "acme", 1), e.personal("order/2", "other", 1)...)...)
	r, err := e.StartRedrive(e.ctx, deadletter.Plan{First: true, By: "olga"})
	e.must(err, "start a redrive")
	e.step(r.ID, 0)
	steps := 0
	done, err := erasure.New(e.database).Erase(e.ctx, erasure.Plan{Tenant: "acme", By: "olga"}, func(erasure.Erasure) {
		steps++
		got, err := e.ShowRedrive(e.ctx, r.ID)
		if err != nil || got.Done != 1 || got.Outcome.Delivered != 0 {
			e.t.Errorf("after step %d of the erasure, of %d sent back: %+v, %v; nothing was delivered", steps, got.Done, got.Outcome, err)
		}
	})
	e.must(err, "erase")
	if e.wantErased(done.Erased, 1, 1, many+1); steps < 3 {
		e.t.Errorf("the erasure took %d steps", steps)
	}
}

func erasesTenant(e *env) {
	w := e.worker("r", "a")
	later := store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour}
	dead := w.deadLetter("rejected", append(e.personal("order/1", "acme", 1), e.personal("order/2", "other", 1)...)...)
	w.parkAlone(e.personal("order/3", "acme", 1)[0], later)
	w.parkAlone(e.personal("order/4", "other", 1)[0], later)
	e.wantErased(e.erase(erasure.Plan{Tenant: "acme"}), 2, 1, 1)
	for _, l := range e.deadLetters(store.DeadFilter{State: store.DeadAny}) {
		if isErased(l.Message) != (l.Message.ID == dead[0]) {
			e.t.Errorf("dead letter: %+v with message %+v", l, l.Message)
		}
	}
	if st := e.status("r"); st.Parked.N != 1 || st.Dead.N != 1 {
		e.t.Errorf("status: %+v, want one parked message and one open dead letter, those of the other tenant", st)
	}
	e.wantErased(e.erase(erasure.Plan{Tenant: "acme"}), 0, 0, 0)
}

func erasesDeadOfHeldKey(e *env) {
	w := e.worker("r", "a")
	records := w.undecided("order/1", 2)
	e.wantErased(e.erase(erasure.Plan{MessageID: records[0].Message.ID}), 1, 0, 1)
	w.wantRun("order/1", records[1:])
}

func erasedAreNotReplayed(e *env) {
	w := e.worker("r", "a")
	sent := w.delivered(e.messages("order/1", 2)...)
	var logged []store.LoggedMessage
	e.viewRecords(func(r store.Reader) error {
		page, err := r.Logged(e.ctx, store.LogQuery{Relay: "r", UpTo: 1 << 60, Limit: 100})
		logged = page.Messages
		return err
	})
	e.wantErased(e.erase(erasure.Plan{MessageID: sent[0]}), 1, 0, 0)
	r := e.startReplay(replay.Plan{})
	e.wantReplay(r, replay.Running, 1, 0, 0, 0)
	e.parkReplayed(logged[:1], 0) // read before it was erased
	e.wantReplay(e.driveReplay(r.ID), replay.Finished, 1, 1, 0, 0)
	e.wantIDs("due", w.dueIDs(), sent[1:])
}

// parkReplayed parks messages as the step of a replay does, and expects how many that are.
func (e *env) parkReplayed(messages []store.LoggedMessage, want int) {
	e.t.Helper()
	e.changeRecords(func(w store.Writer) error {
		n, err := w.ParkReplayed(e.ctx, store.ReplayedMessages{Relay: "r", Messages: messages, Headers: map[string]string{}, Entry: "replayed"})
		if n != want {
			e.t.Errorf("%d of %d messages are parked, want %d", n, len(messages), want)
		}
		return err
	})
}

// deadIsNotReplayed: the message was delivered when the step read the log; then another replay parked it, and it was dead-lettered.
func deadIsNotReplayed(e *env) {
	w := e.worker("r", "a")
	var logged []store.LoggedMessage
	for _, key := range []string{"order/1", ""} {
		w.deadLetter("rejected", e.message(key))
	}
	e.viewRecords(func(r store.Reader) error {
		page, err := r.Logged(e.ctx, store.LogQuery{Relay: "r", UpTo: 1 << 60, Limit: 100})
		logged = page.Messages
		return err
	})
	if len(logged) != 2 {
		e.t.Fatalf("the log has %+v", logged)
	}
	e.parkReplayed(logged, 0)
	if due, held := w.due(), e.held("r"); len(due.Runs)+len(held) > 0 {
		e.t.Errorf("due %+v, held %+v; want nothing", due.Runs, held)
	}
	_, err := e.RedriveDead(e.ctx, store.DeadFilter{}, "olga", 0)
	e.must(err, "redrive")
	for _, run := range w.due().Runs {
		st := store.Settlement{Partition: run.Partition, Removed: []int64{run.Entries[0].Message.Sequence}}
		if run.Key != "" {
			st.Release = []string{run.Key}
		}
		w.settle(st)
	}
	e.parkReplayed(logged, 2)
}

func erasureContinues(e *env) {
	for i := range 30 {
		e.publish(e.personal(fmt.Sprint("order/", i), "acme", 100)...)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	plan := erasure.Plan{Tenant: "acme", By: "olga", Reason: "request 1217"}
	first, err := erasure.New(e.database).Erase(ctx, plan, func(done erasure.Erasure) {
		if done.Logged > 0 {
			cancel()
		}
	})
	if err == nil || first.Logged == 0 || first.Logged == 3_000 {
		e.t.Fatalf("interrupted: %+v, %v", first, err)
	}
	second, err := erasure.New(e.reopen(e.t)).Erase(e.ctx, plan, nil)
	if err != nil || first.Logged+second.Logged != 3_000 || second.EndedAt.IsZero() {
		e.t.Errorf("first %+v, then %+v, %v", first, second, err)
	}
	var listed []erasure.Erasure
	for l, err := range erasure.New(e.database).List(e.ctx) {
		e.must(err, "list")
		listed = append(listed, l)
		if !l.Of(plan) || l.Of(erasure.Plan{Key: "acme"}) || l.Reason != plan.Reason || !l.Ended() || l.Value != "" {
			e.t.Errorf("on record: %+v", l)
		}
	}
	if len(listed) != 2 || listed[0].ID != second.ID || listed[1].Logged != first.Logged || listed[1].EndedWith != second.ID {
		e.t.Errorf("on record: %+v", listed)
	}
	if _, err := erasure.New(e.database).Resume(e.ctx, first.ID, "eva", nil); !errors.Is(err, erasure.ErrEnded) {
		e.t.Errorf("resume one that has ended: %v, want %v", err, erasure.ErrEnded)
	}
	if _, err := erasure.New(e.database).Resume(e.ctx, postrider.NewID(), "eva", nil); !errors.Is(err, erasure.ErrNoErasure) {
		e.t.Errorf("resume none: %v, want %v", err, erasure.ErrNoErasure)
	}
}
