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

func decisionsNeedAParkedMessage(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour})
	queued := w.hold("order/1", 2, time.Hour)[1]
	for _, c := range []struct {
		relay, id string
		verb      store.Verb
	}{
		{"r", "nobody's", store.VerbRetry}, {"other", r.Message.ID, store.VerbSkip}, {"r", queued.Message.ID, store.VerbDead},
	} {
		if _, err := e.decideMessage(c.relay, c.id, c.verb, "why"); !errors.Is(err, store.ErrNoParked) {
			e.t.Errorf("%s of message %s of relay %s: %v, want an error that is ErrNoParked", c.verb, c.id, c.relay, err)
		}
	}
	if _, err := e.decideMessage("r", r.Message.ID, store.VerbDeadAll, "why"); err == nil {
		e.t.Errorf("%s of a message was recorded", store.VerbDeadAll)
	}
	if st := e.status("r"); st.Parked.N != 3 || len(e.deadLetters(everyDead)) > 0 {
		e.t.Errorf("decisions that failed changed something: %+v", st)
	}
}

// decisionAboutGone: the message was delivered, or queued in a held key, after the decision was recorded.
func decisionAboutGone(e *env) {
	w := e.worker("r", "a")
	for _, verb := range []store.Verb{store.VerbRetry, store.VerbSkip, store.VerbDead} {
		for _, queued := range []bool{false, true} {
			m := e.message(fmt.Sprintf("order/%s", verb))
			r := w.parkAlone(m, store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour})
			d := store.Decision{ID: store.NewToken(), Relay: "r", MessageID: m.ID, Verb: verb, By: "olga"}
			e.must(held.New(e).RecordDecision(e.ctx, d), "record a decision")
			p := e.partition(m.Key)
			st := store.Settlement{Partition: p, Removed: []int64{r.Message.Sequence}}
			if queued {
				st = store.Settlement{Partition: p,
					Parked: []store.ParkOutcome{{Sequence: r.Message.Sequence, Key: m.Key, Waits: true, Reason: store.ParkHeld}},
					Held:   []store.HeldKey{{Key: m.Key, Sequence: r.Message.Sequence, Reason: store.ParkHeld, After: time.Hour}},
				}
			}
			w.settle(st)
			e.must(held.New(e).Apply(e.ctx, "r", w.ref(p), d.ID), "decide")
			if d, err := held.Decide(e.ctx, e.database, d); !errors.Is(err, held.ErrRefused) || d.Outcome == "" || d.Count != 0 {
				e.t.Errorf("%s, queued %v: %+v, %v; want %v", verb, queued, d, err, held.ErrRefused)
			}
		}
	}
	if due, deadLetters := w.dueIDs(), e.deadLetters(everyDead); len(due)+len(deadLetters) > 0 {
		e.t.Errorf("due %v, dead letters %+v; want nothing", due, deadLetters)
	}
}

func decisionOfItsPartition(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour})
	w.hold("order/1", 1, time.Hour)
	for _, d := range []store.Decision{
		{ID: "message", Relay: "r", MessageID: r.Message.ID, Verb: store.VerbSkip, By: "olga"},
		{ID: "key", Relay: "r", Key: "order/1", Verb: store.VerbSkip, By: "olga"},
	} {
		e.must(held.New(e).RecordDecision(e.ctx, d), "record a decision")
		d, err := held.New(e).ShowDecision(e.ctx, d.ID)
		e.must(err, "show")
		if due := w.dueIn(store.DueRequest{}, d.Partition).Decisions; !slices.Contains(due, d) {
			e.t.Errorf("decisions to apply in partition %d: %+v, want %+v", d.Partition, due, d)
		}
		other := (d.Partition + 1) % e.partitions
		if err := held.New(e).Apply(e.ctx, "r", w.ref(other), d.ID); err == nil || errors.Is(err, store.ErrLeaseLost) {
			e.t.Errorf("decision about partition %d under the lease of %d: %v", d.Partition, other, err)
		}
		if err := held.New(e).Apply(e.ctx, "r", store.LeaseRef{Partition: d.Partition, Token: store.NewToken()}, d.ID); !errors.Is(err, store.ErrLeaseLost) {
			e.t.Errorf("applied without the lease: %v", err)
		}
	}
	if n := len(e.deadLetters(everyDead)); n > 0 {
		e.t.Errorf("%d dead letters, want none", n)
	}
}

func repartitionMovesMessageDecisions(e *env) {
	w := e.worker("r", "a")
	plain := w.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour})
	keyed := w.parkAlone(e.message("order/1"), store.ParkOutcome{Reason: store.ParkDelayed, After: time.Hour})
	w.settleRead()
	w.leave()
	var decisions []store.Decision
	for _, r := range []store.Entry{plain, keyed} {
		d := store.Decision{ID: store.NewToken(), Relay: "r", MessageID: r.Message.ID, Verb: store.VerbSkip, By: "olga"}
		e.must(held.New(e).RecordDecision(e.ctx, d), "record a decision")
		decisions = append(decisions, d)
	}
	e.repartition(11)
	for i, r := range []store.Entry{plain, keyed} {
		d, err := held.New(e).ShowDecision(e.ctx, decisions[i].ID)
		if want := postrider.PartitionOf(r.Message.Key, r.Message.ID, 11); err != nil || d.Partition != want || d.Sequence != r.Message.Sequence {
			e.t.Errorf("decision after the change: %+v, %v; want it in partition %d", d, err, want)
		}
		if d, err := held.Decide(e.ctx, e.database, decisions[i]); err != nil || d.Count != 1 {
			e.t.Errorf("decided: %+v, %v", d, err)
		}
	}
}

func heldNamesBlocking(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 2, time.Hour)
	dead := w.undecided("order/2", 1)[0]
	want := map[string]string{"order/1": records[0].Message.ID, "order/2": dead.Message.ID}
	for _, h := range e.held("r") {
		shown, queued, err := held.New(e).ShowHeld(e.ctx, "r", h.Key, 0)
		if e.must(err, "show"); h.MessageID != want[h.Key] || shown.MessageID != h.MessageID || len(queued) > 0 {
			e.t.Errorf("key %s is listed with message %q, and shown with %q and %d messages; want %q and none", h.Key, h.MessageID,
				shown.MessageID, len(queued), want[h.Key])
		}
	}
	w.settle(store.Settlement{Partition: e.partition("order/1"), Removed: []int64{records[0].Message.Sequence}})
	d := store.Decision{Relay: "r", Key: "order/1", Verb: store.VerbSkip, By: "olga", MessageID: records[0].Message.ID}
	w.leave()
	if _, err := held.Decide(e.ctx, e.database, d); !errors.Is(err, held.ErrRefused) {
		e.t.Errorf("skip of a message that was delivered meanwhile: %v, want %v", err, held.ErrRefused)
	}
	d.MessageID = records[1].Message.ID
	_, err := held.Decide(e.ctx, e.database, d)
	e.must(err, "skip of the next one")
}

// nonePassADeadLetter: a key waits for a decision about its dead letter. Only the decisions that say so let the queued messages
// follow.
func nonePassADeadLetter(e *env) {
	w := e.worker("r", "a")
	records := w.undecided("order/1", 2)
	for _, verb := range []store.Verb{store.VerbRetry, store.VerbDead} {
		if _, err := e.decide("r", "order/1", verb, "why"); !errors.Is(err, held.ErrRefused) {
			e.t.Errorf("%s: %v, want %v", verb, err, held.ErrRefused)
		}
	}
	if due, open := w.due(), e.deadLetters(everyOpen); len(due.Runs) > 0 || len(open) != 1 || len(e.deadLetters(everyDead)) != 1 {
		e.t.Errorf("due %+v, open dead letters %+v; want nothing, and the one", due.Runs, open)
	}
	other := store.Decision{Relay: "r", Key: "order/1", Verb: store.VerbSkip, By: "olga", MessageID: records[1].Message.ID}
	w.leave()
	if _, err := held.Decide(e.ctx, e.database, other); !errors.Is(err, held.ErrRefused) {
		e.t.Errorf("skip of a message that is queued: %v, want %v", err, held.ErrRefused)
	}
	other.MessageID = records[0].Message.ID
	d, err := held.Decide(e.ctx, e.database, other)
	if e.must(err, "skip"); d.Count != 1 || e.deadLetters(everyDead)[0].State != store.DeadDiscarded {
		e.t.Errorf("skipped: %+v, dead letters %+v", d, e.deadLetters(everyDead))
	}
	e.worker("r", "b").wantRun("order/1", records[1:])
}

// decisionAboutUnblocked: the blocking message was delivered, and none is queued after it.
func decisionAboutUnblocked(e *env) {
	w := e.worker("r", "a")
	r := w.hold("order/1", 1, time.Hour)[0]
	p := e.partition("order/1")
	w.settle(store.Settlement{Partition: p, Removed: []int64{r.Message.Sequence}})
	for _, verb := range []store.Verb{store.VerbSkip, store.VerbDead, store.VerbDeadAll} {
		if _, err := e.decide("r", "order/1", verb, "why"); !errors.Is(err, held.ErrRefused) {
			e.t.Errorf("%s: %v, want %v", verb, err, held.ErrRefused)
		}
	}
	w.wantRun("order/1", nil)
	e.wantIDs("released", w.settle(store.Settlement{Partition: p, Release: []string{"order/1"}}).Released, []string{"order/1"})
}

func deadAllOfMany(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 1_010, time.Hour)
	kept := w.parkAlone(e.message("order/1"), store.ParkOutcome{Reason: store.ParkDelayed, After: time.Hour})
	n, err := e.dead("r", "order/1", "customer was erased", true)
	if n != len(records) || err != nil {
		e.t.Fatalf("dead-lettered %d, %v; want %d", n, err, len(records))
	}
	e.wantIDs("dead letters", e.deadIDs(everyOpen), recordIDs(records))
	w.wantRun("order/1", nil)
	e.wantAlone("r", kept.Message.ID)
}
