package saga

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/protect"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// versionWait is how long the input of an instance waits when this process does not have the version of its definition.
const versionWait = 5 * time.Second

// earlyWait is how long a signal waits before it looks again for its instance.
const earlyWait = time.Second

// failureWait is how long a message waits after a failure that does not count as an attempt.
const failureWait = time.Second

// storeError is a failure of the database, e.g. a deadlock or a lost connection.
type storeError struct{ error }

// Unwrap returns the cause.
func (e storeError) Unwrap() error { return e.error }

// handleOne handles a message in a batch of its own: a local step, which may take long, while others need the instances of other messages.
func (e *Engine[Tx]) handleOne(ctx context.Context, tx Tx, m *postrider.Message) error {
	b, err := e.begin(ctx, tx, []*postrider.Message{m})
	if err == nil {
		err = b.Handle(ctx, m)
	}
	if err == nil {
		err = b.End(ctx)
	}
	return err
}

// vital says whether a message is not dead-lettered however it fails: a timer, or what instances tell each other. Nothing else wakes the one
// that waits for it.
func vital(m *postrider.Message) bool {
	return m.Type == typeTimer || m.Type == typeEnded || m.Type == typeParent
}

// protected calls f for a message. If f panics or ends its goroutine, the call of the relay ends, which counts as an attempt: not for a
// message that is vital.
func protected(m *postrider.Message, f func() error) error {
	if !vital(m) {
		return f()
	}
	return protect.Call(f, func(v any, stack string) error { return &relay.PanicError{Value: v, Stack: stack} })
}

// uncounted returns the outcome of a message. A failure of the database does not count as an attempt, since it is not the message's; an
// invalid message that follows from it does. No failure of a message that is vital counts.
func (e *Engine[Tx]) uncounted(m *postrider.Message, err error) error {
	if postrider.OutcomeOf(err).Kind != postrider.Retried {
		return err
	}
	_, ofStore := errors.AsType[storeError](err)
	if _, invalid := errors.AsType[*postrider.ValidationError](err); !vital(m) && (invalid || !ofStore) { // it is repeated, or its sender is told
		return err
	}
	e.cfg.Logger.Warn("saga: a message fails and is tried again", "engine", e.cfg.Name, "type", m.Type, "instance", m.Headers[headerID], "error", err)
	return errors.Join(postrider.Snooze(failureWait), err)
}

// transact makes the transition for a message of the engine.
func (b *batch[Tx]) transact(ctx context.Context, m *postrider.Message) error {
	input, err := readInput(m)
	if err != nil {
		return postrider.Dead(ReasonNotApplicable, fmt.Errorf("read %s: %w", m.Type, err))
	}
	in, err := b.instanceOf(ctx, m)
	if err != nil {
		return err
	}
	switch {
	case in == nil && m.Type == typeParent:
		return b.neverStarted(m)
	case in == nil:
		return b.notFound(m)
	}
	t, r, err := b.prepare(ctx, in, m, input.Verb)
	if err != nil {
		return err
	}
	t.input, t.step = inputName(m.Type), m.Headers[headerStep]
	if d, is := r.(*machine.Definition); is && m.Type == typeLocal {
		if wanted, err := b.runLocal(ctx, d, m, t, input.Reply); err != nil || !wanted {
			return err
		}
	}
	if m.Type == typeEnded { // from the engine's own outbox
		input.Reply.Token = t.before.State.Token
	}
	if v := input.Verb; v != nil {
		t.step, t.actor, t.note = v.Step, v.Actor, v.Reason
	}
	input.Age, input.Isolated = in.age(), vital(m) || m.Attempt > 1
	if input.Timer != nil && in.Kind == store.SagaChoreographed {
		input.ReadUpTo = b.sources.readUpTo(input.Age)
		if due := t.before.State.NeedsReading(input.Timer.ID); input.ReadUpTo < due {
			return postrider.Snooze(readAgain(min(input.Age-due, b.sources.ask())))
		}
	}
	return b.advance(ctx, in, r, t, input)
}

// rulesOf returns those that an instance began with, nil if this process does not have them.
func (e *Engine[Tx]) rulesOf(in *store.SagaInstance) machine.Rules {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.sagas[in.Saga][in.Version]; d != nil && d.Hash() == in.Hash {
		return d
	}
	if c, found := e.contracts[in.Saga][in.Version]; found && c.compiled.Hash() == in.Hash {
		return c.compiled
	}
	return nil
}

// prepare begins the transition of an instance for a message. A message whose rules this process does not have waits for a process
// that has them.
func (b *batch[Tx]) prepare(ctx context.Context, in *instance, m *postrider.Message, v *machine.Verb) (*transition, machine.Rules, error) {
	r := b.rulesOf(&in.SagaInstance)
	if v != nil && v.Kind == machine.VerbMigrate && in.Kind == store.SagaOrchestrated {
		var err error
		if r, err = b.target(ctx, &in.SagaInstance, v, r); err != nil {
			return nil, nil, err
		}
	}
	if r == nil {
		b.cfg.Logger.Warn("saga: this process does not have the definition of an instance, or has another of the same version; the message "+
			"waits for a process that has it", "engine", b.cfg.Name, "saga", in.Saga, "version", in.Version, "hash", in.Hash, "instance", in.ID)
		return nil, nil, postrider.Snooze(versionWait)
	}
	if err := in.decode(); err != nil {
		return nil, nil, err
	}
	return &transition{
		identity: in.SagaIdentity, began: time.Now(), startedAt: in.StartedAt, messageID: m.ID, before: *in.current,
	}, r, nil
}

// advance makes a transition and keeps what it results in.
func (b *batch[Tx]) advance(ctx context.Context, in *instance, r machine.Rules, t *transition, input machine.Input) (err error) {
	t.age, t.isolated = input.Age, input.Isolated
	t.after, t.out, err = r.Advance(b.policy(), t.before, input)
	switch {
	case errors.Is(err, machine.ErrInput):
		return postrider.Dead(ReasonNotApplicable, err)
	case err != nil, t.out.Ignored:
		return err
	}
	if t.out.Refused != "" {
		t.note = t.out.Refused
	}
	if v := input.Verb; v != nil && v.Kind == machine.VerbMigrate && t.out.Refused == "" {
		t.identity.Version, t.identity.Hash = v.To, r.Hash()
		if err := b.store.SetSagaVersion(ctx, b.tx, t.identity.Run, v.To, r.Hash()); err != nil {
			return storeError{fmt.Errorf("set the version of instance %s: %w", t.identity.ID, err)}
		}
		in.SagaIdentity = t.identity
	}
	return b.keep(ctx, in, t)
}

// notFound handles a message whose instance does not exist. A timer or local step belongs to one that was purged; a signal
// may be early; anything else is dead-lettered.
func (e *Engine[Tx]) notFound(m *postrider.Message) error {
	switch {
	case m.Type == typeTimer || m.Type == typeLocal || m.Type == typeEnded:
		e.cfg.Logger.Debug("saga: message of an instance that was purged", "engine", e.cfg.Name, "type", m.Type, "instance", m.Headers[headerID])
		if o := e.cfg.Observer; o != nil && o.Ignored != nil {
			e.watched.Call(e.cfg.Logger, func() { o.Ignored(e.cfg.Name) }, "engine", e.cfg.Name)
		}
		return nil
	case m.Type == typeSignal && time.Since(m.Time) < e.cfg.EarlyFor:
		return postrider.Snooze(min(earlyWait, e.cfg.EarlyFor))
	}
	if o := e.cfg.Observer; o != nil && o.NotFound != nil {
		e.watched.Call(e.cfg.Logger, func() { o.NotFound(e.cfg.Name) }, "engine", e.cfg.Name)
	}
	return postrider.Dead(ReasonNotFound, fmt.Errorf("engine %s has no instance %q (run %q)", e.cfg.Name, m.Headers[headerID], m.Headers[headerRun]))
}

// runLocal runs a local step in a savepoint and completes the reply by its outcome. It reports whether the attempt is still
// wanted.
func (b *batch[Tx]) runLocal(
	ctx context.Context, d *machine.Definition, m *postrider.Message, t *transition, reply *machine.Reply,
) (wanted bool, err error) {
	attempt, err := strconv.Atoi(m.Headers[headerAttempt])
	if err != nil {
		return false, postrider.Dead(ReasonNotApplicable, fmt.Errorf("read the attempt: %w", err))
	}
	undo := m.Headers[headerUndo] != ""
	path := t.before.State.PathOf(reply.SentAs)
	if path == "" || !t.before.State.Expects(reply.SentAs, undo, attempt) {
		return false, nil
	}
	local, err := d.Local(&t.before, path, b.cfg.MaxState)
	if err != nil {
		return false, err
	}
	run := local.Step.Run
	reply.Token, reply.Outcome = t.before.State.Token, machine.OutcomeDone
	if b.tookTooLong(m.ID) {
		reply.Outcome = machine.OutcomeFailed
		reply.Refusal = machine.Refusal{Reason: "failed", Text: fmt.Sprintf("it took longer than LocalTimeout (%s)", b.cfg.LocalTimeout)}
		return true, nil
	}
	if undo {
		run, reply.Outcome = local.Step.RunUndo, machine.OutcomeUndone
	}
	bounded, cancel := context.WithTimeout(ctx, b.cfg.LocalTimeout)
	defer cancel()
	err = b.store.Savepoint(bounded, b.tx, func(ctx context.Context, tx Tx) error {
		return protect.Call(func() (err error) {
			if err = run(ctx, tx, local.Data); err == nil {
				reply.Data, err = local.Result()
			}
			return err
		}, func(v any, stack string) error { return fmt.Errorf("panic: %v\n%s", v, stack) })
	})
	if bounded.Err() != nil && ctx.Err() == nil && errors.Is(err, store.ErrUndone) { // a driver may close the connection then
		b.mu.Lock()
		b.overran.add(m.ID)
		b.mu.Unlock()
		return true, errors.Join(postrider.Snooze(time.Millisecond), err)
	}
	return true, localOutcome(ctx, err, reply)
}

// tookTooLong says whether the local step of a message took too long and undid its transaction, so that only this process knows it.
// The redelivered message counts as the failed attempt.
func (e *Engine[Tx]) tookTooLong(message string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.overran.take(message)
}

// localOutcome completes the reply of a local step. An error that undoes the whole transaction is returned.
func localOutcome(ctx context.Context, err error, reply *machine.Reply) error {
	refused, isRefusal := errors.AsType[*machine.RefusalError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrUndone) || ctx.Err() != nil:
		return storeError{err}
	case isRefusal && reply.Outcome == machine.OutcomeDone:
		reply.Outcome, reply.Refusal = machine.OutcomeRefused, refused.Refusal
	default:
		reply.Outcome, reply.Refusal = machine.OutcomeFailed, machine.Refusal{Reason: "failed", Text: err.Error()}
	}
	reply.Data = nil
	return nil
}

// inputName names an input in the history.
func inputName(messageType string) string { return messageType[len(topicPrefix):] }
