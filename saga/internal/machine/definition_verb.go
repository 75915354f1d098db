package machine

import (
	"bytes"
	"slices"
	"strings"
)

func (t *transition) forbids(v *Verb) string {
	switch p := t.s.Parent; {
	case t.s.Ended != "":
		return "the instance is " + string(t.s.Ended)
	case p != nil && v.Kind == VerbCancel:
		return "the instance is step " + p.Step + " of instance " + p.ID + ": cancel that one"
	}
	return ""
}

func (t *transition) finally(status Status) { t.end(status, nil) }

func (t *transition) edit(v *Verb) { t.patch(v, &t.root) }

// patch changes the data. The original is in the history.
func (t *transition) patch(v *Verb, sc *scope) bool {
	if !bytes.HasPrefix(bytes.TrimSpace(v.Patch), []byte("{")) {
		t.refuse("the patch is not a JSON object")
		return false
	}
	changed, err := MergePatch(*sc.json, v.Patch)
	var data any
	if err == nil {
		data, err = sc.Decode(changed)
	}
	if err == nil {
		err = t.keep(sc, changed)
	}
	if err != nil {
		t.refuse("the data after the change is not that of saga %s v%d: %v", t.d.Name, t.d.Version, err)
		return false
	}
	sc.data = data
	return true
}

func (t *transition) retryStep(path string) {
	s, st := t.d.Step(path), t.s.Steps[path]
	why := st.Reason
	st.Reason = ""
	switch {
	case path == endPath || s == nil:
		delete(t.s.Steps, path)
	case s.Kind == Each && st.Items != nil: // its items stay
		st.Status = ""
	case st.Owed && (t.s.Back || st.Skip || st.ByHand):
		st.Status = StepDone // not undone yet
		if st.ByHand && why != undoByHand {
			st.Status = StepUnknown // what the participant did is not undone yet
		}
		t.sendUndo(s, st)
	case st.Owed: // the same step for its participant, whose record says what happened
		st.Status, st.Before, st.Attempt, st.Asked = StepWaiting, st.Before+st.Attempt, 0, t.clock()
		t.send(s, st)
	case st.SentAs == "" && s.leaf(), !s.leaf():
		delete(t.s.Steps, path) // from its condition on
	default:
		t.start(s, st)
	}
}

func (t *transition) stepVerb(v *Verb, st *StepState) {
	s := t.d.Step(v.Step)
	if s == nil || !s.leaf() {
		t.refuse("step %q does nothing itself; name one of its steps", v.Step)
		return
	}
	open := st.Status == StepWaiting || st.Status == StepUnknown || st.Status == StepStuck
	unconfirmed := st.unconfirmed() && !t.s.Back // what the operator says again holds
	switch v.Kind {
	case VerbDone:
		if t.s.Back || !open || (st.Skip || st.ByHand) && !unconfirmed {
			t.refuse("step %s is %s and the instance is %s; only a step that is waited for can be done by hand", v.Step, st.Status, t.s.Status())
			return
		}
		if len(v.Patch) == 0 || t.patch(v, t.scope(s)) {
			st.Owed, st.Skip = st.Owed && !unconfirmed, false
			t.doneByHand(s, st)
		}
	case VerbSkip:
		if unconfirmed {
			st.Owed, st.ByHand = false, false
		}
		t.skip(s.Path, st, open, func() { t.sendUndo(s, st) })
	default:
		t.answer(s, st, v)
	}
}

// doneByHand records that an operator did a step. If its command was sent, its undo is confirmed first: otherwise it could be done
// twice.
func (t *transition) doneByHand(s *Step, st *StepState) {
	st.ByHand = true
	if st.Owed {
		t.sendUndo(s, st)
		return
	}
	st.Owed = s.owes()
	t.finish(s, st)
}

// answer handles a person's answer to an Ask.
func (t *transition) answer(s *Step, st *StepState, v *Verb) {
	switch {
	case s.Kind != Ask:
		t.refuse("step %s asks nothing", s.Path)
	case t.s.Back || st.Status != StepWaiting:
		t.refuse("step %s is %s: the question is closed", s.Path, st.Status)
	case !slices.Contains(s.Options, v.Option):
		t.refuse("%q is not an option of step %s; choose one of %s", v.Option, s.Path, strings.Join(s.Options, ", "))
	default:
		t.event("answer", s.Path, v.Option)
		if v.Role != "" {
			t.event("answer.role", s.Path, v.Role)
		}
		var err error
		if s.Answered != nil && !t.change(s, st, "Answered", func(data any) {
			err = s.Answered(data, Answer{Option: v.Option, Actor: v.Actor, Reason: v.Reason})
		}) {
			return
		}
		if err != nil {
			t.refused(s, st, RefusalOf(err))
			return
		}
		t.finish(s, st)
	}
}
