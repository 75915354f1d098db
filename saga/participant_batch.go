package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// participantBatch handles commands and undos that follow one another in a transaction. Its beginning locks the records of all steps; its
// end saves them and publishes the answers. So each takes one statement for all messages.
type participantBatch[Tx any] struct {
	*Participant[Tx]
	tx      Tx
	steps   map[store.SagaStep]*lockedStep
	locked  []*lockedStep
	closed  []string // runs that will not ask again
	answers []*postrider.Message
}

// lockedStep is the record of a step that the transaction has locked.
type lockedStep struct {
	store.SagaRecord
	now     time.Time // by the database, when it was locked
	changed bool
}

// asked is what messages of a type ask of a participant: to do a step, or to undo it; without a handler, to close its run.
type asked[Tx any] struct {
	handler *stepHandler[Tx]
	undo    bool
}

// asks returns what messages ask, by their types.
func (p *Participant[Tx]) asks() map[string]asked[Tx] {
	all := make(map[string]asked[Tx], 3*len(p.handlers))
	for messageType, h := range p.handlers {
		all[messageType], all[machine.UndoType(messageType)] = asked[Tx]{handler: h}, asked[Tx]{h, true}
		all[machine.ClosedType(messageType)] = asked[Tx]{}
	}
	return all
}

func (p *Participant[Tx]) newBatch(tx Tx) *participantBatch[Tx] {
	return &participantBatch[Tx]{Participant: p, tx: tx, steps: make(map[store.SagaStep]*lockedStep)}
}

// stepOf is the step that a message is about.
func stepOf(m *postrider.Message) store.SagaStep {
	return store.SagaStep{Run: m.Headers[headerRun], Step: m.Headers[headerStep]}
}

// lock locks the records of steps, those of incomplete messages excepted.
func (b *participantBatch[Tx]) lock(ctx context.Context, steps ...store.SagaStep) error {
	var missing []store.SagaStep
	for _, step := range steps {
		if b.steps[step] == nil && step.Run != "" && step.Step != "" {
			b.steps[step] = new(lockedStep)
			missing = append(missing, step)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	records, now, err := b.records.LockSagaRecords(ctx, b.tx, b.cfg.Name, missing)
	if err != nil {
		return b.uncounted(fmt.Errorf("lock the records of %d steps: %w", len(missing), err))
	}
	for i, r := range records {
		locked := b.steps[missing[i]]
		*locked = lockedStep{SagaRecord: r, now: now, changed: r.SavedAt.IsZero()} // the lock of a record that is not saved would stay
		b.locked = append(b.locked, locked)
	}
	return nil
}

// handle handles a command or an undo.
func (b *participantBatch[Tx]) handle(ctx context.Context, m *postrider.Message, of asked[Tx]) error {
	step := stepOf(m)
	since, err := time.Parse(time.RFC3339, m.Headers[headerSince])
	if err != nil || step.Run == "" || step.Step == "" || m.Headers[headerReply] == "" {
		return postrider.Dead(ReasonNotApplicable, fmt.Errorf("%s is not a command of a saga: headers are missing", m.Type))
	}
	if err := b.lock(ctx, step); err != nil { // unless it is locked
		return err
	}
	locked := b.steps[step]
	r, expired := locked.SagaRecord, locked.now.Sub(since) > b.cfg.KeepRecords-recordMargin
	seen := m.Headers[headerSeen] != ""
	answer, err := b.act(ctx, b.tx, m, of.handler, &r, machine.Decide(r.State, of.undo, of.handler.undo != nil, seen, expired))
	if err != nil {
		return b.uncounted(err)
	}
	if r.State != locked.State || locked.changed {
		r.FirstSentAt, locked.changed = since, true
	}
	locked.SagaRecord = r
	b.answers = append(b.answers, answer)
	return nil
}

// End implements relay.Batch.
func (b *participantBatch[Tx]) End(ctx context.Context) error { return b.uncounted(b.write(ctx)) }

// write publishes the answers, and saves what was done.
func (b *participantBatch[Tx]) write(ctx context.Context) error {
	return pipelined(ctx, b.records, b.tx, b.writeIn)
}

func (b *participantBatch[Tx]) writeIn(ctx context.Context, tx Tx) error {
	if len(b.answers) > 0 {
		if _, err := b.box.Publish(ctx, tx, b.answers...); err != nil {
			return fmt.Errorf("answer %d steps: %w", len(b.answers), err)
		}
	}
	var changed []store.SagaRecord
	for _, locked := range b.locked {
		if locked.changed {
			changed = append(changed, locked.SagaRecord)
		}
	}
	if len(changed) > 0 {
		if err := b.records.SaveSagaRecords(ctx, tx, b.cfg.Name, changed); err != nil {
			return fmt.Errorf("save the records of %d steps: %w", len(changed), err)
		}
	}
	if len(b.closed) > 0 {
		if err := b.records.CloseSagaRuns(ctx, tx, b.cfg.Name, b.closed); err != nil {
			return fmt.Errorf("close the records of %d runs: %w", len(b.closed), err)
		}
	}
	return nil
}

// askedBatch is a batch of messages of several types.
type askedBatch[Tx any] struct {
	*participantBatch[Tx]
	asks map[string]asked[Tx]
}

// Handle implements relay.Batch.
func (b askedBatch[Tx]) Handle(ctx context.Context, m *postrider.Message) error {
	of := b.asks[m.Type]
	if of.handler == nil {
		b.closed = append(b.closed, m.Headers[headerRun])
		return nil
	}
	return b.handle(ctx, m, of)
}

// beginBatch begins the handling of messages in a transaction.
type beginBatch[Tx any] = func(ctx context.Context, tx Tx, msgs []*postrider.Message) (relay.Batch, error)

// register registers the handlers of all steps.
func (p *Participant[Tx]) register(add func(types []string, begin beginBatch[Tx]) error) error {
	asks := p.asks()
	var types []string
	for messageType := range asks {
		types = append(types, messageType)
	}
	return add(types, func(ctx context.Context, tx Tx, msgs []*postrider.Message) (relay.Batch, error) {
		b := askedBatch[Tx]{p.newBatch(tx), asks}
		var steps []store.SagaStep
		for _, m := range msgs {
			if asks[m.Type].handler != nil {
				steps = append(steps, stepOf(m))
			}
		}
		return b, b.lock(ctx, steps...)
	})
}

// handle handles a command or an undo in the transaction tx.
func (p *Participant[Tx]) handle(ctx context.Context, tx Tx, m *postrider.Message, h *stepHandler[Tx], undo bool) error {
	b := p.newBatch(tx)
	if err := b.handle(ctx, m, asked[Tx]{h, undo}); err != nil {
		return err
	}
	return b.End(ctx)
}

// close handles the end of a saga: it will not ask about its steps again.
func (p *Participant[Tx]) close(ctx context.Context, tx Tx, m *postrider.Message) error {
	b := p.newBatch(tx)
	b.closed = []string{m.Headers[headerRun]}
	return b.End(ctx)
}
