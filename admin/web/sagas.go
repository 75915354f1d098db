package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// sagaTab is a tab of the list of sagas.
type sagaTab struct {
	Name, Path, Count string
	Current           bool
}

// sagasData is the list of sagas.
type sagasData struct {
	Stuck, Open int64
	Tabs        []sagaTab
	List        []store.SagaSummary
	// Questions are those of the tab Asking, on which there is no List.
	Asking    bool
	Questions []admin.SagaQuestion
	Next      string
}

// sagasShown is how many sagas a page shows.
const sagasShown = 50

func (h *Handler) sagas(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	view := r.URL.Query().Get("view")
	filters := map[string]store.SagaFilter{
		"": {Status: []store.SagaStatus{store.SagaStuck}}, "running": {Status: []store.SagaStatus{store.SagaRunning, store.SagaCompensating}},
		"ended": {Status: store.SagaStatuses[3:]}, "asking": {Status: []store.SagaStatus{store.SagaStuck}},
	}
	h.show(w, r, p, "/sagas", "Sagas", "sagas", func(out *page) error {
		list, counts, err := h.service.Sagas(r.Context(), p, filters[view], r.URL.Query().Get("after"), sagasShown)
		if err != nil {
			return err
		}
		d := sagasData{List: list, Asking: view == "asking"}
		if d.Asking {
			d.List = nil
			d.Questions, d.Next, err = h.service.SagaQuestions(r.Context(), p, "", r.URL.Query().Get("after"), sagasShown)
			if err != nil {
				return err
			}
		}
		for _, c := range counts {
			if d.Open += c.Count; c.Status == store.SagaStuck {
				d.Stuck += c.Count
			}
		}
		for _, t := range []sagaTab{{Name: "Needs attention", Path: "/sagas"}, {Name: "Questions", Path: "/sagas?view=asking"}, {Name: "Running", Path: "/sagas?view=running"}, {Name: "Ended", Path: "/sagas?view=ended"}} {
			_, of, _ := strings.Cut(t.Path, "view=")
			t.Current = of == view
			if n := map[string]int64{"": d.Stuck, "running": d.Open - d.Stuck}[of]; n > 0 {
				t.Count = admin.Grouped(n)
			}
			d.Tabs = append(d.Tabs, t)
		}
		if len(d.List) == sagasShown {
			d.Next = list[sagasShown-1].Run
		}
		if d.Next != "" {
			d.Next = "/sagas?" + url.Values{"view": {view}, "after": {d.Next}}.Encode()
		}
		out.Refresh, out.Data = refreshEvery, d
		return nil
	})
}

// sagaData is one saga.
type sagaData struct {
	Saga   admin.Saga
	Title  string
	Events []event
	// Retry: it can be tried again. Plans are the operations that the engine would accept; Unplanned says why none is known, "" if they are.
	Retry     bool
	Plans     []admin.SagaPlan
	Unplanned string
}

func (h *Handler) saga(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/sagas", "Saga", "saga", func(out *page) error {
		s, err := h.service.Saga(r.Context(), p, r.PathValue("id"))
		if err != nil {
			return err
		}
		d := sagaData{Saga: s, Title: sagaTitle(s)}
		for _, t := range slices.Backward(s.History) {
			d.Events = append(d.Events, transitionEvent(t))
		}
		if err := h.plans(r, p, &d); err != nil {
			return err
		}
		out.Title, out.Refresh = s.Saga, refreshEvery
		out.Crumbs, out.Data = []crumb{{"Sagas", "/sagas"}, {s.Saga, "/sagas"}, {shortID(s.ID), ""}}, d
		return nil
	})
}

// plans adds what somebody can do.
func (h *Handler) plans(r *http.Request, p admin.Principal, d *sagaData) (err error) {
	if !p.Role.May("SagaPlans") || !d.Saga.EndedAt.IsZero() {
		return nil
	}
	d.Plans, err = h.service.SagaPlans(r.Context(), p, d.Saga.ID)
	switch {
	case errors.Is(err, admin.ErrCannotPublish):
		d.Unplanned = "Decisions are made with postrider saga."
	case errors.Is(err, saga.ErrNoDefinition):
		d.Unplanned = fmt.Sprintf("No process has reported version %d of the saga. Deploy one that has it, or move the instance to another version with postrider saga migrate.", d.Saga.Version)
	case err != nil:
		return err
	}
	d.Retry = slices.ContainsFunc(d.Plans, func(of admin.SagaPlan) bool { return of.Verb == saga.Retry })
	return nil
}

// sagaVerb says what an operation does.
func sagaVerb(v saga.Verb) string {
	return map[saga.Verb]string{
		saga.Retry: "Try again what is stuck", saga.Compensate: "Undo what was done", saga.Pause: "Pause it: nothing is sent until it is resumed",
		saga.Resume: "Resume it", saga.Complete: "End it as completed: the rest was done by hand", saga.Abandon: "Abandon it: nothing else is done or undone",
	}[v]
}

func (h *Handler) operateSaga(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	id := r.PathValue("id")
	rev, err := strconv.ParseInt(r.PostFormValue("rev"), 10, 64)
	if err != nil {
		err = fmt.Errorf("%w: %q is no revision", admin.ErrInput, r.PostFormValue("rev"))
	}
	done := "asked"
	if err == nil || !p.Role.May("OperateSaga") { // a refusal is on record
		var out saga.Outcome
		out, err = h.service.OperateSaga(r.Context(), p, id, saga.Operation{
			Verb: saga.Verb(r.PostFormValue("verb")), Rev: rev, Reason: strings.TrimSpace(r.PostFormValue("reason")),
		})
		if out.Handled {
			done = "applied"
		}
	}
	h.see(w, r, "/sagas/"+escapePath(id)+"?done="+done, err)
}

func sagaTitle(s admin.Saga) string {
	name := visible(s.Saga)
	switch s.Status {
	case store.SagaStuck:
		if s.Direction == store.SagaBack {
			return name + " is stuck while undoing"
		}
		return name + " is stuck"
	case store.SagaRunning:
		if len(s.Questions) > 0 {
			return name + " waits for an answer: " + visible(s.Questions[0].Step)
		}
		if s.Waiting != "" {
			return name + " is running: waiting for " + visible(line(s.Waiting))
		}
		return name + " is running"
	case store.SagaCompensating:
		return name + " is being undone"
	case store.SagaCompleted:
		return name + " completed in " + admin.Duration(s.EndedAt.Sub(s.StartedAt))
	case store.SagaCompensated:
		return name + " was undone"
	}
	return name + " was abandoned"
}

func transitionEvent(t store.SagaTransition) event {
	e := event{At: t.At, Mark: mark{"muted", "dot", ""}, Bold: inputText(t), Evidence: fmt.Sprintf("revision %d", t.Rev)}
	var parts []string
	for _, entry := range t.Entries {
		if entry == (store.SagaEntry{Name: t.Input}) { // it says what Bold does
			continue
		}
		text := entryText(entry)
		parts = append(parts, text)
		switch {
		case strings.Contains(entry.Name, "stuck"), strings.Contains(entry.Name, "exhausted"):
			e.Mark = mark{"bad", "octagon", ""}
		case strings.Contains(entry.Name, "refused"), strings.Contains(entry.Name, "failed"), strings.Contains(entry.Name, "timed"):
			e.Mark = mark{"warn", "triangle", ""}
		case strings.Contains(entry.Name, "done"), strings.Contains(entry.Name, "completed"), strings.Contains(entry.Name, "undone"):
			if e.Mark.Icon == "dot" {
				e.Mark = mark{"ok", "check", ""}
			}
		}
	}
	if t.Actor != "" {
		parts = append(parts, "by "+t.Actor)
	}
	if t.Note != "" {
		parts = append(parts, t.Note)
	}
	if e.Text = strings.Join(parts, " · "); e.Text != "" {
		e.Bold += ":"
	}
	return e
}

// inputText says what an instance moved on for.
func inputText(t store.SagaTransition) string {
	switch t.Input {
	case "reply":
		return "Answer of " + t.Step
	case "local":
		return "Ran " + t.Step
	case "timer":
		if t.Step != "" {
			return "Timer of " + t.Step
		}
	}
	return upper(strings.TrimSpace(t.Input + " " + t.Step))
}

// entryText says what happened: "ship refused: address not served" for "step.refused".
func entryText(e store.SagaEntry) string {
	what, did, _ := strings.Cut(e.Name, ".")
	did = strings.ReplaceAll(did, "_", " ")
	switch what {
	case "step":
		did = strings.TrimSpace(e.Step + " " + did)
	case "undo":
		did = strings.TrimSpace("undo of " + e.Step + " " + did)
	case "saga":
	case "attempt":
		did = strings.TrimSpace(e.Step + " attempt " + did)
	case "answer":
		if did == "role" {
			return e.Step + " answered as " + e.Text
		}
		did = strings.TrimSpace(e.Step + " answered")
	case "command":
		return strings.TrimSpace(e.Step + " started")
	default:
		did = strings.TrimSpace(e.Name + " " + e.Step)
	}
	if e.Text != "" {
		did += ": " + e.Text
	}
	return did
}
