package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/erasure"
	"github.com/postrider/postrider/legalhold"
	"github.com/postrider/postrider/store"
)

var recordTests = []test{
	{name: "RecordsAreKeptByRevision", run: recordRevisions},
	{name: "RecordsOfAKindAreListedNewestFirst", run: recordLists},
	{name: "AnEmptyIDIsThatOfNoRecord", run: emptyRecordID},
	{name: "RecordsExpire", run: recordsExpire},
	{name: "AnExpiredRecordIsReplaced", run: expiredRecordIsReplaced, statements: true},
	{name: "ARecordIsRemoved", run: recordRemoved},
	{name: "LockedRecordIsChangedByOneAtATime", run: recordLocked},
	{name: "AnExpiredRecordIsNotChanged", run: expiredRecordIsNotChanged, statements: true},
	{name: "OneOfTwoChangesOfARecordIsRefused", run: recordRace},
	{name: "OneOfTwoFirstRevisionsIsRefused", run: firstRevisionRace},
	{name: "RecordsAreRolledBackWithTheRest", run: recordRollback},
	{name: "AFailedChangeLeavesNothing", run: failedChangeLeavesNothing},
	{name: "ARelayIsPausedAndResumed", run: pauses, statements: true},
	{name: "PauseEndsWithItsRelay", run: pauseEndsWithItsRelay},
	{name: "RedriveRateEndsWithItsRelay", run: redriveRateEndsWithItsRelay},
	{name: "ProgressOfRelaysIsFound", run: progressIsFound},
}

var recordTables = []store.RecordTable{store.WorkRecords, store.AuthRecords, store.AuditRecords}

func (e *env) putRecord(r store.Record) error {
	return e.Change(e.ctx, store.Operation{Method: "PutRecord", Doing: "put a record"}, func(w store.Writer) error {
		return w.PutRecord(e.ctx, r)
	})
}

func (e *env) changeRecords(f func(w store.Writer) error) {
	e.t.Helper()
	e.must(e.Change(e.ctx, store.Operation{Method: "Test", Doing: "test"}, f), "change records")
}

func (e *env) viewRecords(f func(r store.Reader) error) {
	e.t.Helper()
	e.must(e.View(e.ctx, store.Operation{Method: "Test", Doing: "test"}, f), "read records")
}

func (e *env) listRecords(q store.RecordQuery) (out []store.Record) {
	e.t.Helper()
	e.must(e.View(e.ctx, store.Operation{Method: "ListRecords", Doing: "list records"}, func(r store.Reader) (err error) {
		out, err = r.ListRecords(e.ctx, q)
		return err
	}), "list records")
	return out
}

func recordRevisions(e *env) {
	for _, table := range recordTables {
		r := store.Record{Table: table, Kind: "review", ID: "a/ü", Body: []byte{0, 1, 0xff}}
		e.must(e.putRecord(r), "add")
		if err := e.putRecord(r); !errors.Is(err, store.ErrRecordChanged) {
			e.t.Errorf("%s: the second one with the ID: %v", table, err)
		}
		q := store.RecordQuery{Table: table, Kind: "review", ID: r.ID, Limit: 10}
		got := e.listRecords(q)
		if len(got) != 1 || got[0].Rev != 1 || string(got[0].Body) != string(r.Body) || got[0].At.IsZero() || !got[0].Expires.IsZero() {
			e.t.Fatalf("%s: %+v", table, got)
		}
		changed := got[0]
		changed.Body = []byte("changed")
		e.must(e.putRecord(changed), "change")
		if err := e.putRecord(changed); !errors.Is(err, store.ErrRecordChanged) {
			e.t.Errorf("%s: a change of an older revision: %v", table, err)
		}
		if got := e.listRecords(q); len(got) != 1 || got[0].Rev != 2 || string(got[0].Body) != "changed" {
			e.t.Errorf("%s: %+v", table, got)
		}
	}
}

func recordLists(e *env) {
	for _, table := range recordTables {
		for _, id := range []string{"1", "3", "2"} {
			e.must(e.putRecord(store.Record{Table: table, Kind: "a", ID: id, Body: []byte(id)}), "add")
			e.must(e.putRecord(store.Record{Table: table, Kind: "b", ID: id, Body: []byte("other")}), "add")
		}
		for want, q := range map[string]store.RecordQuery{
			"321": {Limit: 10}, "32": {Limit: 2}, "21": {Before: "3", Limit: 10}, "": {ID: "4", Limit: 10},
		} {
			got := ""
			q.Table, q.Kind = table, "a"
			for _, r := range e.listRecords(q) {
				got += string(r.Body)
			}
			if got != want {
				e.t.Errorf("%s: %+v lists %q, want %q", table, q, got, want)
			}
		}
	}
}

// emptyRecordID: an empty ID, such as that of an unset variable, names no record, although it lists them all.
func emptyRecordID(e *env) {
	for _, table := range recordTables {
		e.must(e.putRecord(store.Record{Table: table, Kind: "a", ID: "1", Body: []byte("{}")}), "add")
		e.must(e.Change(e.ctx, store.Operation{Method: "Test", Doing: "test"}, func(w store.Writer) error {
			if r, err := w.LockRecord(e.ctx, table, "a", ""); !errors.Is(err, store.ErrNoRecord) {
				e.t.Errorf("%s: %+v, %v, want %v", table, r, err, store.ErrNoRecord)
			}
			return nil
		}), "lock no record")
	}
	holds := legalhold.New(e.database)
	h, err := holds.Place(e.ctx, "ann", "lawsuit 12")
	e.must(err, "place a hold")
	if _, err := holds.Release(e.ctx, "", "ann", "it has ended"); !errors.Is(err, legalhold.ErrNoHold) {
		e.t.Errorf("release of no hold: %v, want %v", err, legalhold.ErrNoHold)
	}
	_, err = holds.Release(e.ctx, h.ID, "ann", "it has ended")
	e.must(err, "release the hold")
	erasures := erasure.New(e.database)
	_, err = erasures.Erase(e.ctx, erasure.Plan{Key: "order/1"}, nil)
	e.must(err, "erase")
	if _, err := erasures.Resume(e.ctx, "", "ann", nil); !errors.Is(err, erasure.ErrNoErasure) {
		e.t.Errorf("resume of no erasure: %v, want %v", err, erasure.ErrNoErasure)
	}
}

func recordsExpire(e *env) {
	r := store.Record{Table: store.WorkRecords, Kind: "review", ID: "1", Expires: time.Now().Add(-time.Hour), Body: []byte("{}")}
	e.must(e.putRecord(r), "add")
	q := store.RecordQuery{Table: r.Table, Kind: r.Kind, Limit: 10}
	if got := e.listRecords(q); len(got) > 0 {
		e.t.Errorf("an expired record is listed: %+v", got)
	}
	r.Expires = time.Now().Add(time.Hour)
	e.must(e.putRecord(r), "add another one in its place")
	if got := e.listRecords(q); len(got) != 1 || got[0].Rev != 1 || got[0].Expires.Sub(r.Expires).Abs() > time.Millisecond {
		e.t.Errorf("%+v", got)
	}
}

// expiredRecordIsReplaced: also by one that does not expire, whose putting removes no others.
func expiredRecordIsReplaced(e *env) {
	for _, table := range []store.RecordTable{store.WorkRecords, store.AuthRecords} {
		for name, ends := range map[string]time.Time{"never": {}, "later": time.Now().Add(time.Hour)} {
			r := store.Record{Table: table, Kind: "pause", ID: name, Body: []byte("old")}
			e.must(e.putRecord(r), "add")
			old := r
			old.Rev, old.Expires = 1, time.Now().Add(-time.Hour)
			e.must(e.putRecord(old), "end it")
			r.Expires, r.Body = ends, []byte("new")
			e.must(e.putRecord(r), "add another one in its place")
			got := e.listRecords(store.RecordQuery{Table: table, Kind: r.Kind, ID: r.ID, Limit: 10})
			if len(got) != 1 || got[0].Rev != 1 || string(got[0].Body) != "new" || got[0].Expires.IsZero() != ends.IsZero() || time.Since(got[0].At) > time.Hour {
				e.t.Fatalf("%s, it ends %s: %+v", table, name, got)
			}
			if err := e.putRecord(r); !errors.Is(err, store.ErrRecordChanged) {
				e.t.Errorf("%s, it ends %s: the next one in its place, while it is there: %v", table, name, err)
			}
		}
	}
}

// recordRemoved: only the one with this table, kind and ID. Nobody finds it any more, and another one can take its place.
func recordRemoved(e *env) {
	gone := store.Record{Table: store.WorkRecords, Kind: "a", ID: "1", Body: []byte("gone")}
	left := []store.Record{{Table: gone.Table, Kind: "a", ID: "2"}, {Table: gone.Table, Kind: "b", ID: "1"}, {Table: store.AuthRecords, Kind: "a", ID: "1"}}
	e.must(e.putRecord(gone), "add")
	for i := range left {
		left[i].Body = []byte("left")
		e.must(e.putRecord(left[i]), "add")
	}
	for range 2 { // the second time it is not there
		e.changeRecords(func(w store.Writer) error { return w.RemoveRecord(e.ctx, gone.Table, gone.Kind, gone.ID) })
	}
	find := func(r store.Record) []store.Record {
		return e.listRecords(store.RecordQuery{Table: r.Table, Kind: r.Kind, ID: r.ID, Limit: 1})
	}
	if got := find(gone); len(got) > 0 {
		e.t.Errorf("the removed record: %+v", got)
	}
	for _, r := range left {
		if got := find(r); len(got) != 1 || string(got[0].Body) != "left" {
			e.t.Errorf("%s %s %s: %+v", r.Table, r.Kind, r.ID, got)
		}
	}
	e.changeRecords(func(w store.Writer) error {
		if r, err := w.LockRecord(e.ctx, gone.Table, gone.Kind, gone.ID); !errors.Is(err, store.ErrNoRecord) {
			e.t.Errorf("lock of the removed record: %+v, %v; want %v", r, err, store.ErrNoRecord)
		}
		return nil
	})
	e.must(e.putRecord(gone), "add again")
}

func recordLocked(e *env) {
	counter := store.Record{Table: store.WorkRecords, Kind: "counter", ID: "1", Body: []byte("0")}
	e.must(e.putRecord(counter), "add")
	var counting sync.WaitGroup
	for range 4 {
		counting.Go(func() {
			for range 5 {
				e.changeRecords(func(w store.Writer) error {
					r, err := w.LockRecord(e.ctx, counter.Table, counter.Kind, counter.ID)
					if err != nil {
						return err
					}
					n := 0
					if _, err := fmt.Sscan(string(r.Body), &n); err != nil {
						return err
					}
					r.Body = fmt.Append(nil, n+1)
					return w.PutRecord(e.ctx, r)
				})
			}
		})
	}
	counting.Wait()
	got := e.listRecords(store.RecordQuery{Table: counter.Table, Kind: counter.Kind, Limit: 10})
	if len(got) != 1 || string(got[0].Body) != "20" || got[0].Rev != 21 {
		e.t.Errorf("20 changes left %+v", got)
	}
}

// expiredRecordIsNotChanged: it is gone, also for whoever has read its revision before.
func expiredRecordIsNotChanged(e *env) {
	for _, table := range []store.RecordTable{store.WorkRecords, store.AuthRecords} {
		r := store.Record{Table: table, Kind: "pause", ID: "1", Body: []byte("old")}
		e.must(e.putRecord(r), "add")
		r.Rev, r.Expires = 1, time.Now().Add(-time.Hour)
		e.must(e.putRecord(r), "end it")
		for _, r.Expires = range []time.Time{{}, time.Now().Add(time.Hour)} {
			r.Rev, r.Body = 2, []byte("changed")
			if err := e.putRecord(r); !errors.Is(err, store.ErrRecordChanged) {
				e.t.Errorf("%s: change an expired record: %v, want %v", table, err, store.ErrRecordChanged)
			}
			if got := e.listRecords(store.RecordQuery{Table: table, Kind: r.Kind, Limit: 10}); len(got) > 0 {
				e.t.Errorf("%s: %+v is there again", table, got)
			}
		}
	}
}

func recordRace(e *env) {
	e.must(e.putRecord(store.Record{Table: store.WorkRecords, Kind: "review", ID: "1", Body: []byte("{}")}), "add")
	e.raceRecord("1", 1)
}

// firstRevisionRace tries several times, because those who add a record meet only sometimes.
func firstRevisionRace(e *env) {
	for i := range 25 {
		e.raceRecord(fmt.Sprint(i), 0)
	}
}

// raceRecord puts a record several times at once: one succeeds, and the others learn that it has changed.
func (e *env) raceRecord(id string, rev int64) {
	e.t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			errs[i] = e.putRecord(store.Record{Table: store.WorkRecords, Kind: "review", ID: id, Rev: rev, Body: fmt.Append(nil, i)})
		})
	}
	wg.Wait()
	done := 0
	for _, err := range errs {
		switch {
		case err == nil:
			done++
		case !errors.Is(err, store.ErrRecordChanged):
			e.t.Error(err)
		}
	}
	if done != 1 {
		e.t.Errorf("%d of %d changes of one revision were made", done, len(errs))
	}
}

// recordRollback fails before it changes anything in a store that cannot undo: the second record exists already.
func recordRollback(e *env) {
	e.must(e.putRecord(store.Record{Table: store.WorkRecords, Kind: "review", ID: "1", Body: []byte("{}")}), "add")
	err := e.Change(e.ctx, store.Operation{Method: "PutRecord", Doing: "put a record"}, func(w store.Writer) error {
		if err := w.PutRecord(e.ctx, store.Record{Table: store.WorkRecords, Kind: "review", ID: "1", Body: []byte("{}")}); err != nil {
			return err
		}
		return w.PutRecord(e.ctx, store.Record{Table: store.AuditRecords, Kind: "action", ID: "1", Body: []byte("{}")})
	})
	if !errors.Is(err, store.ErrRecordChanged) {
		e.t.Errorf("error %v", err)
	}
	if got := e.listRecords(store.RecordQuery{Table: store.AuditRecords, Kind: "action", Limit: 1}); len(got) > 0 {
		e.t.Errorf("the audit has %+v", got)
	}
}
