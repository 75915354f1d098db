package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// transition is the handling of one input by one instance.
type transition struct {
	identity      store.SagaIdentity
	began         time.Time // on the process's clock; zero for the first
	startedAt     time.Time
	age           time.Duration
	before, after machine.Instance
	out           machine.Output
	isolated      bool // see machine.Input; the children that it starts are, too
	// input, step, messageID, actor and note go into the history, entries are what happened; took is how long it took to make.
	input, step, messageID, actor, note string
	entries                             []store.SagaEntry
	took                                time.Duration
}

// create writes a new instance with its first transition, unless it exists.
func (e *Engine[Tx]) create(ctx context.Context, tx Tx, t *transition) (Started, error) {
	found, msgs, err := e.insert(ctx, tx, t)
	if err != nil {
		return Started{}, err
	}
	if found == nil {
		return Started{ID: t.identity.ID, New: true}, e.publish(ctx, tx, msgs)
	}
	var state machine.State
	if err := json.Unmarshal(found.State, &state); err != nil {
		return Started{}, fmt.Errorf("read the state of instance %s: %w", found.ID, err)
	}
	if found.Saga != t.identity.Saga || state.Input != t.before.State.Input {
		if o := e.cfg.Observer; o != nil && o.Conflicted != nil {
			e.watched.Call(e.cfg.Logger, func() { o.Conflicted(t.identity.Saga) }, "engine", e.cfg.Name)
		}
		return Started{ID: found.ID}, fmt.Errorf("instance %s: %w", found.ID, ErrConflict)
	}
	return Started{ID: found.ID}, nil
}

// insert writes a new instance, and returns the messages that its first transition results in. If it exists, it is returned instead.
func (e *Engine[Tx]) insert(ctx context.Context, tx Tx, t *transition) (existing *store.SagaInstance, msgs []*postrider.Message, err error) {
	body, err := body(&t.after)
	if err != nil {
		return nil, nil, err
	}
	entry, err := t.entry()
	if err != nil {
		return nil, nil, err
	}
	start := store.SagaStart{
		SagaIdentity: t.identity, SagaCondition: t.condition(), SagaTimes: t.times(), SagaBody: body, Token: t.before.State.Token,
		Transition: entry,
	}
	ended := t.after.State.Ended != ""
	if ended { // a new instance has not ended
		start.Status = store.SagaRunning
	}
	found, err := e.store.CreateSagas(ctx, tx, []store.SagaStart{start})
	if err != nil {
		return nil, nil, fmt.Errorf("create instance %s: %w", t.identity.ID, err)
	}
	if found[0] != nil {
		return found[0], nil, nil
	}
	if ended {
		t.after.Rev++
		change := t.change(body, store.SagaTransition{Input: "end", Entries: []store.SagaEntry{{Name: string(t.after.State.Ended)}}})
		if err := e.store.SaveSagas(ctx, tx, []store.SagaChange{change}); err != nil {
			return nil, nil, fmt.Errorf("save instance %s: %w", t.identity.ID, err)
		}
	}
	if msgs, err = e.outgoing(ctx, tx, t); err != nil {
		return nil, nil, err
	}
	t.entries = entry.Entries
	e.observe(t)
	return nil, msgs, nil
}

// body returns what the engine keeps of an instance for itself.
func body(in *machine.Instance) (store.SagaBody, error) {
	state, err := json.Marshal(in.State)
	if err != nil {
		return store.SagaBody{}, fmt.Errorf("encode the state of instance %s: %w", in.ID, err)
	}
	return store.SagaBody{State: state, Data: in.Data}, nil
}

// outgoing returns the messages that a transition results in: commands, the timer, and at the end its announcement and what closes the
// records of participants. It starts the instances of children.
func (e *Engine[Tx]) outgoing(ctx context.Context, tx Tx, t *transition) (msgs []*postrider.Message, err error) {
	for _, c := range t.out.Commands {
		if c.Child == nil {
			msgs = append(msgs, commandMessage(e.Topic(), &t.after, c, t.startedAt.Add(c.Since)))
			continue
		}
		child, err := e.child(ctx, tx, t, c)
		if err != nil {
			return nil, fmt.Errorf("step %s of instance %s: %w", c.Path, t.identity.ID, err)
		}
		msgs = append(msgs, child...)
	}
	ends, err := e.endMessages(t)
	if err != nil {
		return nil, err
	}
	msgs = append(msgs, ends...)
	if t.out.Announcement != nil {
		msgs = append(msgs, t.out.Announcement)
	}
	for _, m := range t.out.Reports { // services undo their steps of this business process
		m.Headers = map[string]string{headerID: t.after.State.Process, headerName: t.identity.Saga}
		msgs = append(msgs, m)
	}
	if t.out.Timer != nil {
		msgs = append(msgs, timerMessage(e.Topic(), &t.after, t.out.Timer))
	}
	for _, m := range msgs {
		if m.CorrelationID == "" {
			m.CorrelationID = t.identity.CorrelationID
		}
		if m.Tenant == "" {
			m.Tenant = t.identity.Tenant
		}
	}
	return msgs, nil
}

// publish publishes messages that transitions result in.
func (e *Engine[Tx]) publish(ctx context.Context, tx Tx, msgs []*postrider.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if _, err := e.box.Publish(ctx, tx, msgs...); err != nil {
		return fmt.Errorf("publish %d messages, the first of instance %s: %w", len(msgs), msgs[0].Headers[headerID], err)
	}
	return nil
}

// endMessages tell others about the end of an instance: those who keep something for it, and the instance that started it.
func (e *Engine[Tx]) endMessages(t *transition) (msgs []*postrider.Message, err error) {
	if t.after.State.Closes() && !t.before.State.Closes() {
		if msgs, err = closedMessages(e.Topic(), &t.after); err != nil {
			return nil, err
		}
	}
	if t.out.Answer == nil {
		return msgs, nil
	}
	answer, err := endedMessage(e.Topic(), *t.after.State.Parent, t.out.Answer)
	return append(msgs, answer), err
}

func (t *transition) change(body store.SagaBody, history ...store.SagaTransition) store.SagaChange {
	return store.SagaChange{
		Run: t.identity.Run, Rev: t.after.Rev, SagaCondition: t.condition(), SagaTimes: t.times(), SagaBody: body,
		Transitions: history,
	}
}

// condition is what tools and filters read of an instance.
func (t *transition) condition() store.SagaCondition {
	s := &t.after.State
	c := store.SagaCondition{
		Status: s.Status(), Direction: store.SagaForward, Paused: s.Paused, Waiting: strings.Join(s.Waiting(), ", "),
		Obligations: len(s.Owed()), Released: len(s.Released()), PastPivot: t.out.Passed,
	}
	if s.Back {
		c.Direction = store.SagaBack
	}
	if s.Cause != nil {
		c.Cause = string(s.Cause.Kind)
		c.Detail = strings.Join(slices.DeleteFunc([]string{s.Cause.Step, s.Cause.Reason, s.Cause.Text}, func(text string) bool { return text == "" }), " ")
	}
	return c
}

func (t *transition) times() store.SagaTimes {
	return store.SagaTimes{Deadline: t.after.State.Deadline, TimerAt: t.after.State.Timer.At}
}

// entry is the transition's entry in the history.
func (t *transition) entry() (store.SagaTransition, error) {
	h := store.SagaTransition{
		Input: t.input, Step: stored.Fit(t.step, maxText), MessageID: stored.Fit(t.messageID, postrider.MaxIDBytes), Actor: t.actor, Note: t.note,
	}
	for _, event := range t.out.Events {
		h.Entries = append(h.Entries, store.SagaEntry{Name: event.What, Step: event.Step, Text: event.Note})
	}
	before := t.before.Data
	if t.before.Rev == 0 {
		before = nil // the first entry has all of it
	}
	changed, err := machine.Differences(before, t.after.Data)
	if err == nil && len(changed) > 0 {
		h.Patch, err = json.Marshal(changed)
	}
	if err != nil {
		return h, fmt.Errorf("compare the data of instance %s: %w", t.identity.ID, err)
	}
	return h, nil
}

// show returns an instance by its ID.
func show(ctx context.Context, r store.SagaReader, id string) (store.SagaInstance, error) {
	in, err := r.ShowSaga(ctx, id)
	if errors.Is(err, store.ErrNoSaga) {
		return in, fmt.Errorf("instance %s: %w", id, ErrNotFound)
	}
	return in, err
}
