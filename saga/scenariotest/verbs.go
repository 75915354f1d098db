package scenariotest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// verbTable is the table of verbs and statuses in docs/sagas.md: whether each verb is accepted in each status.
func verbTable() (map[string]map[string]bool, error) {
	dir, err := os.Getwd()
	text, missing := []byte(nil), err
	for ; err == nil; dir = filepath.Dir(dir) {
		if text, missing = os.ReadFile(filepath.Join(dir, "docs", "sagas.md")); missing == nil || dir == filepath.Dir(dir) {
			break
		}
	}
	_, rest, _ := strings.Cut(string(text), "\n| verb |")
	columns, table := []string(nil), make(map[string]map[string]bool)
	for i, line := range strings.Split(rest, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case i == 0:
			columns = cells
		case !strings.HasPrefix(line, "|"):
			return table, missing
		case i > 1:
			table[cells[0]] = make(map[string]bool)
			for c, cell := range cells[1:] {
				table[cells[0]][columns[c]] = cell == "yes"
			}
		}
	}
	return table, missing
}

// everyVerb: each verb in each status is accepted or refused as docs/sagas.md says, and recorded with who decided and why.
func everyVerb[Tx any](w *world[Tx]) {
	table, err := verbTable()
	if err != nil || len(table) != 13 {
		w.Fatalf("docs/sagas.md has %d verbs, want 13 (%v)", len(table), err)
	}
	charged := chargeStep()
	charged.Command = func(o order) item {
		if o.Method == "none" {
			panic("no method")
		}
		return item{o.ID}
	}
	first := define(reserveStep(), releaseStep(), charged)
	second := define(reserveStep(), releaseStep(), charged, shipStep())
	second.Version = 2
	s := w.register(first)
	w.register(second) // for migrate
	asksAndStuck := w.register(asksNextTo(charged))
	w.runForeign(func(m *postrider.Message) (string, any) {
		status, purpose, _ := strings.Cut(m.Headers["postrider-saga"], ":")
		switch {
		case m.Type == "stock.reserve" && (status != "running" && status != "paused" || purpose == string(saga.AnswerAsk)):
			return "done", item{"reserved"}
		case m.Type == "card.charge" && status == "ended":
			return "done", item{"charged"}
		case m.Type == "card.charge" && (status == "compensating" || status == "stuck back"):
			return "refused", saga.Refusal{Reason: "limit"}
		case m.Type == "stock.reserve.undo" && status == "stuck back":
			return "cannot-undo", item{"reserved"}
		}
		return "", nil
	})
	w.runEngine()
	w.await("all definitions", func() bool {
		all, err := w.store.SagaDefinitions(w.Context())
		w.must(err)
		return len(all) == 3
	})
	for status, want := range map[string]saga.Status{
		"running": saga.Running, "compensating": saga.Compensating, "stuck forward": saga.Stuck, "stuck back": saga.Stuck,
		"paused": saga.Running, "ended": saga.Completed,
	} {
		refusing := w.instanceIn(s, status, want, "refuses")
		for _, verb := range slices.Sorted(maps.Keys(table)) {
			switch {
			case table[verb][status] && verb == string(saga.AnswerAsk) && status == "stuck forward": // next to the step that is stuck
				w.accepts(asksAndStuck, w.instanceIn(asksAndStuck, status, want, verb), status, saga.AnswerAsk)
			case table[verb][status]:
				w.accepts(s, w.instanceIn(s, status, want, verb), status, saga.Verb(verb))
			default:
				w.refuses(refusing, status, saga.Verb(verb))
			}
		}
		if r, err := s.Get(w.Context(), refusing); err != nil || r.Status != want {
			w.Errorf("after verbs that were refused, the instance that was %s is %s (%v)", status, r.Status, err)
		}
	}
}

// releaseStep asks a person, for orders that say so.
func releaseStep() saga.Ask[order] {
	return saga.Ask[order]{
		Name: "release", OnlyIf: func(o order) bool { return o.Method == "ask" }, Question: func(o order) string { return "Release " + o.ID + "?" },
		Options: []string{"yes", "no"}, Timeout: saga.NoTimeout,
	}
}

// asksNextTo asks a person while another step runs.
func asksNextTo(other step) saga.Definition[order] {
	ask := releaseStep()
	ask.OnlyIf = nil
	d := define(saga.Parallel[order]{Name: "both", Steps: []step{ask, other}})
	d.Name = "asks-next-to"
	return d
}

// instanceIn starts an instance and brings it into a status.
func (w *world[Tx]) instanceIn(s *saga.Saga[Tx, order], status string, want saga.Status, purpose string) string {
	w.Helper()
	o := order{ID: status + ":" + purpose}
	asks := purpose == string(saga.AnswerAsk) && want == saga.Running
	switch {
	case status == "stuck forward":
		o.Method = "none"
	case asks:
		o.Method = "ask"
	}
	w.start(s, o)
	if asks {
		w.becomes(s, o.ID, "waiting for an answer", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "release" })
	}
	if status == "paused" {
		if refused := w.operate(o.ID, saga.Operation{Verb: saga.Pause}); refused != "" {
			w.Fatalf("pause was refused: %s", refused)
		}
	}
	w.becomes(s, o.ID, status, func(r saga.Result[order]) bool { return r.Status == want })
	return o.ID
}

// decide performs a verb on an instance and returns what is recorded of it.
func (w *world[Tx]) decide(id, status string, verb saga.Verb) (refused string, recorded store.SagaTransition) {
	w.Helper()
	o := saga.Operation{Verb: verb, Actor: "ann", Reason: "because of " + string(verb)}
	switch verb {
	case saga.Done, saga.Undone, saga.Skip:
		o.Step = "reserve"
		if status == "stuck forward" {
			o.Step = "charge"
		}
	case saga.Edit:
		o.Patch = json.RawMessage(`{"method": "card"}`)
	case saga.AnswerAsk:
		if o.Step, o.Option = "release", "yes"; status == "stuck forward" {
			o.Step = "both/release"
		}
	case saga.Migrate:
		o.To = 2
	}
	refused = w.operate(id, o)
	for t, err := range w.engine.History(w.Context(), id) {
		w.must(err)
		if t.Input == "verb" {
			recorded = t
		}
	}
	if recorded.Actor != "ann" || len(recorded.Entries) == 0 {
		w.Errorf("%s in %s is recorded as %+v, want it by ann", verb, status, recorded)
		recorded.Entries = append(recorded.Entries, store.SagaEntry{})
	}
	return refused, recorded
}

func (w *world[Tx]) refuses(id, status string, verb saga.Verb) {
	w.Helper()
	refused, recorded := w.decide(id, status, verb)
	if e := recorded.Entries[0]; refused == "" || recorded.Note != refused || e.Name != "operator.refused" || e.Text != fmt.Sprintf("%s: %s", verb, refused) {
		w.Errorf("%s in %s: refused %q and recorded as %+v; want it refused, with the reason in the history", verb, status, refused, recorded)
	}
}

// accepts performs a verb that is accepted, and checks where the instance is then.
func (w *world[Tx]) accepts(s *saga.Saga[Tx, order], id, status string, verb saga.Verb) {
	w.Helper()
	before, err := s.Get(w.Context(), id)
	w.must(err)
	refused, recorded := w.decide(id, status, verb)
	if e := recorded.Entries[0]; refused != "" || recorded.Note != "because of "+string(verb) || e.Name != "operator."+string(verb) {
		w.Errorf("%s in %s: refused %q and recorded as %+v; want it accepted, with its reason in the history", verb, status, refused, recorded)
	}
	after, err := s.Get(w.Context(), id)
	w.must(err)
	want := map[saga.Verb]saga.Status{
		saga.Compensate: saga.Compensating, saga.Cancel: saga.Compensating, saga.Complete: saga.Completed, saga.Abandon: saga.Abandoned,
		saga.Pause: before.Status, saga.Edit: before.Status, saga.Resume: saga.Running, saga.AnswerAsk: before.Status, saga.Migrate: before.Status,
	}[verb]
	if want == saga.Compensating && status == "paused" {
		want = after.Status // nothing is sent until it is resumed
	}
	if want != "" && after.Status != want {
		w.Errorf("%s in %s: the instance is %s, want %s", verb, status, after.Status, want)
	}
	if in, err := w.store.ShowSaga(w.Context(), id); verb == saga.Migrate && (err != nil || in.Version != 2) {
		w.Errorf("migrate in %s: the instance has version %d (%v), want 2", status, in.Version, err)
	}
	if change := `"after":"card"`; verb == saga.Edit && (after.Data.Method != "card" || !strings.Contains(string(recorded.Patch), change)) {
		w.Errorf("edit in %s: the data are %+v and the history has %s, want what was before and after", status, after.Data, recorded.Patch)
	}
}
