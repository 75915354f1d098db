package machine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
)

// tracking is one call of Contract.Advance.
//
// What the instance knows is a set: which events happened, failed and were undone. So their order, duplicates and gaps make no
// difference to how it ends.
type tracking struct {
	advance
	c        *Contract
	readUpTo time.Duration
	process  string                     // of the event
	data     map[string]json.RawMessage // what the undos of events need, by path
}

// Advance returns an instance after an input, and what is to be done, as Definition.Advance does.
func (c *Contract) Advance(p Policy, in Instance, input Input) (Instance, Output, error) {
	in.State = in.State.clone()
	t := &tracking{advance: advance{p: p, in: &in, s: &in.State, age: max(input.Age, 0)}, c: c, readUpTo: input.ReadUpTo, process: input.Process}
	if len(in.Data) > 0 {
		if err := json.Unmarshal(in.Data, &t.data); err != nil {
			return in, Output{}, fmt.Errorf("decode the events of instance %s: %w", in.ID, err)
		}
	}
	if t.data == nil {
		t.data = make(map[string]json.RawMessage)
	}
	if err := t.apply(input); err != nil || t.out.Ignored {
		return in, t.out, err
	}
	if t.out.Refused == "" {
		t.proceed()
	}
	data, err := json.Marshal(t.data)
	if err != nil {
		return in, Output{}, fmt.Errorf("encode the events of instance %s: %w", in.ID, err)
	}
	in.Data = data
	if !t.missesStart() {
		t.setTimer(input.Age)
	}
	t.out.Passed = t.passed()
	in.Rev++
	return in, t.out, nil
}

func (t *tracking) apply(input Input) error {
	switch {
	case input.Event != nil && input.Unidentified != "":
		t.unidentified(input.Event, input.Unidentified)
		return nil
	case input.Event != nil:
		t.see(input.Event)
		return nil
	case input.Timer != nil:
		t.timer(input.Timer)
		return nil
	case input.Verb != nil:
		t.operate(t, input.Verb)
		return nil
	case input.Reply != nil:
		return t.reply(input.Reply)
	}
	return fmt.Errorf("%w: saga %s is tracked by a contract, which takes events only", ErrInput, t.c.Name)
}

// see takes an event, a failure or the confirmation of an undo.
func (t *tracking) see(m *postrider.Message) {
	r, known := t.c.roles[m.Type]
	if !known {
		t.out.Ignored = true
		return
	}
	if t.in.Rev == 0 {
		t.s.Deadline, t.s.Process = t.c.Deadline, t.process
		t.event("started", "", "")
	}
	before := len(t.out.Events)
	path, err := t.pathOf(r.event, m)
	switch {
	case err != nil:
		t.ofUnknownItem(r, fmt.Errorf("the item of %s %s: %w", m.Type, m.ID, err))
	case r.kind == happened:
		t.happened(r.event, path, m)
	case r.kind == failed:
		t.failed(r.event, path, m.Type)
	case r.kind == wasUndone:
		t.undone(r.event, path)
	}
	t.listItems(r, m)
	t.out.Ignored = t.in.Rev > 0 && len(t.out.Events) == before // a duplicate
}

// unidentified leaves an event to an operator. It does not count as seen, so that nothing is undone by time for an instance that another one
// stands for.
func (t *tracking) unidentified(m *postrider.Message, reason string) {
	r, known := t.c.roles[m.Type]
	if t.out.Ignored = !known || t.in.Rev > 0; t.out.Ignored { // a duplicate
		return
	}
	t.s.Process = t.process
	t.event("started", "", "")
	t.stuck(r.event.Name, t.step(r.event.Name), reason)
}

// pathOf is the path that an event is about.
func (t *tracking) pathOf(e *Expected, m *postrider.Message) (string, error) {
	if !e.Each || e.Item == nil {
		return e.Name, nil
	}
	var item string
	err := isolated(func() (err error) { item, err = e.Item(m); return err })
	if err == nil {
		err = checkItem(e, item)
	}
	return itemPath(e.Name, item), err
}

// checkItem returns an error for an item that the path of a step cannot have.
func checkItem(e *Expected, item string) error {
	if !stored.Holdable(itemPath(e.Name, item), MaxPathBytes) {
		return fmt.Errorf("the item %.20q… makes a path of more than %d bytes, or is not UTF-8 without NUL", item, MaxPathBytes)
	}
	return nil
}

// ofUnknownItem leaves an event to an operator whose item cannot be read. The message is not refused: other contracts may know it.
func (t *tracking) ofUnknownItem(r role, err error) {
	e := r.event
	if st := t.s.Steps[e.Name]; st != nil && st.Reason == err.Error() { // a duplicate
		return
	}
	switch {
	case t.s.Ended == Compensated && r.kind == happened:
		t.s.Ended = ""
		t.event("reopened", e.Name, "it happened after all")
	case t.s.Ended != "":
		t.event("late", e.Name, err.Error())
		return
	}
	st := t.step(e.Name)
	st.Seen, st.Failed = st.Seen || r.kind == happened, st.Failed || r.kind == failed
	t.stuckWithoutItems(e, err.Error())
	st.Owed = st.Owed || t.s.Back
}

// listItems records the items of events, if their source has happened now.
func (t *tracking) listItems(r role, m *postrider.Message) {
	for _, e := range t.c.Events {
		st := t.s.Steps[e.Name]
		if r.kind != happened || e.ItemsFrom != m.Type || !t.unlisted(e) || st != nil && (st.ByHand || st.Status == StepSkipped) {
			continue
		}
		var items []string
		err := isolated(func() (err error) { items, err = e.Items(m); return err })
		for _, item := range items {
			err = cmp.Or(err, checkItem(e, item))
		}
		if err != nil {
			t.ofUnknownItem(role{event: e, kind: wasUndone}, fmt.Errorf("its items in %s %s: %w", m.Type, m.ID, err))
			continue
		}
		if t.s.Items == nil {
			t.s.Items = make(map[string][]string)
		}
		t.s.Items[e.Name] = slices.Compact(slices.Sorted(slices.Values(items)))
		if st != nil && st.Status == StepStuck && !st.Seen && !st.Failed { // until now, nobody knew them
			delete(t.s.Steps, e.Name)
			t.event("items known", e.Name, "from "+m.Type)
		}
		if t.s.Back && t.s.Ended == "" {
			t.turnItems(e)
		}
	}
}

// turnItems says what is owed for the items of an event that have become known after the instance turned back.
func (t *tracking) turnItems(e *Expected) {
	if st := t.s.Steps[e.Name]; st != nil && st.Owed && (!st.Seen || !t.ofNoItem(e, e.Name)) {
		delete(t.s.Steps, e.Name)
	}
	may := t.mayHaveHappened(t.s.Cause.Kind)[e]
	for _, path := range t.paths(e) {
		if t.s.Steps[path] == nil {
			t.turnEvent(e, path, may)
		}
	}
}

func (t *tracking) step(path string) *StepState {
	st := t.s.Steps[path]
	if st == nil {
		st = &StepState{Since: t.age, SentAs: path}
		t.s.Steps[path] = st
	}
	return st
}

// happened takes an event that happened.
func (t *tracking) happened(e *Expected, path string, m *postrider.Message) {
	st := t.step(path)
	if st.Seen {
		return
	}
	t.keep(e, path, st, m)
	st.Seen, st.Failed = true, false
	t.event("step.done", path, strings.TrimSpace("from "+m.Source))
	t.applyDone(e, path, st)
}

// keep keeps what the undo of an event needs.
func (t *tracking) keep(e *Expected, path string, st *StepState, m *postrider.Message) {
	if !t.c.undoable(e) || t.c.Observe {
		return
	}
	st.Key = stored.Fit(m.Key, postrider.MaxKeyBytes) // that of another sender may be longer
	if t.process != t.s.Process {
		st.Process = t.process
	}
	payload := json.RawMessage(m.Payload)
	if contentType := cmp.Or(m.ContentType, postrider.DefaultContentType); contentType != postrider.DefaultContentType || !json.Valid(payload) {
		st.ContentType = contentType
		payload, _ = json.Marshal(m.Payload) //nolint:errchkjson // bytes can always be encoded
	}
	if size := len(t.in.Data) + len(payload); t.p.MaxState > 0 && size > t.p.MaxState {
		st.ContentType = ""
		t.event("payload not kept", path, fmt.Sprintf("the data would have %d bytes, more than MaxState (%d)", size, t.p.MaxState))
		return
	}
	t.data[path] = payload
}

// applyDone does what follows from an event that has happened.
func (t *tracking) applyDone(e *Expected, path string, st *StepState) {
	switch {
	case t.c.Observe && st.Status == StepUndone: // it happened before that
		return
	case st.Attempt > 0: // its undo is requested, so the answer decides
		return
	case t.s.Ended == Completed || t.s.Ended == Abandoned:
		if st.Status != StepUndone && !st.Skip {
			st.Status, st.Owed, st.Due = StepDone, t.c.undoable(e), 0
		}
		return
	case t.s.Ended == Compensated:
		t.s.Ended = ""
		t.event("reopened", path, "it happened after all")
	}
	switch {
	case st.Skip && !t.s.Back: // its service has confirmed the undo, and confirms it again
		st.Owed = true
		t.sendUndo(e, path, st)
	case !t.s.Back:
		st.Status, st.Owed, st.Due, st.Reason = StepDone, t.c.undoable(e), 0, ""
	case e.Pivot && !t.s.Forced && (st.Status != StepUndone || !t.c.undoable(e)):
		t.pivotHappened(e, path, st)
	case !t.c.undoable(e):
		st.Status, st.Owed, st.Due = StepDone, false, 0
	case st.Status != StepUndoing && st.Status != StepStuck: // its undo comes in its turn
		st.Status, st.Owed = StepDone, true
		t.event("late", path, "it is undone in its turn")
	}
}

// failed takes the news that an event did not happen and will not.
func (t *tracking) failed(e *Expected, path, by string) {
	st := t.step(path)
	if st.Failed {
		return
	}
	st.Failed = true
	t.event("step.refused", path, by)
	if st.Seen || st.Status == StepUndone { // it happened, which counts
		return
	}
	if t.s.Ended != "" {
		st.Status, st.Owed = StepRefused, false
		return
	}
	st.Owed, st.Due, st.Reason = false, 0, by
	cause := Cause{Kind: CauseRefused, Step: path, Reason: by}
	switch {
	case t.s.Back:
		st.Status = StepRefused
		if t.s.Cause != nil && t.s.Cause.Kind == CauseCancelled && t.s.Cause.Step != "" { // what its service undid, it undid for this
			t.s.Cause = &cause
		}
	case t.passed():
		t.stuck(path, st, "refused after the pivot: "+by)
	default:
		st.Status = StepRefused
		t.turn(cause)
	}
}

// undone takes the confirmation that an event is undone, or will not happen.
func (t *tracking) undone(e *Expected, path string) {
	st := t.step(path)
	if st.Status == StepUndone || st.Skip && st.Status == StepSkipped {
		return
	}
	late := t.s.Ended != "" && (t.s.Ended != Completed || !t.cancellable())
	t.event("step.undone", path, "")
	if !st.byHand() || e.Start { // see undoEvent
		st.Status, st.Owed, st.Due, st.Attempt, st.Reason = StepUndone, false, 0, 0, ""
	}
	switch {
	case late:
		t.event("late", path, "the instance has ended")
	case st.Skip && !t.s.Back:
		st.Status = StepSkipped
	case t.s.Back:
	case t.passed():
		t.stuck(path, st, e.Service+" undid it after the pivot")
	default:
		t.s.Ended = ""
		t.turn(Cause{Kind: CauseCancelled, Step: path, Reason: "undone", Text: e.Service + " undid it"})
	}
}

// reply takes what a participant says about an undo that it cannot do.
func (t *tracking) reply(r *Reply) error {
	if r.Token != t.s.Token {
		return fmt.Errorf("%w: the reply about %s does not have the token of instance %s", ErrInput, r.SentAs, t.in.ID)
	}
	e, st := t.c.Event(r.SentAs), t.s.Steps[r.SentAs]
	if e == nil || st == nil || st.Status != StepUndoing && st.Status != StepStuck || t.s.Ended != "" {
		t.event("late", r.SentAs, string(r.Outcome))
		return nil
	}
	switch r.Outcome {
	case OutcomeCannotUndo:
		st.Seen = true
		switch {
		case st.Skip && !t.s.Back:
			t.event(EventOverruled, r.SentAs, e.Service+" has done it and cannot undo it")
			st.Status, st.Due, st.Attempt, st.Reason, st.Skip = StepDone, 0, 0, "", false
		case e.Pivot && !t.s.Forced && t.s.Back:
			t.pivotHappened(e, r.SentAs, st)
		default:
			t.stuck(r.SentAs, st, e.Service+" cannot undo it")
		}
	case OutcomeNoRecord:
		t.stuck(r.SentAs, st, "the participant's record of it has expired: "+r.Refusal.Text)
	default:
		return errors.Join(ErrInput, fmt.Errorf("%s is not an answer to the undo of an event", r.Outcome))
	}
	return nil
}

// passed says whether a pivot has happened.
func (t *tracking) passed() bool {
	for _, e := range t.c.Events {
		if e.Pivot && slices.ContainsFunc(t.paths(e), func(path string) bool {
			st := t.s.Steps[path]
			return st != nil && st.Status == StepDone
		}) {
			return true
		}
	}
	return false
}

// paths are those of an event: of its items as far as they are known, and of what was seen of it. While not all items are known, its
// name stands for the others.
func (t *tracking) paths(e *Expected) (paths []string) {
	if !e.Each {
		return []string{e.Name}
	}
	for _, item := range t.s.Items[e.Name] {
		paths = append(paths, itemPath(e.Name, item))
	}
	for _, path := range slices.Sorted(maps.Keys(t.s.Steps)) {
		if t.c.Event(path) == e && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	if t.unlisted(e) && !slices.Contains(paths, e.Name) {
		paths = append(paths, e.Name)
	}
	return paths
}
