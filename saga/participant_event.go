package saga

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// errExpired: an event was published so long ago that the participant may have removed its record of it.
var errExpired = errors.New("the record of it may have been removed, so it is not known whether it was handled")

// eventRefusal refuses a step with the event that says so.
type eventRefusal struct{ event *postrider.Message } //nolint:errname // a verdict

// Error implements error.
func (e *eventRefusal) Error() string { return "refused with " + e.event.Type }

// RefuseWith refuses a step of Participant.Do with an event: what the step did is rolled back, and the event is published, also when
// the step is asked for again. It takes what Definition.New returns:
//
//	return saga.RefuseWith(OutOfStock.New(NoStock{SKU: sku}))
func RefuseWith(event *postrider.Message, err error) (*postrider.Message, error) {
	if err != nil {
		return nil, err
	}
	if event == nil {
		return nil, errors.New("saga: RefuseWith needs an event")
	}
	return nil, &eventRefusal{event}
}

// Do does a step of a choreographed saga in a handler of an event, in the handler's transaction: f does it and returns the event to
// publish, or nil. The step belongs to the business process of the handled message, and happens once in it:
//
//	record     | Do
//	none       | f runs; its event is published, and kept with the record
//	done       | the event is published again, with its ID
//	refused    | the event of RefuseWith is published again
//	undone     | nothing happens
//	blocked    | nothing happens
//
// A step that exists for each of several items has the item in its name. ctx is that of the handler. Errors: those of f and of the
// store; a handler returns them.
func (p *Participant[Tx]) Do(ctx context.Context, tx Tx, step string, f func(ctx context.Context) (*postrider.Message, error)) error {
	return p.uncounted(p.doEvent(ctx, tx, step, f))
}

func (p *Participant[Tx]) doEvent(
	ctx context.Context, tx Tx, step string, f func(ctx context.Context) (*postrider.Message, error),
) error {
	r, m, err := p.lockStep(ctx, tx, step)
	if err != nil {
		return err
	}
	switch machine.Decide(r.State, false, true, false, r.expired(p.cfg.KeepRecords, m.CreatedAt)) {
	case machine.Repeat:
		return p.publishAgain(ctx, tx, m, r)
	case machine.Refuse:
		p.cfg.Logger.Info("saga: a step was undone before, so it is not done", "participant", p.cfg.Name, "step", step, "message", m.ID)
		return nil
	case machine.NoRecord:
		return postrider.Dead(ReasonNotApplicable, fmt.Errorf("step %s for %s %s: %w", step, m.Type, m.ID, errExpired))
	}
	var event *postrider.Message
	err = p.records.Savepoint(ctx, tx, func(ctx context.Context, _ Tx) (err error) {
		event, err = f(ctx)
		return err
	})
	r.State = store.SagaStepDone
	if refusal, refused := errors.AsType[*eventRefusal](err); refused && !errors.Is(err, store.ErrUndone) {
		event, r.State, err = refusal.event, store.SagaStepRefused, nil
	}
	if err != nil {
		return err
	}
	return p.record(ctx, tx, m, r, event)
}

// Undo undoes a step of Do in a handler of the message that asks for it, in the handler's transaction. f undoes what the step did, and
// returns the event that confirms it. did is the event that the step published, or nil if there is nothing to undo: then f only
// returns its event. In both cases the step will not happen any more. Work from did: the handled message has no data if the
// tracker has not seen the event. ErrCannotUndo says that the step cannot be undone.
//
//	record     | Undo
//	none       | blocked; f(nil) makes the event
//	done       | f(did) undoes it
//	refused    | f(nil) makes the event
//	undone     | the event is published again, with its ID
//	blocked    | the same
//
// Errors: as for Do.
func (p *Participant[Tx]) Undo(ctx context.Context, tx Tx, step string,
	f func(ctx context.Context, did *postrider.Message) (*postrider.Message, error),
) error {
	return p.uncounted(p.undoEvent(ctx, tx, step, f))
}

func (p *Participant[Tx]) undoEvent(
	ctx context.Context, tx Tx, step string, f func(ctx context.Context, did *postrider.Message) (*postrider.Message, error),
) error {
	r, m, err := p.lockStep(ctx, tx, step)
	if err != nil {
		return err
	}
	since, _ := time.Parse(time.RFC3339, m.Headers[headerSince]) // zero if nobody says
	action := machine.Decide(r.State, true, true, m.Headers[headerSeen] != "", r.expired(p.cfg.KeepRecords, since))
	var did *postrider.Message
	state := r.State
	switch action {
	case machine.Undone:
		if state != store.SagaStepRefused {
			return p.publishAgain(ctx, tx, m, r)
		}
	case machine.NoRecord, machine.BlockDone:
		if action == machine.BlockDone {
			r.State = store.SagaStepBlocked
		}
		return p.answer(ctx, tx, m, r, machine.OutcomeNoRecord, Refusal{Reason: "expired", Text: errExpired.Error()})
	case machine.Block:
		state = store.SagaStepBlocked
	case machine.RunUndo:
		state = store.SagaStepUndone
		if did, err = r.event(); err != nil {
			return err
		}
		if did == nil {
			did = &postrider.Message{} // it published nothing
		}
	}
	var event *postrider.Message
	err = p.records.Savepoint(ctx, tx, func(ctx context.Context, _ Tx) (err error) {
		event, err = f(ctx, did)
		return err
	})
	switch {
	case errors.Is(err, ErrCannotUndo) && !errors.Is(err, store.ErrUndone):
		return p.answer(ctx, tx, m, r, machine.OutcomeCannotUndo, nil)
	case err != nil:
		return err
	case action == machine.Undone: // it was refused, and stays so
		return p.publish(ctx, tx, m, event)
	}
	r.State = state
	return p.record(ctx, tx, m, r, event)
}

// stepRecord is the record of a step of Do.
type stepRecord struct {
	store.SagaRecord
	now time.Time // by the database
}

// expired says whether a record of what was first sent at a time may have been removed; never if the time is not known.
func (r *stepRecord) expired(keep time.Duration, sent time.Time) bool {
	return !sent.IsZero() && r.now.Sub(sent) > keep-recordMargin
}

// keptEvent is an event in a record.
type keptEvent struct {
	Message *postrider.Message `json:"message"`
	Payload []byte             `json:"payload"`
}

// event is the one that a record keeps, nil if there is none.
func (r *stepRecord) event() (*postrider.Message, error) {
	if len(r.Reply) == 0 {
		return nil, nil
	}
	var kept keptEvent
	if err := json.Unmarshal(r.Reply, &kept); err != nil {
		return nil, postrider.Dead(postrider.Undecodable, fmt.Errorf("read the record of step %s: %w", r.Step, err))
	}
	kept.Message.Payload = kept.Payload
	return kept.Message, nil
}

// lockStep locks the record of a step for the business process of the message that is handled.
func (p *Participant[Tx]) lockStep(ctx context.Context, tx Tx, step string) (*stepRecord, *postrider.Message, error) {
	m := postrider.MessageFromContext(ctx)
	switch {
	case m == nil:
		return nil, nil, fmt.Errorf("saga: participant %s: step %q: the context is not that of a handler", p.cfg.Name, step)
	case step == "" || len(step) > machine.MaxPathBytes || !storable(step):
		return nil, nil, fmt.Errorf("saga: participant %s: the name of step %q must have 1 to %d bytes of UTF-8 without NUL", p.cfg.Name, step, machine.MaxPathBytes)
	}
	records, now, err := p.records.LockSagaRecords(ctx, tx, p.cfg.Name, []store.SagaStep{{Run: eventRun(processOf(m)), Step: step}})
	if err != nil {
		return nil, nil, fmt.Errorf("lock the record of step %s: %w", step, err)
	}
	return &stepRecord{records[0], now}, m, nil
}

// eventRun is the run under which the steps of a business process are recorded. It is none of an orchestrated instance.
func eventRun(process string) string {
	run := "event:" + process
	for i := range len(run) {
		if run[i] < ' ' || run[i] > '~' || len(run) > 64 {
			sum := sha256.Sum256([]byte(process))
			return hex.EncodeToString(sum[:])
		}
	}
	return run
}

// record saves the record of a step with its event, and publishes the event. The record can be removed after KeepRecords: an undo that
// arrives later is answered so.
func (p *Participant[Tx]) record(ctx context.Context, tx Tx, m *postrider.Message, r *stepRecord, event *postrider.Message) error {
	r.CommandType, r.ReplyType, r.Reply, r.FirstSentAt = m.Type, "", nil, r.now
	if event != nil {
		if event.ID == "" {
			event.ID = postrider.NewID()
		}
		r.ReplyType = event.Type
		var err error
		if r.Reply, err = json.Marshal(keptEvent{event, event.Payload}); err != nil {
			return fmt.Errorf("encode the event of step %s: %w", r.Step, err)
		}
	}
	if err := p.records.SaveSagaRecords(ctx, tx, p.cfg.Name, []store.SagaRecord{r.SagaRecord}); err != nil {
		return fmt.Errorf("save the record of step %s: %w", r.Step, err)
	}
	if err := p.records.CloseSagaRuns(ctx, tx, p.cfg.Name, []string{r.Run}); err != nil {
		return fmt.Errorf("save the record of step %s: %w", r.Step, err)
	}
	return p.publish(ctx, tx, m, event)
}

func (p *Participant[Tx]) publishAgain(ctx context.Context, tx Tx, m *postrider.Message, r *stepRecord) error {
	event, err := r.event()
	if err != nil {
		return err
	}
	return p.publish(ctx, tx, m, event)
}

// publish publishes the event of a step, which belongs to the same instance as the message that is handled.
func (p *Participant[Tx]) publish(ctx context.Context, tx Tx, m *postrider.Message, event *postrider.Message) error {
	if event == nil {
		return nil
	}
	own := *event
	own.Headers = maps.Clone(event.Headers)
	for _, name := range []string{headerID, headerName, headerStep} {
		if value := m.Headers[name]; value != "" && (name != headerStep || m.Headers[headerUndo] != "") {
			if own.Headers == nil {
				own.Headers = make(map[string]string)
			}
			own.Headers[name] = value
		}
	}
	if _, err := p.box.Publish(ctx, tx, &own); err != nil {
		return fmt.Errorf("publish %s: %w", own.Type, err)
	}
	return nil
}

// answer tells the tracker that asked for an undo why there is none.
func (p *Participant[Tx]) answer(ctx context.Context, tx Tx, m *postrider.Message, r *stepRecord, outcome machine.Outcome, content any) error {
	if r.SavedAt.IsZero() { // the lock of a record that is not saved would stay
		if err := p.records.SaveSagaRecords(ctx, tx, p.cfg.Name, []store.SagaRecord{r.SagaRecord}); err != nil {
			return fmt.Errorf("save the record of step %s: %w", r.Step, err)
		}
	}
	if m.Headers[headerReply] == "" {
		p.cfg.Logger.Warn("saga: a step cannot be undone, and nobody is told", "participant", p.cfg.Name, "message", m.ID, "outcome", outcome)
		return nil
	}
	payload, err := json.Marshal(content)
	if err != nil {
		return err
	}
	_, err = p.box.Publish(ctx, tx, replyMessage(m, outcome, payload))
	return err
}
