package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
)

// proceed does what the events so far ask for: it awaits the next ones, undoes, or ends the instance.
func (t *tracking) proceed() {
	switch {
	case t.s.Ended != "" || t.s.Paused:
	case t.s.Back:
		t.undo()
	default:
		t.await()
		if t.finished() {
			t.end(Completed)
		}
	}
}

// await awaits the events whose predecessors have happened, and no longer those that an alternative has replaced.
func (t *tracking) await() {
	for _, e := range t.c.Events {
		replaced := t.replaced(e)
		for _, path := range t.paths(e) {
			switch st := t.s.Steps[path]; {
			case st == nil && !e.Optional && !replaced && t.ready(e) && !t.unlisted(e):
				t.awaitEvent(e, path)
			case st == nil && !e.Optional && !replaced && t.ready(e) && path == e.Name && t.done(t.c.byName[e.ItemsFrom]):
				t.stuckWithoutItems(e, "its items, which "+e.ItemsFrom+" names, are not known: say done if it has happened for all")
			case st != nil && replaced && (st.Status == StepWaiting || st.Status == StepStuck && t.ofNoItem(e, path)):
				delete(t.s.Steps, path)
				t.event("step.skipped", path, "an alternative happened")
			}
		}
	}
}

func (t *tracking) awaitEvent(e *Expected, path string) {
	st := t.step(path)
	st.Status, st.Owed, st.Reason = StepWaiting, t.c.undoable(e) && !t.c.Observe, ""
	st.Due = 0
	if e.Within > 0 {
		st.Due = t.clock() + e.Within
	}
	t.event("waiting", path, e.Service)
}

// unlisted says whether an event has items that are not known yet.
func (t *tracking) unlisted(e *Expected) bool {
	_, listed := t.s.Items[e.Name]
	return e.Each && !listed
}

// ofNoItem says whether the path of an event with items names none of them: it stands for those that nobody knows.
func (t *tracking) ofNoItem(e *Expected, path string) bool {
	return e.Each && path == e.Name && !slices.Contains(t.s.Items[e.Name], "")
}

// stuckWithoutItems leaves an event to an operator, since nobody knows of which items it is to happen, or has.
func (t *tracking) stuckWithoutItems(e *Expected, reason string) {
	st := t.step(e.Name)
	st.Owed = t.c.undoable(e) && !t.c.Observe
	t.stuck(e.Name, st, reason)
}

// ready says whether everything that an event comes after has happened.
func (t *tracking) ready(e *Expected) bool {
	return t.each(e, func(before *Expected) bool { return t.done(before) })
}

// each says whether every group of predecessors has one that is so.
func (t *tracking) each(e *Expected, is func(before *Expected) bool) bool {
	return !slices.ContainsFunc(e.After, func(group []string) bool {
		return !slices.ContainsFunc(group, func(name string) bool { return is(t.c.byName[name]) })
	})
}

// done says whether an event has happened, with all its items, or an operator said so or skipped it.
func (t *tracking) done(e *Expected) bool {
	return !slices.ContainsFunc(t.paths(e), func(path string) bool {
		st := t.s.Steps[path]
		return st == nil || st.Status != StepDone && st.Status != StepSkipped
	})
}

// seen says whether an event, or one of its items, has been seen.
func (t *tracking) seen(e *Expected) bool {
	return slices.ContainsFunc(t.paths(e), func(path string) bool {
		st := t.s.Steps[path]
		return st != nil && st.Seen
	})
}

// replaced says whether an event will not happen, since an alternative to it has, or to all that it comes after or that comes after it.
func (t *tracking) replaced(e *Expected) bool {
	return !t.seen(e) && (t.leadsNowhere(e) || !t.each(e, func(before *Expected) bool { return !t.replaced(before) }))
}

// leadsNowhere says whether an alternative to an event has begun, or to all that comes after it.
func (t *tracking) leadsNowhere(e *Expected) bool {
	after, nowhere := 0, 0
	for _, other := range t.c.Events {
		for _, group := range other.After {
			if !slices.Contains(group, e.Name) {
				continue
			}
			if !t.begun(e, group) && slices.ContainsFunc(group, func(name string) bool { return t.begun(t.c.byName[name], group) }) {
				return true
			}
			after++
			nowhere += count(!t.seen(other) && t.leadsNowhere(other))
		}
	}
	return after > 0 && nowhere == after
}

// begun says whether an event of a group of alternatives has happened, or one that leads to it and to no other of the group.
func (t *tracking) begun(e *Expected, group []string) bool {
	return slices.ContainsFunc(t.c.Events, func(o *Expected) bool {
		return t.seen(o) && t.leadsTo(o, e) && !slices.ContainsFunc(group, func(name string) bool {
			return name != e.Name && t.leadsTo(o, t.c.byName[name])
		})
	})
}

// leadsTo says whether an event is another, or comes before it.
func (t *tracking) leadsTo(e, other *Expected) bool { return e == other || t.dependsOn(other, e) }

// finished says whether every event has happened that the saga needs.
func (t *tracking) finished() bool {
	return !slices.ContainsFunc(t.c.Events, func(e *Expected) bool {
		return !e.Optional && !t.done(e) && !t.replaced(e)
	})
}

// end ends the instance.
func (t *tracking) end(status Status) {
	t.ended(status)
	t.s.EndedAt = t.age
	t.announce(t.c.OnEnded)
}

// announce reports how the instance stands. A report that cannot be built is recorded.
func (t *tracking) announce(build func(r Report) (*postrider.Message, error)) {
	if build == nil {
		return
	}
	r := Report{Saga: t.c.Name, Version: t.c.Version, ID: t.in.ID, Status: t.s.Status(), Cause: t.s.Cause}
	if r.Cause != nil {
		if e := t.c.Event(r.Cause.Step); e != nil {
			r.Service = e.Service
		}
	}
	m, err := build(r)
	if err == nil {
		err = t.check(m)
	}
	if err != nil {
		t.event("not announced", "", err.Error())
		return
	}
	t.out.Reports = append(t.out.Reports, m)
}

// timer does what is due, as far as the sources have been read.
func (t *tracking) timer(f *Fired) {
	if f.ID != t.s.Timer.ID || t.s.Timer.At == 0 || t.s.Ended != "" {
		t.out.Ignored = true
		return
	}
	t.s.Timer.At = 0
	t.event("timer", "", "")
	if t.s.Paused {
		return
	}
	until := min(t.age, t.readUpTo)
	if next := t.s.next(); next > 0 && next <= until && !t.s.Back && !t.started() {
		start := t.c.start()
		t.stuck(start.Name, t.step(start.Name), "it was not seen, perhaps because the tracker began later: complete the instance if "+
			"all went well, say done if "+start.Service+" did it, or compensate")
		return
	}
	for _, e := range t.c.Events {
		for _, path := range t.paths(e) {
			if st := t.s.Steps[path]; st != nil && st.Due > 0 && st.Due <= until {
				st.Due = 0
				t.due(e, path, st)
			}
		}
	}
	if t.s.Deadline > 0 && t.s.Deadline <= until && !t.s.Back {
		t.deadline()
	}
}

// started says whether the Start was seen, or an operator vouches for it. An instance without it is not turned back by time.
func (t *tracking) started() bool {
	st := t.s.Steps[t.c.start().Name]
	return st != nil && (st.Seen || st.ByHand || st.Status == StepSkipped)
}

// missesStart says whether the instance is stuck since its Start was not seen in time. Then no time runs.
func (t *tracking) missesStart() bool {
	st := t.s.Steps[t.c.start().Name]
	return st != nil && st.Status == StepStuck && !t.s.Back && !t.started()
}

// due handles the end of an event's time.
func (t *tracking) due(e *Expected, path string, st *StepState) {
	switch {
	case st.Status == StepUndoing && t.c.Observe:
		t.stuck(path, st, fmt.Sprintf("%s has not undone it: there was no %s within %s", e.Service, e.Undone, t.p.StuckAfter))
	case st.Status == StepUndoing && st.Attempt >= t.p.UndoAttempts:
		t.stuck(path, st, fmt.Sprintf("%s has not undone it: there was no %s after %d requests", e.Service, e.Undone, st.Attempt))
	case st.Status == StepUndoing:
		t.sendUndo(e, path, st)
	case st.Status != StepWaiting || t.s.Back:
	default:
		t.event("timed out", path, "")
		text := fmt.Sprintf("%s did not publish it within %s", e.Service, e.Within)
		if t.passed() {
			t.stuck(path, st, text+", and the pivot has happened")
			return
		}
		t.turn(Cause{Kind: CauseTimedOut, Step: path, Text: text})
	}
}

// deadline handles the deadline of the instance, before its pivot by turning back.
func (t *tracking) deadline() {
	t.s.Deadline = 0
	if t.passed() {
		t.event("deadline", "", "the pivot has happened, so the instance continues")
		return
	}
	t.turn(Cause{Kind: CauseTimedOut, Reason: "deadline", Text: "waiting for " + t.awaited()})
}

// awaited names what the instance waits for, with its services.
func (t *tracking) awaited() (text string) {
	for _, path := range t.s.Waiting() {
		if text != "" {
			text += ", "
		}
		text += path + " from " + t.c.Event(path).Service
	}
	return text
}

// cancellable says whether an instance that has completed can still be cancelled.
func (t *tracking) cancellable() bool {
	return t.s.Ended == Completed && t.c.CancelWithin > 0 && t.age <= t.s.EndedAt+t.c.CancelWithin && !t.passed()
}

// NeedsReading is the age up to which the sources must have been read before the timer can be handled; 0 if it need not wait for
// that.
func (s *State) NeedsReading(timer int64) time.Duration {
	if timer != s.Timer.ID || s.Ended != "" || s.Paused {
		return 0
	}
	return s.Timer.At
}
