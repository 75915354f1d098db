package machine

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/postrider/postrider"
)

// turn changes the direction to back. What may have happened is undone like what has.
func (t *tracking) turn(c Cause) {
	t.s.Back, t.s.TurnedAt, t.s.Cause, t.s.Deadline = true, t.age, &c, 0
	t.event("turned back", c.Step, string(c.Kind))
	may := t.mayHaveHappened(c.Kind)
	for _, e := range t.c.Events {
		for _, path := range t.paths(e) {
			t.turnEvent(e, path, may[e])
		}
	}
	if c.Kind == CauseTimedOut {
		t.announce(t.c.OnTimedOut)
	}
}

// turnEvent says what is owed for an event when the instance turns back; may says that it may have happened.
func (t *tracking) turnEvent(e *Expected, path string, may bool) {
	st := t.s.Steps[path]
	if st == nil {
		if !may {
			return
		}
		st = t.step(path)
	}
	st.Due, st.Attempt = 0, 0
	switch {
	case st.Status == StepUndone || st.Status == StepSkipped:
	case st.Seen || st.ByHand:
		st.Status, st.Owed, st.Reason = StepDone, t.c.undoable(e), ""
	case st.Failed:
		st.Status, st.Owed = StepRefused, false
	case may:
		st.Status, st.Owed, st.Reason = StepUnknown, true, ""
	default:
		delete(t.s.Steps, path)
		t.event("step.skipped", path, "turned back")
	}
}

// mayHaveHappened returns the events that may have happened although they were not seen, and that have to be undone or settled:
//
//   - If the tracker asks for undos: those that only events come before that may have happened.
//   - If it observes: those that were waited for, if the cause is time. After a failure, services undo what they have done.
//   - A pivot that cannot be undone: if all events before it have happened.
func (t *tracking) mayHaveHappened(cause CauseKind) map[*Expected]bool {
	possible, owed := make(map[*Expected]bool), make(map[*Expected]bool)
	for _, e := range t.c.Events {
		failed := slices.ContainsFunc(t.paths(e), func(path string) bool {
			st := t.s.Steps[path]
			return st != nil && st.Failed && !st.Seen
		})
		begun := t.seen(e) || !t.replaced(e) && t.each(e, func(before *Expected) bool { return possible[before] })
		possible[e] = begun && !failed
		switch {
		case failed && !e.Each: // of several items, one has failed
		case !t.c.undoable(e):
			owed[e] = e.Pivot && begun && t.ready(e)
		case t.c.Observe:
			owed[e] = begun && t.ready(e) && cause == CauseTimedOut && (e.Pivot || !e.Optional)
		default:
			owed[e] = begun
		}
	}
	return owed
}

// pivotHappened turns forward again, unless something has been undone already.
func (t *tracking) pivotHappened(e *Expected, path string, st *StepState) {
	if undone := t.s.paths(func(o *StepState) bool {
		return o != st && (o.Status == StepUndone || o.Status == StepReleased || o.Status == StepUndoing && !t.c.Observe)
	}); len(undone) > 0 {
		st.Owed = true
		t.stuck(path, st, "the pivot has happened, and "+undone[0]+" is undone: see what "+e.Service+" can do about it")
		return
	}
	st.Status, st.Owed, st.Due, st.Attempt, st.Reason = StepDone, t.c.undoable(e), 0, 0, ""
	t.event("turned forward", path, "the pivot has happened")
	t.s.Back, t.s.Cause = false, nil
	for _, e := range t.c.Events {
		for _, p := range t.paths(e) {
			switch st := t.s.Steps[p]; {
			case p == path || st == nil || st.ByHand:
			case st.Seen:
				if t.undoing(e, st) { // nobody was asked to undo it
					st.Status, st.Due, st.Reason = StepDone, 0, ""
				}
			case st.Failed:
				t.stuck(p, st, "refused, and the pivot has happened")
			case st.Status == StepUnknown || t.undoing(e, st): // it is awaited again, unless it is optional
				delete(t.s.Steps, p)
			}
		}
	}
}

// undoing says whether the undo of an event is awaited, even if it is stuck since nobody has undone it in time.
func (t *tracking) undoing(e *Expected, st *StepState) bool {
	return st.Status == StepUndoing || st.Status == StepStuck && t.c.Observe && t.c.undoable(e)
}

// undo undoes what is owed, in the reverse of the contract's order: one event after the other if the tracker asks for it, all at
// once if it observes. It ends the instance when nothing is owed.
func (t *tracking) undo() {
	if t.settlePivots() {
		return
	}
	var blocked []*Expected // their undo is stuck
	owed := false
	for _, e := range slices.Backward(t.c.Events) {
		waiting := false
		for _, path := range t.paths(e) {
			st := t.s.Steps[path]
			if st == nil || !st.Owed {
				continue
			}
			owed = true
			if st.Status == StepStuck {
				continue
			}
			if slices.ContainsFunc(blocked, func(b *Expected) bool { return t.dependsOn(b, e) }) {
				continue
			}
			t.undoEvent(e, path, st)
			waiting = waiting || st.Status != StepStuck
		}
		if slices.ContainsFunc(t.paths(e), func(path string) bool {
			st := t.s.Steps[path]
			return st != nil && st.Owed && st.Status == StepStuck
		}) {
			blocked = append(blocked, e)
		}
		if waiting && !t.c.Observe {
			return
		}
	}
	switch {
	case owed:
	case len(t.s.Released()) > 0:
		t.end(Abandoned)
	default:
		t.end(Compensated)
	}
}

// settlePivots finds out whether a pivot has happened, before anything else is undone. It reports whether one is open.
func (t *tracking) settlePivots() (open bool) {
	if t.s.Forced {
		return false
	}
	for _, e := range t.c.Events {
		if !e.Pivot {
			continue
		}
		for _, path := range t.paths(e) {
			if st := t.s.Steps[path]; st != nil && st.Owed {
				open = true
				t.undoEvent(e, path, st)
			}
		}
	}
	return open
}

// undoEvent starts the undo of an event that is owed.
func (t *tracking) undoEvent(e *Expected, path string, st *StepState) {
	switch {
	case st.Status == StepUndoing || st.Status == StepStuck:
	case st.byHand() && !e.Start:
		t.stuck(path, st, undoByHand)
	case !t.c.undoable(e):
		t.stuck(path, st, "it may have happened and cannot be undone: ask "+e.Service+", and say done, or undone if it has not happened and will not")
	case t.unlisted(e):
		t.stuck(path, st, "its items are not known, since "+e.ItemsFrom+" was not seen")
	case t.ofNoItem(e, path) && t.data[path] == nil:
		t.stuck(path, st, "nobody knows which item it is about")
	default:
		st.Attempt = 0
		t.sendUndo(e, path, st)
	}
}

// sendUndo asks for the undo of an event, or waits for it if the contract only observes.
func (t *tracking) sendUndo(e *Expected, path string, st *StepState) {
	st.Status = StepUndoing
	if t.c.Observe {
		st.Due = t.clock() + t.p.StuckAfter
		t.event("undo.awaited", path, e.Service)
		return
	}
	m := &postrider.Message{
		Type: e.Undo.Type, Topic: e.Undo.Topic, SchemaVersion: e.Undo.SchemaVersion, Key: st.Key, ContentType: st.ContentType,
		Payload: t.data[path],
	}
	switch {
	case len(m.Payload) == 0:
		m.ContentType, m.Payload = postrider.DefaultContentType, []byte("null")
	case st.ContentType != "":
		var payload []byte
		if err := json.Unmarshal(m.Payload, &payload); err == nil { // keep has encoded it
			m.Payload = payload
		}
	}
	if err := t.check(m); err != nil { // such as a content type of another sender
		t.stuck(path, st, "its undo cannot be asked for: "+err.Error())
		return
	}
	st.Attempt++
	st.Due = t.undoDue(path, st.Attempt)
	t.out.Commands = append(t.out.Commands, Command{ // what the Start began with, no record says
		Path: path, SentAs: path, Undo: true, Attempt: st.Attempt, Seen: st.Seen && !e.Start, Since: st.Since, Message: m, Contract: t.c.Name,
		Process: cmp.Or(st.Process, t.s.Process),
	})
	t.event("undo.sent", path, e.Service)
}

// dependsOn says whether an event comes after another, directly or not.
func (t *tracking) dependsOn(e, before *Expected) bool {
	return slices.ContainsFunc(e.After, func(group []string) bool {
		return slices.ContainsFunc(group, func(name string) bool {
			return name == before.Name || t.dependsOn(t.c.byName[name], before)
		})
	})
}
