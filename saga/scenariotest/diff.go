package scenariotest

import (
	"strings"
	"time"

	"github.com/postrider/postrider/saga"
)

// diff: what becomes of instances in builds that differ: each class once, and then what was said happens.
func diff[Tx any](w *world[Tx]) {
	first := define(reserveStep(), reviewStep(time.Hour), chargeStep())
	s := w.process("engine", first)[0]
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	w.runParticipants()
	for _, id := range []string{"41", "42"} {
		w.start(s, order{ID: id})
		w.becomes(s, id, "waiting for a signal", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "review" })
	}
	w.reported(1)
	patient, longer, other, changed := first, define(reserveStep(), reviewStep(time.Hour)), define(reviewStep(time.Hour)), define(reserveStep())
	renamed := chargeStep()
	renamed.Name = "reserve"
	instead := define(renamed, reviewStep(time.Hour)) // another command in its place
	patient.Deadline, longer.Version, other.Version, instead.Version = time.Hour, 2, 3, 4
	for _, tt := range []struct {
		build []saga.Definition[order]
		class saga.DiffClass
		why   string
	}{
		{[]saga.Definition[order]{first}, saga.DiffSame, ""},
		{[]saga.Definition[order]{patient}, saga.DiffPolicy, ""},
		{[]saga.Definition[order]{first, longer}, saga.DiffPinned, ""},
		{[]saga.Definition[order]{longer}, saga.DiffStops, "the build does not have version 1, and can migrate it to version 2"},
		{[]saga.Definition[order]{changed}, saga.DiffStops, "version 1 of the build has another structure: give it a new version"},
		{[]saga.Definition[order]{other}, saga.DiffUnsafe, "version 3 has no undo for step reserve"},
		{[]saga.Definition[order]{instead}, saga.DiffUnsafe, "version 4 has no undo for step reserve"},
		{nil, saga.DiffStops, "the build does not have the saga"},
	} {
		w.classified(tt.build, tt.class, tt.why)
	}
	for _, unsafe := range []saga.Definition[order]{other, instead} { // it can neither continue nor turn back there
		w.process("engine", unsafe)
		if why := w.operate("41", saga.Operation{Verb: saga.Migrate, To: unsafe.Version}); !strings.Contains(why, "step reserve") {
			w.Errorf("the migration to an unsafe version is refused: %q, want step reserve named", why)
		}
	}
	s = w.process("engine", first, longer)[0]
	w.signal("41", "s")
	w.ends(s, "41", saga.Completed) // pinned: by its own version, with a charge
	s = w.process("engine", longer)[0]
	w.signal("42", "s")
	if why := w.operate("42", saga.Operation{Verb: saga.Migrate, To: 2}); why != "" {
		w.Errorf("the migration is refused: %s", why)
	}
	w.ends(s, "42", saga.Completed)
	w.ledger(map[string]int{"reserve": 2, "charge": 1})
}

// classified checks the class of instances 41 and 42 in a build.
func (w *world[Tx]) classified(build []saga.Definition[order], class saga.DiffClass, why string) {
	w.Helper()
	var graphs []byte
	for _, d := range build {
		graph, _, err := d.Graph()
		w.must(err)
		graphs = append(graphs, graph...)
	}
	found, err := saga.NewOperator(w.store).Diff(w.Context(), graphs)
	w.must(err)
	if len(found) != 1 {
		w.Errorf("the differences are %+v, want one", found)
		return
	}
	d := found[0]
	if d.Class != class || d.Why != why || d.Count != 2 || d.Oldest <= 0 || d.Breaks() != (class == saga.DiffStops || class == saga.DiffUnsafe) {
		w.Errorf("the difference is %+v, want class %q because of %q", d, class, why)
	}
	w.equal("examples", d.Examples, []string{"41", "42"})
}
