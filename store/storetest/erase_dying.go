package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/erasure"
	"github.com/postrider/postrider/store"
)

// errDied is what a process does after its end.
var errDied = errors.New("storetest: the process has died")

// dying are the records of a process that dies.
type dying struct {
	store.Records
	// statements is how many it executes before that. The beginning and the commit of a transaction count; if it dies at a commit,
	// the transaction is committed.
	statements int
	// setBack is by how much the database's clock has been set back.
	setBack time.Duration
	// between, if not nil, is called once: in a transaction that has found no parked message to erase, and no resolved dead letter
	// before, after its search for parked ones.
	between func()
	found   bool
}

func (d *dying) executes() error {
	if d.statements--; d.statements < 0 {
		return errDied
	}
	return nil
}

func (d *dying) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	if err := d.executes(); err != nil {
		return err
	}
	d.found = false
	if err := d.Records.Change(ctx, op, func(w store.Writer) error { return f(dyingWriter{w, d}) }); err != nil {
		return err
	}
	return d.executes()
}

// dyingWriter is a transaction of a process that dies.
type dyingWriter struct {
	store.Writer
	d *dying
}

// statement executes a statement, unless the process has died.
func statement[T any](w dyingWriter, f func() (T, error)) (out T, err error) {
	if err := w.d.executes(); err != nil {
		return out, err
	}
	return f()
}

func (w dyingWriter) Now(ctx context.Context) (time.Time, error) {
	return statement(w, func() (time.Time, error) {
		now, err := w.Writer.Now(ctx)
		return now.Add(-w.d.setBack), err
	})
}

func (w dyingWriter) LogEnd(ctx context.Context) (int64, error) {
	return statement(w, func() (int64, error) { return w.Writer.LogEnd(ctx) })
}

func (w dyingWriter) ListRecords(ctx context.Context, q store.RecordQuery) ([]store.Record, error) {
	return statement(w, func() ([]store.Record, error) { return w.Writer.ListRecords(ctx, q) })
}

func (w dyingWriter) LockRecord(ctx context.Context, table store.RecordTable, kind, id string) (store.Record, error) {
	return statement(w, func() (store.Record, error) { return w.Writer.LockRecord(ctx, table, kind, id) })
}

func (w dyingWriter) PutRecord(ctx context.Context, r store.Record) error {
	_, err := statement(w, nothing(func() error { return w.Writer.PutRecord(ctx, r) }))
	return err
}

func (w dyingWriter) Logged(ctx context.Context, q store.LogQuery) (store.LogPage, error) {
	return statement(w, func() (store.LogPage, error) { return w.Writer.Logged(ctx, q) })
}

func (w dyingWriter) EraseLogged(ctx context.Context, messages []store.LoggedMessage) (int, error) {
	return statement(w, func() (int, error) { return w.Writer.EraseLogged(ctx, messages) })
}

func (w dyingWriter) EraseParked(ctx context.Context, f store.EraseFilter, limit int) ([]store.ErasedParked, error) {
	out, err := statement(w, func() ([]store.ErasedParked, error) { return w.Writer.EraseParked(ctx, f, limit) })
	if between := w.d.between; err == nil && len(out) == 0 && !w.d.found && between != nil {
		w.d.between = nil
		between()
	}
	return out, err
}

func (w dyingWriter) LockDead(ctx context.Context, q store.DeadQuery, below int) (store.LockedDead, error) {
	return statement(w, func() (store.LockedDead, error) { return w.Writer.LockDead(ctx, q, below) })
}

func (w dyingWriter) EraseDead(ctx context.Context, f store.EraseFilter, limit int) (int, error) {
	n, err := statement(w, func() (int, error) { return w.Writer.EraseDead(ctx, f, limit) })
	w.d.found = w.d.found || n > 0
	return n, err
}

func (w dyingWriter) Resolve(ctx context.Context, numbers []int64, r store.Resolution) error {
	_, err := statement(w, nothing(func() error { return w.Writer.Resolve(ctx, numbers, r) }))
	return err
}

func (w dyingWriter) LockHeld(ctx context.Context, relay, key string) (store.HeldInfo, error) {
	return statement(w, func() (store.HeldInfo, error) { return w.Writer.LockHeld(ctx, relay, key) })
}

func (w dyingWriter) ResumeHeld(ctx context.Context, h store.HeldInfo) error {
	_, err := statement(w, nothing(func() error { return w.Writer.ResumeHeld(ctx, h) }))
	return err
}

// erasureSurvives: the process of an erasure dies at each of its statements. An operator who knows nothing but the list finishes it.
func erasureSurvives(e *env) {
	for statements, died := 0, true; died; statements++ {
		plan := erasure.Plan{Key: fmt.Sprint("person/", statements), By: "olga", Reason: "request"}
		w := e.worker("r", "a")
		w.deadLetter("rejected", e.personal(plan.Key, "acme", 1)...)
		w.hold(plan.Key, 2, time.Hour)
		_, err := erasure.New(&dying{Records: e.database, statements: statements}).Erase(e.ctx, plan, nil)
		if died = err != nil; died && !errors.Is(err, errDied) {
			e.t.Fatalf("erase: %v", err)
		}
		var left []erasure.Erasure
		for l, err := range erasure.New(e.database).List(e.ctx) {
			if e.must(err, "list"); !l.Ended() {
				left = append(left, l)
			}
		}
		switch {
		case len(left) > 0:
			l, err := erasure.New(e.reopen(e.t)).Resume(e.ctx, left[0].ID, "eva", nil)
			if e.must(err, "resume"); len(left) > 1 || !l.Ended() || l.ResumedBy != "eva" || l.By != "olga" {
				e.t.Errorf("after %d statements: %+v is left, resumed %+v", statements, left, l)
			}
		case died: // before it was on record, or when it had ended
			if _, err = erasure.New(e.database).Erase(e.ctx, plan, nil); err != nil {
				e.t.Errorf("erase again: %v", err)
			}
		}
		e.nothingLeft(plan)
		if statements > 1_000 {
			e.t.Fatal("the erasure does not end")
		}
	}
}

// nothingLeft expects no message that a plan selects, and nothing of its value on record.
func (e *env) nothingLeft(p erasure.Plan) {
	e.t.Helper()
	n, err := erasure.New(e.database).Count(e.ctx, p)
	if e.must(err, "count"); n != (erasure.Erased{}) {
		e.t.Errorf("%+v is left of %+v", n, p)
	}
	e.viewRecords(func(r store.Reader) error {
		records, err := r.ListRecords(e.ctx, store.RecordQuery{Table: store.WorkRecords, Kind: "erasure", Limit: 1_000})
		for _, d := range records {
			if strings.Contains(string(d.Body), `"`+p.Key+`"`) {
				e.t.Errorf("on record: %s", d.Body)
			}
		}
		return err
	})
}

// erasesWithAnySlowClock: a standby with a slow clock was promoted, so that all messages seem to be written after the erasure began.
func erasesWithAnySlowClock(e *env) {
	e.publish(e.personal("order/1", "acme", 2_500)...)
	done, err := erasure.New(&dying{Records: e.database, statements: 1_000, setBack: time.Hour}).Erase(e.ctx, erasure.Plan{Key: "order/1", By: "olga"}, nil)
	e.must(err, "erase")
	e.wantErased(done.Erased, 2_500, 0, 0)
}

// erasesWhatMoves: a message is dead-lettered, or sent back, between two searches of the last step of an erasure.
func erasesWhatMoves(e *env) {
	if e.suite.features.Bubble {
		e.t.Skip("this store changes records in one step")
	}
	parked := e.worker("parked", "a").parkAlone(e.personal("order/1", "acme", 1)[0], store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour})
	e.worker("dead", "a").drain()
	for name, move := range map[string]func(){
		"order/1": func() {
			n := e.partition("order/1")
			w := e.worker("parked", "a")
			w.number[n]++
			w.send(store.Settlement{Partition: n, Dead: []store.DeadOutcome{
				{Sequence: parked.Message.Sequence, Key: "order/1", Reason: "rejected", Cause: "cause", Attempts: 2},
			}})
		},
		"order/2": func() { e.redrive(store.DeadFilter{Key: "order/2"}, 1) },
	} {
		if name == "order/2" {
			w := e.worker("other", "a")
			w.drain()
			w.deadLetter("rejected", e.personal("order/2", "acme", 1)...)
		}
		plan := erasure.Plan{Key: name, By: "olga"}
		_, err := erasure.New(&dying{Records: e.database, statements: 1_000, between: func() {
			moved := make(chan struct{})
			go func() { defer close(moved); move() }()
			<-moved
		}}).Erase(e.ctx, plan, nil)
		e.must(err, "erase")
		e.nothingLeft(plan)
	}
}

// erasesWhatIsBeingReplayed: the transaction of a replay has copied a message before it is erased, and commits later.
func erasesWhatIsBeingReplayed(e *env) {
	if e.suite.features.Bubble {
		e.t.Skip("this store changes records in one step")
	}
	e.worker("r", "a").delivered(e.personal("order/1", "acme", 1)...)
	var logged []store.LoggedMessage
	e.viewRecords(func(r store.Reader) error {
		page, err := r.Logged(e.ctx, store.LogQuery{Relay: "r", UpTo: 1 << 60, Limit: 100})
		logged = page.Messages
		return err
	})
	plan, erased := erasure.Plan{Key: "order/1", By: "olga"}, make(chan error, 1)
	begun := false
	e.changeRecords(func(w store.Writer) error {
		_, err := w.ParkReplayed(e.ctx, store.ReplayedMessages{Relay: "r", Messages: logged, Headers: map[string]string{}, Entry: "replayed"})
		if err == nil && !begun {
			begun = true
			go func() { _, err := erasure.New(e.reopen(e.t)).Erase(e.ctx, plan, nil); erased <- err }()
			select {
			case err := <-erased: // it should have waited
				erased <- err
			case <-time.After(300 * time.Millisecond):
			}
		}
		return err
	})
	e.must(<-erased, "erase")
	e.nothingLeft(plan)
}
