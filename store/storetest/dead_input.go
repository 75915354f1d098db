package storetest

import (
	"errors"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

var inputTests = []test{
	{name: "TextsOfOperatorsAreMadeStorable", run: textsAreCleaned},
	{name: "TextsOfImportedLettersAreMadeStorable", run: importedTextsAreCleaned},
	{name: "NamedLettersMustBeOpenWhateverTheState", run: namedOfAnyState},
	{name: "LimitsAndNumbersAtTheirBounds", run: limitsOfDead},
}

// No database has to store these as they are.
const (
	dirtyName, cleanName = "ol\x00g\xffa", "olga"
	dirtyWhy, cleanWhy   = "\xc3\x00ö\x00 is wrong\xe2\x82", "ö is wrong"
)

func textsAreCleaned(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 4)...)
	var numbers []int64
	for _, l := range e.deadLetters(everyOpen) {
		numbers = append(numbers, l.Number)
	}
	named := func(i int) store.DeadFilter { return store.DeadFilter{Numbers: numbers[i : i+1]} }
	wantResolved := func(i int, state store.DeadState, why string) {
		e.t.Helper()
		if l, err := e.ShowDead(e.ctx, numbers[i]); err != nil || l.State != state || l.ResolvedBy != cleanName || l.Resolution != why {
			e.t.Errorf("letter %d: %s by %q, %q, %v; want %s by %q, %q", i, l.State, l.ResolvedBy, l.Resolution, err, state, cleanName, why)
		}
	}

	_, err := e.EditDead(e.ctx, numbers[0], store.Edit{Payload: []byte(`{}`), By: dirtyName, Why: dirtyWhy})
	e.must(err, "edit")
	edits, err := e.ListEdits(e.ctx, numbers[0])
	if e.must(err, "list edits"); len(edits) != 1 || edits[0].By != cleanName || edits[0].Why != cleanWhy {
		e.t.Errorf("edits: %+v", edits)
	}
	_, err = e.RedriveDead(e.ctx, named(0), dirtyName, 0)
	e.must(err, "redrive")
	wantResolved(0, store.DeadRedriven, "")
	w.dieAgain("still bad")
	if h := e.deadLetters(store.DeadFilter{Reason: "rejected again"})[0].History; len(h) < 2 || h[len(h)-2].Cause != "redriven by "+cleanName {
		e.t.Errorf("history of a redriven message: %+v", h)
	}
	_, err = e.DiscardDead(e.ctx, named(1), dirtyName, dirtyWhy, 0)
	e.must(err, "discard")
	wantResolved(1, store.DeadDiscarded, cleanWhy)

	r, err := e.StartRedrive(e.ctx, deadletter.Plan{Filter: named(2), By: dirtyName})
	if e.must(err, "start a redrive"); r.By != cleanName {
		e.t.Errorf("redrive was started by %q", r.By)
	}
	if e.drive(r.ID).By != cleanName {
		e.t.Errorf("stored redrive was started by %q", r.By)
	}
	wantResolved(2, store.DeadRedriven, "")
	r = e.startRedrive(named(3))
	if r = e.fail(r, dirtyWhy); r.Cause != cleanWhy {
		e.t.Errorf("redrive has failed because of %q", r.Cause)
	}
	_, err = e.CancelRedrive(e.ctx, r.ID, dirtyName)
	e.must(err, "cancel")
	if r, err = e.ShowRedrive(e.ctx, r.ID); err != nil || r.CancelledBy != cleanName || r.Cause != cleanWhy {
		e.t.Errorf("cancelled redrive: %+v, %v", r, err)
	}
	e.longTextsAreCut(numbers[3])
}

// longTextsAreCut: texts of any length can be given.
func (e *env) longTextsAreCut(number int64) {
	e.t.Helper()
	long := strings.Repeat("ö", 10_000)
	_, err := e.DiscardDead(e.ctx, store.DeadFilter{Numbers: []int64{number}}, long, "x"+long, 0)
	e.must(err, "discard with long texts")
	l, err := e.ShowDead(e.ctx, number)
	e.must(err, "show")
	for _, text := range []string{l.ResolvedBy, strings.TrimPrefix(l.Resolution, "x")} {
		if len(text) < 1_000 || len(text) > 4_000 || !utf8.ValidString(text) || !strings.HasPrefix(long, text) {
			e.t.Errorf("a long text is stored with %d bytes: %q", len(text), text[max(0, len(text)-10):])
		}
	}
}

func importedTextsAreCleaned(e *env) {
	m := e.message("order/1")
	m.FillDefaults(m.ID, time.Now())
	at := time.Now().UTC().Truncate(time.Microsecond)
	n, err := e.ImportDead(e.ctx, []store.ArchivedDead{{
		DeadLetter: store.DeadLetter{
			Number: 1, Relay: "r", Message: m, DiedAt: at, State: store.DeadDiscarded, ResolvedAt: at, Reason: dirtyWhy, Cause: dirtyWhy,
			ResolvedBy: dirtyName, Resolution: dirtyWhy, History: []postrider.AttemptInfo{{Attempt: 1, At: at, Cause: dirtyWhy}},
		},
		Before: []store.Edited{{At: at, By: dirtyName, Why: dirtyWhy, Payload: []byte("\x00\xff")}},
	}})
	if n != 1 || err != nil {
		e.t.Fatalf("import: %d, %v; want 1", n, err)
	}
	l := e.deadLetters(everyDead)[0]
	if l.Reason != cleanWhy || l.Cause != cleanWhy || l.ResolvedBy != cleanName || l.Resolution != cleanWhy || l.History[0].Cause != cleanWhy {
		e.t.Errorf("imported letter: %+v", l)
	}
	edits, err := e.ListEdits(e.ctx, l.Number)
	if e.must(err, "list edits"); len(edits) != 1 || edits[0].By != cleanName || edits[0].Why != cleanWhy || string(edits[0].Payload) != "\x00\xff" {
		e.t.Errorf("edits of the imported letter: %+v", edits)
	}
}

func namedOfAnyState(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 3)...)
	deadLetters := e.deadLetters(everyOpen)
	redriven, discarded, open := deadLetters[0].Number, deadLetters[1].Number, deadLetters[2].Number
	e.redrive(store.DeadFilter{Numbers: []int64{redriven}}, 1)
	_, err := e.DiscardDead(e.ctx, store.DeadFilter{Numbers: []int64{discarded}}, "olga", "why", 0)
	e.must(err, "discard")
	for _, state := range []store.DeadState{"", store.DeadOpen, store.DeadRedriven, store.DeadDiscarded, store.DeadAny} {
		for _, numbers := range [][]int64{{redriven}, {discarded}, {open, redriven}, {discarded, open}} {
			f := store.DeadFilter{Numbers: numbers, State: state}
			n, redrive := e.RedriveDead(e.ctx, f, "otto", 0)
			m, discard := e.DiscardDead(e.ctx, f, "otto", "why not", 0)
			if n != 0 || m != 0 || !errors.Is(redrive, deadletter.ErrResolved) || !errors.Is(discard, deadletter.ErrResolved) {
				e.t.Errorf("%v of state %q: redrive %d, %v; discard %d, %v; want ErrResolved", numbers, state, n, redrive, m, discard)
			}
		}
	}
	closed := store.DeadFilter{Numbers: []int64{open}, State: store.DeadRedriven}
	if n, err := e.DiscardDead(e.ctx, closed, "otto", "why not", 0); n != 0 || err != nil {
		e.t.Errorf("discard of an open letter as a redriven one: %d, %v; want none", n, err)
	}
	e.redrive(store.DeadFilter{Numbers: []int64{open}, State: store.DeadAny}, 1)
}

func limitsOfDead(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 3)...)
	for _, number := range []int64{0, -1, math.MinInt64, math.MaxInt64} {
		f := store.DeadFilter{Numbers: []int64{number}}
		_, show := e.ShowDead(e.ctx, number)
		_, redrive := e.RedriveDead(e.ctx, f, "olga", 0)
		_, start := e.StartRedrive(e.ctx, deadletter.Plan{Filter: f})
		_, edit := e.EditDead(e.ctx, number, store.Edit{Payload: []byte(`{}`)})
		for i, err := range []error{show, redrive, start, edit} {
			if !errors.Is(err, deadletter.ErrNotFound) {
				e.t.Errorf("number %d, operation %d: %v, want ErrNotFound", number, i, err)
			}
		}
	}
	list := func(after int64, limit int) (n int) {
		for _, err := range e.ListDead(e.ctx, everyOpen, after, limit) {
			e.must(err, "list dead letters")
			n++
		}
		return n
	}
	for _, c := range []struct {
		after       int64
		limit, want int
	}{{0, math.MaxInt, 3}, {-1, 0, 3}, {math.MinInt64, 0, 3}, {math.MaxInt64, 0, 0}} {
		if n := list(c.after, c.limit); n != c.want {
			e.t.Errorf("%d dead letters after %d with limit %d, want %d", n, c.after, c.limit, c.want)
		}
	}

	r := e.startRedrive(everyOpen)
	_, redrive := e.RedriveDead(e.ctx, everyOpen, "olga", -1)
	_, discard := e.DiscardDead(e.ctx, everyOpen, "olga", "why", -1)
	_, _, step := e.StepRedrive(e.ctx, r.ID, -1)
	_, causes := e.CountCauses(e.ctx, everyOpen, -1)
	_, bound := e.RedriveDead(e.ctx, store.DeadFilter{MaxRedrives: deadletter.Unbounded - 1}, "olga", 0)
	for i, err := range []error{redrive, discard, step, causes, bound} {
		if err == nil {
			e.t.Errorf("negative number %d was taken", i)
		}
	}
	if n := len(e.deadLetters(everyOpen)); n != 3 {
		e.t.Fatalf("%d dead letters are open after refused operations, want 3", n)
	}
	if c, err := e.CountCauses(e.ctx, everyOpen, math.MaxInt); err != nil || len(c.Causes) == 0 {
		e.t.Errorf("causes without a limit: %+v, %v", c, err)
	}
	if r, _, err := e.StepRedrive(e.ctx, e.startRedrive(store.DeadFilter{Numbers: []int64{e.deadLetters(everyOpen)[0].Number}}).ID, math.MaxInt); err != nil || r.Done != 1 {
		e.t.Errorf("step without a limit: %+v, %v", r, err)
	}
	if n, err := e.RedriveDead(e.ctx, store.DeadFilter{MaxRedrives: math.MaxInt}, "olga", math.MaxInt); n != 2 || err != nil {
		e.t.Errorf("redrive without limits: %d, %v; want 2", n, err)
	}
}
