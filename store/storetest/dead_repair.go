package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

var repairTests = []test{
	{name: "EditKeepsWhatWasThere", run: editKeeps},
	{name: "EditIsRefused", run: editIsRefused},
	{name: "EditMakesAnUnreadableMessageReadable", run: editUnreadable},
	{name: "EditComesBeforeTheRedriveOrNotAtAll", run: editWhileRedriving},
	{name: "CausesAreCountedByKind", run: causesAreCounted},
	{name: "FilterChoosesByCauseAndRedrive", run: filterByCause},
	{name: "ExportedLettersAreTheSameElsewhere", run: exportImport},
	{name: "ImportedLettersDoNotTouchTheLog", run: importedNextToLog},
	{name: "ConcurrentImportsAddEachLetterOnce", run: concurrentImports},
	{name: "ImportGoesByThePartitionsOfTheMoment", run: importRepartitioned},
}

func editKeeps(e *env) {
	w := e.worker("r", "a")
	m := e.message("order/1")
	m.Headers = map[string]string{"trace": "ö", "wrong": "yes"}
	w.deadLetter("rejected", m)
	before := e.deadLetters(everyOpen)[0]
	l, err := e.EditDead(e.ctx, before.Number, store.Edit{Payload: []byte(`{"n":2}`), By: "olga", Why: "n was wrong"})
	e.must(err, "edit the payload")
	headers := map[string]string{"trace": "ö", "right": "yes"}
	l, err = e.EditDead(e.ctx, l.Number, store.Edit{Headers: headers, Seen: 1, By: "otto", Why: "header"})
	e.must(err, "edit the headers")
	if string(l.Message.Payload) != `{"n":2}` || !maps.Equal(l.Message.Headers, headers) || l.Edits != 2 || l.State != store.DeadOpen {
		e.t.Errorf("edited letter: %+v, message %+v", l, l.Message)
	}
	edits, err := e.ListEdits(e.ctx, l.Number)
	e.must(err, "list edits")
	if len(edits) != 2 || string(edits[0].Payload) != `{"n":1}` || !maps.Equal(edits[0].Headers, m.Headers) ||
		string(edits[1].Payload) != `{"n":2}` || !maps.Equal(edits[1].Headers, m.Headers) ||
		edits[0].By != "olga" || edits[1].Why != "header" || time.Since(edits[1].At).Abs() > time.Minute {
		e.t.Errorf("edits: %+v", edits)
	}
	e.redrive(everyOpen, 1)
	if sent := w.due().Runs[0].Entries[0].Message; string(sent.Payload) != `{"n":2}` || !maps.Equal(sent.Headers, headers) || sent.ID != m.ID {
		e.t.Errorf("sent back: %+v", sent)
	}
	if l, err := e.ShowDead(e.ctx, l.Number); err != nil || l.Edits != 2 {
		e.t.Errorf("letter after it was sent back: %+v, %v", l, err)
	}
}

func editIsRefused(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 2)...)
	deadLetters := e.deadLetters(everyOpen)
	open, resolved := deadLetters[0].Number, deadLetters[1].Number
	e.redrive(store.DeadFilter{Numbers: []int64{resolved}}, 1)
	many := make(map[string]string)
	for i := range postrider.MaxHeaders + 1 {
		many[fmt.Sprint("h", i)] = "v"
	}
	payload := []byte(`{}`)
	edit := func(number int64, edit store.Edit) error {
		_, err := e.EditDead(e.ctx, number, edit)
		return err
	}
	_, list := e.ListEdits(e.ctx, 4_711)
	for i, c := range []struct{ got, want error }{
		{edit(4_711, store.Edit{Payload: payload}), deadletter.ErrNotFound},
		{list, deadletter.ErrNotFound},
		{edit(resolved, store.Edit{Payload: payload}), deadletter.ErrResolved},
		{edit(open, store.Edit{Payload: payload, Seen: 1}), deadletter.ErrEdited},
	} {
		if !errors.Is(c.got, c.want) {
			e.t.Errorf("%d: %v, want %v", i, c.got, c.want)
		}
	}
	for _, bad := range []store.Edit{{}, {Headers: many}, {Headers: map[string]string{"": "v"}}} {
		if err := edit(open, bad); err == nil {
			e.t.Errorf("edit %+v was taken", bad)
		}
	}
	if l, err := e.ShowDead(e.ctx, open); err != nil || l.Edits != 0 || string(l.Message.Payload) != `{"n":1}` {
		e.t.Errorf("letter after refused edits: %+v, %v", l, err)
	}
	e.must(edit(open, store.Edit{Headers: map[string]string{}}), "take away all headers")
}

func editUnreadable(e *env) {
	w := e.worker("r", "a")
	tx := e.open()
	m := e.message("order/1")
	e.must(tx.insertUndecodable(e.ctx, m), "insert")
	e.commit(tx)
	r := w.drain()[0]
	w.settle(store.Settlement{Partition: e.partition("order/1"), Dead: []store.DeadOutcome{
		{Sequence: r.Message.Sequence, Key: "order/1", FromLog: true, Reason: "undecodable", Cause: r.Err.Error()},
	}})
	l := e.deadLetters(everyOpen)[0]
	if l.Unreadable == "" {
		e.t.Errorf("letter does not say that it cannot be read: %+v", l)
	}
	var out bytes.Buffer
	_, err := e.Export(e.ctx, &out, everyOpen)
	e.must(err, "export")
	if _, err := e.Import(e.ctx, &out, nil); err == nil || !strings.Contains(err.Error(), "line 1") {
		e.t.Errorf("import of a letter that cannot be read: %v", err)
	}
	l, err = e.EditDead(e.ctx, l.Number, store.Edit{Headers: map[string]string{"a": "b"}, By: "olga"})
	if e.must(err, "edit"); l.Unreadable != "" || l.Message.Headers["a"] != "b" {
		e.t.Errorf("repaired letter: %+v", l)
	}
	e.redrive(everyOpen, 1)
	if r := w.due().Runs[0].Entries[0]; r.Err != nil || r.Message.ID != m.ID {
		e.t.Errorf("sent back: %+v", r)
	}
}

func editWhileRedriving(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 30)...)
	deadLetters := e.deadLetters(everyOpen)
	edited := make(map[string]bool)
	r := e.startRedrive(everyOpen)
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, l := range deadLetters {
			_, err := e.EditDead(e.ctx, l.Number, store.Edit{Payload: []byte(`{"n":2}`), By: "otto"})
			if err != nil && !errors.Is(err, deadletter.ErrResolved) {
				e.t.Errorf("edit: %v", err)
			}
			edited[l.Message.ID] = err == nil
		}
	})
	wg.Go(func() {
		other := e.reopen(e.t)
		for r.State == store.RedriveRunning {
			var err error
			if r, _, err = deadletter.New(other).StepRedrive(e.ctx, r.ID, 2); err != nil {
				e.t.Errorf("step: %v", err)
				return
			}
		}
	})
	wg.Wait()
	n := 0
	for _, run := range w.due().Runs {
		for _, rec := range run.Entries {
			n++
			if want := map[bool]string{true: `{"n":2}`, false: `{"n":1}`}[edited[rec.Message.ID]]; string(rec.Message.Payload) != want {
				e.t.Errorf("message %s was sent back with %s, want %s", rec.Message.ID, rec.Message.Payload, want)
			}
		}
	}
	if n != 30 {
		e.t.Errorf("%d messages were sent back, want 30", n)
	}
}

// deadLetterWith dead-letters one message for each cause.
func (w *worker) deadLetterWith(reason string, causes ...string) []string {
	w.t.Helper()
	var all []string
	for _, cause := range causes {
		m := w.message("")
		w.publish(m)
		p := postrider.PartitionOf("", m.ID, w.partitions)
		for _, r := range w.drain() {
			w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Dead: []store.DeadOutcome{
				{Sequence: r.Message.Sequence, FromLog: true, Reason: reason, Cause: cause, Attempts: 1},
			}})
		}
		all = append(all, m.ID)
	}
	return all
}

func causesAreCounted(e *env) {
	w, other := e.worker("r", "a"), e.worker("other", "a")
	w.deadLetterWith("rejected", "order 4711 is unknown", "order 4712 is unknown", "no route to host 10.0.0.7")
	w.deadLetterWith("timed out", "no route to host 10.0.0.8", "")
	other.drain()
	other.deadLetterWith("rejected", "order 1 is unknown")
	all, err := e.CountCauses(e.ctx, store.DeadFilter{}, 10)
	e.must(err, "count causes")
	counts := all.Causes
	var got []string
	for _, c := range counts {
		got = append(got, fmt.Sprint(c.Relay, " ", c.DeadLetters, " ", c.Cause))
		if c.Type != "order.placed" || c.Fingerprint != store.Fingerprint(c.Cause) || c.Oldest.After(c.Newest) ||
			time.Since(c.Newest).Abs() > time.Minute {
			e.t.Errorf("count: %+v", c)
		}
	}
	e.wantSet("counts", got, []string{"r 2 order 4712 is unknown", "r 2 no route to host 10.0.0.8", "r 1 ", "other 1 order 1 is unknown"})
	if counts[0].DeadLetters != 2 || counts[1].DeadLetters != 2 || counts[1].Number < counts[0].Number {
		e.t.Errorf("order of the counts: %+v", counts)
	}
	few, err := e.CountCauses(e.ctx, store.DeadFilter{Relay: "r"}, 1)
	if e.must(err, "count causes"); !few.Complete || len(few.Causes) != 1 || few.Causes[0] != counts[0] {
		e.t.Errorf("the first of the counts: %+v", few)
	}
}

func filterByCause(e *env) {
	w := e.worker("r", "a")
	ids := w.deadLetterWith("rejected", "order 4711 is unknown", "100% of <orders> failed", "order 99 is unknown")
	unknown := store.DeadFilter{Fingerprint: store.Fingerprint("order 7 is unknown")}
	e.wantIDs("of one fingerprint", e.deadIDs(unknown), []string{ids[0], ids[2]})
	e.wantIDs("by part of the cause", e.deadIDs(store.DeadFilter{Cause: "% of <"}), ids[1:2])
	e.wantIDs("case is told apart", e.deadIDs(store.DeadFilter{Cause: "ORDER"}), nil)
	for f, want := range map[*store.DeadFilter]int{&unknown: 2, {Side: store.KindRelay}: 3, {Side: store.KindConsumer}: 0} {
		if n, err := e.CountDead(e.ctx, *f); int(n) != want || err != nil {
			e.t.Errorf("counted by %+v: %d, %v; want %d", f, n, err, want)
		}
	}
	r := e.drive(e.startRedrive(unknown).ID)
	e.wantRedrive(r, store.RedriveFinished, 2, 2, 0, 0)
	e.wantSet("due", w.dueIDs(), []string{ids[0], ids[2]})
	of := store.DeadFilter{Redrive: r.ID, State: store.DeadRedriven}
	e.wantIDs("sent back by a redrive", e.deadIDs(of), []string{ids[0], ids[2]})
	if n, err := e.DiscardDead(e.ctx, store.DeadFilter{Fingerprint: store.Fingerprint("5% of <orders> failed")}, "olga", "why", 0); n != 1 || err != nil {
		e.t.Errorf("discarded by fingerprint: %d, %v", n, err)
	}
}

// exported returns an export of every dead letter, and its lines by message ID, without the fields that differ between outboxes.
func (e *env) exported(db database) (text string, byID map[string]string) {
	e.t.Helper()
	var out bytes.Buffer
	_, err := deadletter.New(db).Export(e.ctx, &out, everyDead)
	e.must(err, "export")
	byID = make(map[string]string)
	for line := range strings.Lines(out.String()) {
		var a store.ArchivedDead
		e.must(json.Unmarshal([]byte(line), &a), "read the export")
		a.Number, a.Partition, a.Message.Sequence, a.Redrive = 0, 0, 0, 0
		same, err := json.Marshal(a)
		e.must(err, "write it again")
		byID[a.Message.ID] = string(same)
	}
	return out.String(), byID
}

func exportImport(e *env) {
	w := e.worker("r", "a")
	full := e.message("order/1")
	full.Headers, full.Tenant, full.CorrelationID = map[string]string{"h": "<ö>"}, "acme", "c-1"
	full.Payload, full.ContentType = []byte{0, 0xff, '\n'}, "application/octet-stream"
	full.DeliverAt = time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	w.deadLetter("rejected", full)
	w.deadLetter("rejected", e.messages("", 110)...)
	deadLetters := e.deadLetters(everyOpen)
	_, err := e.EditDead(e.ctx, deadLetters[1].Number, store.Edit{Payload: []byte(`{"n":2}`), By: "olga", Why: "n"})
	e.must(err, "edit")
	e.redrive(store.DeadFilter{Numbers: []int64{deadLetters[2].Number}}, 1)
	_, err = e.DiscardDead(e.ctx, store.DeadFilter{Numbers: []int64{deadLetters[3].Number}}, "otto", "test data", 0)
	e.must(err, "discard")
	text, want := e.exported(e.database)

	other := e.suite.open(e.t, e.partitions+1)
	for _, target := range []struct {
		db  database
		new int64
	}{{other, 111}, {other, 0}, {e.database, 0}} {
		done, err := deadletter.New(target.db).Import(e.ctx, strings.NewReader(text+"\n\n"), nil)
		if e.must(err, "import"); done.DeadLetters != 111 || done.New != target.new {
			e.t.Errorf("import: %+v, want 111 letters, %d new", done, target.new)
		}
	}
	if _, got := e.exported(other); !maps.Equal(got, want) {
		for id, line := range want {
			if got[id] != line {
				e.t.Fatalf("letter after its way through an export:\n got %s\nwant %s", got[id], line)
			}
		}
	}
	if _, err := deadletter.New(other).Import(e.ctx, strings.NewReader("\n{\"number\":1}\n"), nil); err == nil || !strings.Contains(err.Error(), "line 2") {
		e.t.Errorf("import of half a letter: %v", err)
	}
}

// importedNextToLog: in the target outbox, other messages have the sequences that the imported ones had in their own.
func importedNextToLog(e *env) {
	w := e.worker("r", "a")
	imported := w.deadLetter("rejected", e.messages("order/1", 3)...)
	text, _ := e.exported(e.database)

	there := newEnv(e.t, e.ctx, e.suite, e.suite.open(e.t, e.partitions), e.partitions)
	there.made = 1_000
	own := there.publish(there.messages("order/1", 5)...)
	_, err := deadletter.New(there.database).Import(e.ctx, strings.NewReader(text), nil)
	e.must(err, "import")
	w = there.worker("r", "a")
	records := w.drain()
	there.wantIDs("read from the log", recordIDs(records), own)
	w.settle(store.Settlement{Partition: there.partition("order/1"), Cursor: w.read[there.partition("order/1")], Moved: true, Dead: []store.DeadOutcome{
		{Sequence: records[2].Message.Sequence, Key: "order/1", FromLog: true, Reason: "rejected"},
	}})
	there.redrive(everyOpen, 4)
	var seqs []int64
	for _, run := range w.due().Runs {
		for _, r := range run.Entries {
			if r.Message.ID != own[2] {
				seqs = append(seqs, r.Message.Sequence)
			}
		}
	}
	there.wantSet("due", w.dueIDs(), append(imported, own[2]))
	for i := range seqs {
		if seqs[i] >= 0 || i > 0 && seqs[i] <= seqs[i-1] {
			e.t.Errorf("sequences of imported messages: %d", seqs)
		}
	}
	w.settle(store.Settlement{Partition: there.partition("order/1"), Removed: seqs})
	there.wantSet("due after the imported ones were delivered", w.dueIDs(), own[2:3])
}

func concurrentImports(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 30)...)
	text, _ := e.exported(e.database)
	other := e.suite.open(e.t, e.partitions)
	stores := []database{other, other.reopen(e.t)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var added int64
	for i := range 4 {
		wg.Go(func() {
			done, err := deadletter.New(stores[i%2]).Import(e.ctx, strings.NewReader(text), nil)
			if err != nil {
				e.t.Errorf("import: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			added += done.New
		})
	}
	wg.Wait()
	there := newEnv(e.t, e.ctx, e.suite, other, e.partitions)
	there.wantSet("letters", there.deadIDs(everyOpen), want)
	if added != 30 {
		e.t.Errorf("four imports at once have added %d letters, want 30 together", added)
	}
}

func importRepartitioned(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 20)...)
	w.leave()
	text, want := e.exported(e.database)
	other := newEnv(e.t, e.ctx, e.suite, e.suite.open(e.t, 2), 2)
	stale := other.reopen(e.t)
	other.repartition(9)
	_, err := deadletter.New(stale).Import(e.ctx, strings.NewReader(text), nil)
	e.must(err, "import")
	for _, l := range other.deadLetters(everyOpen) {
		if p := postrider.PartitionOf("", l.Message.ID, 9); l.Partition != p {
			e.t.Errorf("imported letter is in partition %d, want %d", l.Partition, p)
		}
	}
	other.redrive(everyOpen, len(want))
	if due := other.worker("r", "b").dueIDs(); len(due) != len(want) {
		e.t.Errorf("%d of %d imported messages are due", len(due), len(want))
	}
}
