package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

// failedChangeLeavesNothing: whatever a function changed before it failed, the database is what it was.
//
// size: a table of what can be changed.
func failedChangeLeavesNothing(e *env) {
	w := e.worker("r", "a")
	logged := w.delivered(e.messages("order/9", 2)...)
	alone := w.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour})
	w.hold("order/1", 2, time.Hour)
	numbers := e.importOpen("r", 4)
	e.discardAll(store.DeadFilter{Numbers: numbers[:2]})
	e.importOpen("gone", 1) // of a relay that is not registered
	e.publishKeys("order/8")
	redrive := e.startRedrive(store.DeadFilter{Numbers: numbers[3:]})
	e.record(time.Hour, attempt(logged[0], "r", 1), attempt(alone.Message.ID, "r", 1), attempt("any", "gone", 1))
	decision := store.Decision{ID: "before", Relay: "r", Key: "order/1", Partition: e.partition("order/1"), Verb: store.VerbSkip, By: "olga"}
	record := store.Record{Table: store.WorkRecords, Kind: "k", ID: "before", Body: []byte("before")}
	e.changeRecords(func(w store.Writer) error {
		return errors.Join(w.AddDecision(e.ctx, decision), w.PutRecord(e.ctx, record))
	})
	record.Rev = 1
	unchanged := ""
	e.changeRecords(func(w store.Writer) error { unchanged = e.described(w, alone.Message.ID); return nil })
	before := e.everything(logged, alone.Message.ID)
	var log store.LogPage
	e.viewRecords(func(r store.Reader) (err error) {
		log, err = r.Logged(e.ctx, store.LogQuery{Relay: "r", UpTo: 1 << 60, Limit: 1_000})
		return err
	})
	all := store.DeadQuery{DeadFilter: store.DeadFilter{State: store.DeadOpen}}

	for name, change := range map[string]func(w store.Writer) error{
		"redrive": func(w store.Writer) error {
			_, err := w.LockDead(e.ctx, all, -1)
			return errors.Join(err, w.Resolve(e.ctx, numbers[2:3], store.Resolution{State: store.DeadRedriven, By: "olga"}))
		},
		"discard": func(w store.Writer) error {
			_, err := w.LockDead(e.ctx, all, -1)
			return errors.Join(err, w.Resolve(e.ctx, numbers[2:3], store.Resolution{State: store.DeadDiscarded, By: "olga"}))
		},
		"remove": func(w store.Writer) error { return second(w.RemoveResolved(e.ctx, e.resolvedQuery("r"))) },
		"edit": func(w store.Writer) error {
			return w.EditDead(e.ctx, numbers[2], store.Edit{Payload: []byte("{}"), By: "olga"})
		},
		"import": func(w store.Writer) error {
			l := store.DeadLetter{Relay: "r", Message: e.message("k"), Reason: "rejected", DiedAt: time.Now(), State: store.DeadOpen}
			return first(w.ImportDead(e.ctx, store.ArchivedDead{DeadLetter: l}))
		},
		"add redrive": func(w store.Writer) error {
			return first(w.AddRedrive(e.ctx, store.Redrive{State: store.RedriveRunning}))
		},
		"save redrive": func(w store.Writer) error {
			r, err := w.LockRedrive(e.ctx, redrive.ID)
			r.State, r.Done = store.RedriveCancelled, 7
			return errors.Join(err, w.SaveRedrive(e.ctx, r))
		},
		"add record": func(w store.Writer) error {
			return w.PutRecord(e.ctx, store.Record{Table: store.AuditRecords, Kind: "k", ID: "new", Body: []byte("new")})
		},
		"save record":   func(w store.Writer) error { return w.PutRecord(e.ctx, record) },
		"remove record": func(w store.Writer) error { return w.RemoveRecord(e.ctx, record.Table, "k", record.ID) },
		"end decision": func(w store.Writer) error {
			d, err := w.LockDecision(e.ctx, decision.ID)
			d.State, d.Outcome = store.DecisionApplied, "skipped"
			return errors.Join(err, w.EndDecision(e.ctx, d))
		},
		"resume key": func(w store.Writer) error {
			h, err := w.LockHeld(e.ctx, "r", "order/1")
			return errors.Join(err, w.ResumeHeld(e.ctx, h))
		},
		"retry parked": func(w store.Writer) error {
			return first(w.RetryParked(e.ctx, store.ParkedChoice{Relay: "r", All: true}))
		},
		"dead-letter parked": func(w store.Writer) error {
			return first(w.DeadLetterParked(e.ctx, store.ParkedChoice{Relay: "r", All: true}, store.MovedToDead{Reason: "operator", Entry: "moved", State: store.DeadOpen}))
		},
		"discard open": func(w store.Writer) error {
			return first(w.DiscardOpen(e.ctx, store.ParkedChoice{Relay: "r", All: true}, "olga", "why"))
		},
		"remove relay":        func(w store.Writer) error { return w.RemoveRelay(e.ctx, "r") },
		"remove what is kept": func(w store.Writer) error { return first(w.RemoveKept(e.ctx, "gone", 100)) },
		"replay": func(w store.Writer) error {
			return first(w.ParkReplayed(e.ctx, store.ReplayedMessages{Relay: "r", Messages: log.Messages[:1], Entry: "replayed"}))
		},
		"erase the log": func(w store.Writer) error { return first(w.EraseLogged(e.ctx, log.Messages)) },
		"erase parked":  func(w store.Writer) error { return first(w.EraseParked(e.ctx, store.EraseFilter{Key: "order/1"}, 100)) },
		"erase one parked": func(w store.Writer) error {
			return first(w.EraseParked(e.ctx, store.EraseFilter{MessageID: alone.Message.ID}, 100))
		},
		"erase a dead letter": func(w store.Writer) error { return first(w.EraseDead(e.ctx, store.EraseFilter{Key: "order/1"}, 100)) },
	} {
		failed := errors.New("no longer wanted")
		err := e.Change(e.ctx, store.Operation{Method: "Test", Doing: "test"}, func(w store.Writer) error {
			if err := change(w); err != nil || e.described(w, alone.Message.ID) == unchanged {
				e.t.Errorf("%s: %v, or it changes nothing", name, err)
			}
			return failed
		})
		if !errors.Is(err, failed) {
			e.t.Errorf("%s: %v, want %v", name, err, failed)
		}
		if after := e.everything(logged, alone.Message.ID); after != before {
			e.t.Fatalf("%s, which failed, has changed\n%s\nto\n%s", name, before, after)
		}
	}
}

func first[T any](_ T, err error) error          { return err }
func second[T, U any](_ T, _ U, err error) error { return err }

// everything describes what operators can change, with the holders of leases and recorded attempts.
func (e *env) everything(logged []string, parked string) string {
	e.t.Helper()
	var all []any
	e.viewRecords(func(r store.Reader) error { all = []any{e.described(r, parked)}; return nil })
	for _, id := range append([]string{parked}, logged...) {
		attempts, err := e.attemptLog().Attempts(e.ctx, id)
		e.must(err, "attempts")
		all = append(all, attempts)
	}
	for _, p := range e.status("r").Partitions {
		all = append(all, p.Owner)
	}
	return fmt.Sprintf("%+v", all)
}

// described describes what a reader sees of what operators can change.
func (e *env) described(r store.Reader, parked string) string {
	e.t.Helper()
	var all []any
	add := func(v any, err error) { all = append(all, v, fmt.Sprint(err)) }
	dead, err := r.DeadLetters(e.ctx, store.DeadQuery{DeadFilter: store.DeadFilter{State: store.DeadAny}})
	add(dead, err)
	for i := range dead {
		add(r.Edits(e.ctx, dead[i].Number))
	}
	add(r.Redrives(e.ctx, "", 1<<60, 100))
	add(r.HeldKeys(e.ctx, store.HeldQuery{Relay: "r", Limit: 100}))
	add(r.Queued(e.ctx, "r", "order/1", 100))
	add(r.Parked(e.ctx, store.ParkedQuery{Relay: "r", Limit: 100}))
	add(r.ParkedByID(e.ctx, "r", parked))
	add(r.Decision(e.ctx, "before"))
	for _, table := range recordTables {
		add(r.ListRecords(e.ctx, store.RecordQuery{Table: table, Kind: "k", Limit: 100}))
	}
	add(r.Logged(e.ctx, store.LogQuery{Relay: "r", UpTo: 1 << 60, Limit: 1_000}))
	add(r.CountKept(e.ctx, "gone"))
	text, err := json.MarshalIndent(all, "", " ")
	e.must(err, "describe")
	return string(text)
}
