package scenariotest

import (
	"reflect"
	"time"

	"github.com/postrider/postrider/saga"
)

// asks checks the one question that is open, of an instance that was just asked; none if text is "".
func (w *world[Tx]) asks(id, text string, last time.Duration) {
	w.Helper()
	o := saga.NewOperator(w.store)
	in, err := w.store.ShowSaga(w.Context(), id)
	w.must(err)
	own, err := saga.Questions(in)
	w.must(err)
	listed, next, err := o.Questions(w.Context(), in.Saga, "", 10)
	w.must(err)
	if text == "" {
		if len(own) > 0 || len(listed) > 0 || next != "" {
			w.Errorf("questions after the answer: %+v and %+v, then %q", own, listed, next)
		}
		return
	}
	if len(own) != 1 || !reflect.DeepEqual(own, listed) || next != "" {
		w.Fatalf("instance %s asks %+v, and the list has %+v, then %q", id, own, listed, next)
	}
	q := own[0]
	w.equal("roles", q.Roles, []string{"finance", "legal"})
	w.equal("options", q.Options, []string{"release", "reject"})
	if q.ID != id || q.Run != in.Run || q.Rev != in.Rev || q.Step != "release" || q.Text != text || q.Since.Before(in.StartedAt) || q.Deadline.Sub(q.Since) != last {
		w.Errorf("instance %s at revision %d, started %s, asks %+v", id, in.Rev, in.StartedAt, q)
	}
}

// questions: those of items are listed page by page, and nothing else that waits for a step with a similar name.
func questions[Tx any](w *world[Tx]) {
	lines := linesStep(0)
	lines.Steps = []saga.Step[line]{saga.Ask[line]{
		Name: "release", Question: func(l line) string { return "Release line " + l.Line + " of " + l.Order + "?" }, Options: []string{"yes", "no"}, Timeout: saga.NoTimeout,
	}}
	second := reviewStep(time.Hour)
	second.Name = "release-second"
	s := w.register(define(lines, second))
	w.runEngine()
	for id, n := range map[string]int{"41": 2, "42": 2, "43": 0} {
		w.start(s, order{ID: id, Lines: n})
		w.becomes(s, id, "waiting", func(r saga.Result[order]) bool { return len(r.Waiting) > 0 })
	}
	if refused := w.operate("41", saga.Operation{Verb: saga.Pause}); refused != "" {
		w.Errorf("pause was refused: %s", refused)
	}
	want := map[string]bool{"Release line 1 of 41?": true, "Release line 2 of 41?": true, "Release line 1 of 42?": true, "Release line 2 of 42?": true}
	pages := 0
	for next := ""; next != "" || pages == 0; pages++ {
		list, after, err := saga.NewOperator(w.store).Questions(w.Context(), "", next, 1)
		w.must(err)
		for _, q := range list {
			if !want[q.Text] || q.ID != list[0].ID || !q.Deadline.IsZero() || len(q.Roles) > 0 || q.Paused != (q.ID == "41") {
				w.Errorf("page %d after run %q has %+v", pages, next, q)
			}
			delete(want, q.Text)
		}
		next = after
	}
	if len(want) > 0 || pages != 4 { // an instance that asks nothing has an empty page, and a full page is not known to be the last
		w.Errorf("%d pages have no %v", pages, want)
	}
	if refused := w.operate("42", saga.Operation{Verb: saga.AnswerAsk, Step: "lines[2]/release", Option: "no"}); refused != "" {
		w.Errorf("the answer about an item was refused: %s", refused)
	}
	list, _, err := saga.NewOperator(w.store).Questions(w.Context(), "", "", 10)
	if w.must(err); len(list) != 3 {
		w.Errorf("questions after one answer: %+v", list)
	}
}
