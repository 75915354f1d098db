package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

func parkingTests[Tx any]() []inboxTest[Tx] {
	return []inboxTest[Tx]{
		{name: "ParkedMessageHoldsItsKey", run: parkedHoldsKey[Tx], statements: true},
		{name: "CauseThatIsNoAttemptIsShown", run: causeIsShown[Tx]},
		{name: "QueuedMessagesFollowTheBlockingOneInOrder", run: queuedInOrder[Tx]},
		{name: "ParkedMessageWithoutAKeyWaitsForItself", run: parkedWithoutKey[Tx]},
		{name: "ParkingIsUndoneWithItsTransaction", run: parkingIsUndone[Tx]},
		{name: "ClaimSaysWhichKeysAreHeld", run: claimSaysHeld[Tx]},
		{name: "ParkingAfterAReleaseHoldsTheKeyAgain", run: parkAfterRelease[Tx]},
		{name: "KeyIsNotReleasedUnderAFollower", run: parkAgainstRelease[Tx]},
		{name: "DeadLetteredMessageIsExplained", run: deadIsExplained[Tx]},
		{name: "DeadLetteredMessageCanHoldItsKey", run: deadHoldsKey[Tx], statements: true},
		{name: "DiscardedMessageHoldsNoKey", run: consumerDiscards[Tx]},
		{name: "DeadLetteringIsUndoneWithItsTransaction", run: deadLetteringIsUndone[Tx]},
		{name: "FailedMessagesKeepTheirOrder", run: failedInOrder[Tx], statements: true},
		{name: "DeadLetterHoldsOnlyAFreeKey", run: deadOnHeldKey[Tx], statements: true},
		{name: "DeadLetterWaitsForTheHolderOfItsKey", run: deadAgainstPark[Tx]},
		{name: "FailedMessageIsDeadLetteredAtItsTurn", run: failedAtItsTurn[Tx]},
		{name: "SequencesAreNeverGivenTwice", run: sequencesRise[Tx], statements: true},
	}
}

// consumer enrolls a consumer and leases its partitions.
func (e *inboxEnv[Tx]) consumer(name string) *worker {
	e.t.Helper()
	e.must(e.store.Enroll(e.ctx, name), "enroll")
	return e.worker(name, "a")
}

// park parks messages in a transaction of its own.
func (e *inboxEnv[Tx]) park(consumer string, reason store.ParkReason, after time.Duration, msgs ...*postrider.Message) {
	e.t.Helper()
	var list []store.ParkRequest
	for _, m := range msgs {
		list = append(list, store.ParkRequest{Message: m, Reason: reason, After: after})
	}
	e.inTx(func(tx Tx) { e.must(e.store.Park(e.ctx, tx, consumer, list), "park") })
}

// parkHead parks a message that has failed once.
func (e *inboxEnv[Tx]) parkHead(consumer string, after time.Duration, m *postrider.Message) {
	e.t.Helper()
	e.inTx(func(tx Tx) {
		e.must(e.store.Park(e.ctx, tx, consumer, []store.ParkRequest{{
			Message: m, Reason: store.ParkRetry, After: after, Attempts: []store.FailedAttempt{{Cause: "first failure"}},
		}}), "park")
	})
}

func (e *inboxEnv[Tx]) deadLetter(consumer string, hold bool, list ...store.ParkRequest) {
	e.t.Helper()
	for _, p := range list {
		p.Dead.Hold = hold
	}
	e.inTx(func(tx Tx) { e.must(e.store.Park(e.ctx, tx, consumer, list), "dead-letter") })
}

func parkedHoldsKey[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	m := e.message("order/1")
	m.Headers, m.Tenant, m.CorrelationID = map[string]string{"h": "ö"}, "acme", "corr"
	m.SchemaVersion, m.AggregateVersion = 3, 7
	e.inTx(func(tx Tx) {
		e.must(e.store.Park(e.ctx, tx, "c", []store.ParkRequest{{
			Message: m, Reason: store.ParkRetry, After: time.Hour, Attempts: []store.FailedAttempt{
				{Ago: time.Hour, Cause: "first"}, {Ago: time.Minute, Cause: "second"},
			},
		}}), "park")
	})
	if due := w.due(); len(due.Runs) > 0 || due.Next < 50*time.Minute || due.Next > time.Hour {
		e.t.Errorf("due: %+v, want nothing for an hour", due)
	}
	info, parked, err := held.New(e).ShowHeld(e.ctx, "c", "order/1", 10)
	e.must(err, "show held")
	if info.Reason != store.ParkRetry || info.Cause != "second" || info.Attempts != 2 || info.Partition != e.partition("order/1") ||
		len(parked) != 1 || info.Sequence != parked[0].Message.Sequence || time.Since(info.Since).Abs() > time.Minute {
		e.t.Fatalf("held key is shown as %+v with %+v", info, parked)
	}
	e.wantSame(parked[0].Message, m)
	h := parked[0].History
	if len(h) != 2 || h[0].Attempt != 1 || h[0].Cause != "first" || h[1].Attempt != 2 || h[1].Cause != "second" ||
		time.Since(h[0].At.Add(time.Hour)).Abs() > time.Minute || time.Since(h[1].At.Add(time.Minute)).Abs() > 50*time.Second {
		e.t.Errorf("history is %+v", h)
	}
	e.must(e.retry("c", "order/1"), "retry")
	run := w.due().Runs
	if len(run) != 1 || len(run[0].Entries) != 1 || run[0].Entries[0].Attempts != 2 || run[0].Entries[0].Reason != store.ParkRetry {
		e.t.Fatalf("due: %+v, want the message with two attempts made", run)
	}
	e.wantSame(run[0].Entries[0].Message, m)
	e.wantIDs("effects of others", e.effects(), nil)
}

func causeIsShown[Tx any](e *inboxEnv[Tx]) {
	e.inTx(func(tx Tx) {
		e.must(e.store.Park(e.ctx, tx, "c", []store.ParkRequest{{
			Message: e.message("order/1"), Reason: store.ParkUnhandled, After: time.Hour, Cause: "no handler",
			Attempts: []store.FailedAttempt{{Ago: time.Minute, Cause: "first"}},
		}}), "park")
	})
	info, parked, err := held.New(e).ShowHeld(e.ctx, "c", "order/1", 10)
	e.must(err, "show held")
	if info.Cause != "no handler" || info.Reason != store.ParkUnhandled || info.Attempts != 1 {
		e.t.Errorf("held key is shown as %+v", info)
	}
	if h := parked[0].History; len(h) != 2 || h[0].Attempt != 1 || h[1].Attempt != 0 || h[1].Cause != "no handler" {
		e.t.Errorf("history is %+v, want the attempt and then the cause", h)
	}
}

func queuedInOrder[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	head := e.message("order/1")
	e.parkHead("c", time.Hour, head)
	before := e.held("c")[0]
	queued := e.messages("order/1", 5)
	e.park("c", store.ParkHeld, 0, queued[:2]...)
	e.park("c", store.ParkHeld, 0, queued[2])
	e.park("c", store.ParkHeld, 0, e.message("order/2"))
	e.park("c", store.ParkHeld, 0, queued[3:]...)
	after := e.held("c")[0]
	if after.Cause != before.Cause || !after.Since.Equal(before.Since) || !after.NextAttempt.Equal(before.NextAttempt) ||
		after.Sequence != before.Sequence || after.Reason != before.Reason || after.Parked != 6 {
		e.t.Errorf("held key was %+v and is %+v, want the same with 6 messages", before, after)
	}
	e.must(e.retry("c", "order/1"), "retry")
	for _, run := range w.due().Runs {
		if run.Key == "order/1" {
			e.wantIDs("run", recordIDs(run.Entries), ids(append([]*postrider.Message{head}, queued...)))
			for i, r := range run.Entries[1:] {
				if r.Message.Sequence <= run.Entries[i].Message.Sequence {
					e.t.Errorf("sequence %d follows %d", r.Message.Sequence, run.Entries[i].Message.Sequence)
				}
			}
		}
	}
}

func parkedWithoutKey[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	now, later := e.message(""), e.message("")
	e.park("c", store.ParkRetry, 0, now)
	e.park("c", store.ParkSnoozed, time.Hour, later)
	due := w.due()
	if len(due.Runs) != 1 || due.Runs[0].Key != "" || due.Next < 50*time.Minute || due.Next > time.Hour {
		e.t.Fatalf("due: %+v, want one message, and the other in an hour", due)
	}
	e.wantSame(due.Runs[0].Entries[0].Message, now)
	if held := e.held("c"); len(held) != 0 {
		e.t.Errorf("held: %+v, want none", held)
	}
}

func parkingIsUndone[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	tx := e.begin()
	e.must(e.store.Park(e.ctx, tx, "c", []store.ParkRequest{
		{Message: e.message("order/1"), Reason: store.ParkRetry}, {Message: e.message(""), Reason: store.ParkRetry},
	}), "park")
	e.rollback(tx)
	if due, held := w.due(), e.held("c"); len(due.Runs) != 0 || len(held) != 0 {
		e.t.Errorf("after the rollback: due %+v, held %+v; want nothing", due, held)
	}
}

func claimSaysHeld[Tx any](e *inboxEnv[Tx]) {
	e.park("c", store.ParkRetry, 0, e.message("a"), e.message("b"))
	e.park("d", store.ParkRetry, 0, e.message("c"))
	tx := e.begin()
	e.must(e.store.Park(e.ctx, tx, "c", []store.ParkRequest{{Message: e.message("own"), Reason: store.ParkRetry}}), "park")
	e.wantIDs("claims", e.claim(tx, "c", "1:own", "2:a", "3:free", "4:c", "5:b", "6:b"),
		[]string{"fresh held", "fresh held", "fresh", "fresh", "fresh held", "fresh held"})
	e.rollback(tx)
}

// finish delivers all due messages and asks for the release of a key.
func (w *worker) finish(key string) store.Settled {
	w.t.Helper()
	st := store.Settlement{Partition: w.partition(key), Release: []string{key}}
	for _, run := range w.due().Runs {
		for _, r := range run.Entries {
			st.Removed = append(st.Removed, r.Message.Sequence)
		}
	}
	return w.settle(st)
}

func parkAfterRelease[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	e.parkHead("c", 0, e.message("order/1"))
	e.wantIDs("released", w.finish("order/1").Released, []string{"order/1"})
	late := e.message("order/1")
	e.park("c", store.ParkHeld, 0, late)
	w.wantRun("order/1", []store.Entry{{Message: late}})
	if held := e.held("c"); len(held) != 1 || held[0].Key != "order/1" {
		e.t.Errorf("held: %+v, want the key", held)
	}
}

// parkAgainstRelease: whichever comes first, a parked message with a key has its key held.
func parkAgainstRelease[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	for range 30 {
		e.parkHead("c", 0, e.message("order/1"))
		next := e.message("order/1")
		parked := make(chan error, 1)
		go func() {
			tx, err := e.store.Begin(e.ctx)
			if err == nil {
				err = e.store.Park(e.ctx, tx, "c", []store.ParkRequest{{Message: next, Reason: store.ParkHeld}})
				err = errors.Join(err, e.store.Commit(e.ctx, tx))
			}
			parked <- err
		}()
		head := w.due().Runs[0].Entries[0].Message
		w.settle(store.Settlement{Partition: w.partition("order/1"), Removed: []int64{head.Sequence}, Release: []string{"order/1"}})
		e.must(<-parked, "park")
		w.wantRun("order/1", []store.Entry{{Message: next}})
		e.wantIDs("released", w.finish("order/1").Released, []string{"order/1"})
	}
}

func deadIsExplained[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	m := e.message("order/1")
	m.Headers, m.CausationID = map[string]string{"h": "ö"}, "cause"
	var attempts []store.FailedAttempt
	for i := range 25 {
		attempts = append(attempts, store.FailedAttempt{Ago: time.Duration(25-i) * time.Minute, Cause: fmt.Sprint("failure ", i+1)})
	}
	e.deadLetter("c", false, store.ParkRequest{Message: m, Dead: &store.DeadRequest{Reason: "attempts exhausted"}, Cause: "failure 25", Attempts: attempts})
	deadLetters := e.deadLetters(store.DeadFilter{Relay: "c"})
	if len(deadLetters) != 1 {
		e.t.Fatalf("%d dead letters, want 1", len(deadLetters))
	}
	l := deadLetters[0]
	e.wantSame(l.Message, m)
	if l.Reason != "attempts exhausted" || l.Cause != "failure 25" || l.Attempts != 25 || l.Partition != e.partition("order/1") ||
		l.Redrives != 0 || l.State != store.DeadOpen || time.Since(l.DiedAt).Abs() > time.Minute || len(l.History) != 20 ||
		l.History[0].Attempt != 6 || l.History[19].Cause != "failure 25" {
		e.t.Errorf("dead letter is %+v", l)
	}
	if held := e.held("c"); len(held) != 0 {
		e.t.Errorf("held: %+v, want none", held)
	}
	e.redrive(store.DeadFilter{Relay: "c"}, 1)
	run := w.due().Runs
	if len(run) != 1 || run[0].Key != "" {
		e.t.Fatalf("due after the redrive: %+v, want the message for itself", run)
	}
	e.wantSame(run[0].Entries[0].Message, m)
}

func deadHoldsKey[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	dead := func(key string) (*postrider.Message, store.ParkRequest) {
		m := e.message(key)
		return m, store.ParkRequest{Message: m, Dead: &store.DeadRequest{Reason: "refused"}, Cause: "why"}
	}
	head, first := dead("order/1")
	_, second := dead("order/2")
	_, keyless := dead("")
	e.deadLetter("c", true, first, second, keyless)
	next := e.message("order/1")
	e.park("c", store.ParkHeld, 0, next)
	held := e.held("c")
	if len(held) != 2 || held[0].Reason != store.ParkDead || !held[0].NextAttempt.IsZero() {
		e.t.Fatalf("held: %+v, want both keys, for a decision", held)
	}
	if due := w.due(); len(due.Runs) != 0 || due.Next >= 0 {
		e.t.Errorf("due: %+v, want nothing before the decision", due)
	}
	e.redrive(store.DeadFilter{Key: "order/1"}, 1)
	w.wantRun("order/1", []store.Entry{{Message: head}, {Message: next}})
	if n, err := e.DiscardDead(e.ctx, store.DeadFilter{Key: "order/2"}, "olga", "why", 0); n != 1 || err != nil {
		e.t.Fatalf("discarded %d, %v", n, err)
	}
	var keys []string
	for _, run := range w.due().Runs {
		keys = append(keys, run.Key)
	}
	e.wantSet("due after the decisions", keys, []string{"order/1", "order/2"})
}

func deadLetteringIsUndone[Tx any](e *inboxEnv[Tx]) {
	tx := e.begin()
	e.must(e.store.Park(e.ctx, tx, "c", []store.ParkRequest{{Message: e.message("k"), Dead: &store.DeadRequest{Reason: "r", Hold: true}}}), "dead-letter")
	e.rollback(tx)
	if deadLetters, held := e.deadLetters(everyDead), e.held("c"); len(deadLetters) != 0 || len(held) != 0 {
		e.t.Errorf("after the rollback: dead letters %+v, held %+v; want none", deadLetters, held)
	}
}

func sequencesRise[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	var seen []int64
	for range 5 {
		e.park("c", store.ParkRetry, 0, e.message("order/1"), e.message("order/2"))
		for _, run := range w.due().Runs {
			for _, r := range run.Entries {
				seen = append(seen, r.Message.Sequence)
				w.finish(run.Key)
			}
		}
	}
	e.deadLetter("c", false, store.ParkRequest{Message: e.message("order/1"), Dead: &store.DeadRequest{Reason: "r"}})
	seen = append(seen, e.deadLetters(everyDead)[0].Message.Sequence)
	if distinct := slices.Compact(slices.Sorted(slices.Values(seen))); len(distinct) != 11 {
		e.t.Errorf("sequences %v, want 11 different ones", seen)
	}
}
