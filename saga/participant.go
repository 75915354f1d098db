package saga

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/handlers"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// Records is what a participant needs of the database of its effects. The implementations are store/postgres, store/mysql,
// store/sqlite and store/memory.
type Records[Tx any] interface {
	store.SagaRecords[Tx]
	// PurgeSagaRecords is that of store.SagaMaintenance.
	PurgeSagaRecords(ctx context.Context, participant string, savedFor time.Duration, limit int) (int, error)
	// Savepoint and Conflicted are those of store.Transactor.
	Savepoint(ctx context.Context, tx Tx, f func(ctx context.Context, tx Tx) error) error
	Conflicted(err error) bool
}

// ParticipantConfig configures a participant. The zero value of each field means its default.
type ParticipantConfig struct {
	// Name identifies the participant and its records, e.g. "inventory": 1 to 64 bytes. Required.
	Name string
	// KeepRecords is how long the participant keeps records; it removes older ones while its relay or consumer runs. A command
	// that was first sent longer ago, less one day, may have had a record that is gone, so it is not executed. It must exceed
	// the longest time that a command can take to arrive. Default: 30 days. The record of a step that is done is kept until its
	// saga has ended.
	KeepRecords time.Duration
	// Logger receives the participant's log. Default: slog.Default().
	Logger *slog.Logger
}

// Participant does steps of sagas. In the transaction of each effect it records what it did and publishes the answer, so that:
//
//   - A command that is redelivered, or sent again, is answered as the first time and has no second effect.
//   - The undo of a step that never happened succeeds, and the step's command is refused if it arrives later.
//   - The undo handler gets the command and the reply, also if the saga has never seen the reply.
type Participant[Tx any] struct {
	cfg      ParticipantConfig
	records  Records[Tx]
	box      *outbox.Outbox[Tx]
	handlers map[string]*stepHandler[Tx] // by message type of the command
	calls    map[string]callHandler      // those of HandleCall
	versions handlers.Set[struct{}]      // of commands
}

// stepHandler has the handlers of a step with their types removed.
type stepHandler[Tx any] struct {
	do   func(ctx context.Context, tx Tx, m *postrider.Message) (reply []byte, err error)
	undo func(ctx context.Context, tx Tx, r *store.SagaRecord) error // nil: the step cannot be undone
	// settle is that of a call of which nobody knows how it ended; nil if the step is none.
	settle func(r *store.SagaRecord) error
}

// NewParticipant returns a participant that keeps its records in a store and publishes its answers through an outbox of the same
// database.
func NewParticipant[Tx any](records Records[Tx], box *outbox.Outbox[Tx], c ParticipantConfig) (*Participant[Tx], error) {
	var faults []error
	if records == nil || box == nil {
		faults = append(faults, errors.New("saga: NewParticipant needs a store and an outbox"))
	}
	if c.Name == "" || len(c.Name) > 64 {
		faults = append(faults, fmt.Errorf("saga: a participant's Name must have 1 to 64 bytes, has %d", len(c.Name)))
	}
	c.KeepRecords = cmp.Or(c.KeepRecords, 30*24*time.Hour)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.KeepRecords < 2*recordMargin {
		faults = append(faults, fmt.Errorf("saga: KeepRecords is %s, it must be at least %s", c.KeepRecords, 2*recordMargin))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Participant[Tx]{cfg: c, records: records, box: box, handlers: make(map[string]*stepHandler[Tx]), calls: make(map[string]callHandler)}, nil
}

// recordMargin is how long before the removal of its record a command counts as too old, for clocks that differ.
const recordMargin = 24 * time.Hour

// Handle registers the handlers of a step. do does it and returns the reply; a Refuse error refuses it, and rolls back what do
// did; any other error is retried as the relay or consumer retries messages. undo undoes what do did, given the command and the
// reply; ErrCannotUndo says that it cannot be undone any more. A step that was defined WithoutUndo has no undo handler. Both
// run in the transaction that records them, and must not commit or roll it back. Call Handle before Relay and Consume. Errors:
// ErrDuplicate; those of StepDefinition.Validate.
func Handle[Tx, C, R any](
	p *Participant[Tx], s StepDefinition[C, R],
	do func(ctx context.Context, tx Tx, m postrider.Typed[C]) (R, error),
	undo func(ctx context.Context, tx Tx, command C, reply R) error,
) error {
	if err := p.mayHandle(s.Type(), s.Validate(), do == nil, undo == nil, s.noUndo); err != nil {
		return err
	}
	h := &stepHandler[Tx]{do: func(ctx context.Context, tx Tx, m *postrider.Message) ([]byte, error) {
		typed, err := decodeCommand(p, s, m)
		if err != nil {
			return nil, err
		}
		reply, err := do(ctx, tx, typed)
		if err != nil {
			return nil, err
		}
		return s.reply.Encode(reply)
	}}
	if undo != nil {
		h.undo = func(ctx context.Context, tx Tx, r *store.SagaRecord) error {
			command, reply, err := decodeRecord(p, s, r)
			if err != nil {
				return err
			}
			return undo(ctx, tx, command, reply)
		}
	}
	p.handlers[s.Type()] = h
	p.versions.AddAny(s.Type(), struct{}{})
	return nil
}

// Relay lets a relay with transactions on the participant's database take commands and undos: those of sagas with the same
// outbox. Errors: those of relay.HandleTxBatch.
func (p *Participant[Tx]) Relay(r *relay.Relay) error {
	return errors.Join(r.Background(p.maintain),
		p.register(func(types []string, begin beginBatch[Tx]) error { return relay.HandleTxBatch(r, types, begin) }))
}

// Consume lets a consumer on the participant's database take commands and undos that come from a broker. Errors: those of
// inbox.Consumer.HandleBatch.
func (p *Participant[Tx]) Consume(c *inbox.Consumer[Tx]) error {
	return errors.Join(c.Background(p.maintain), p.register(func(types []string, begin beginBatch[Tx]) error { return c.HandleBatch(types, begin) }))
}

// act does what was decided, changes the record accordingly, and returns the answer.
func (p *Participant[Tx]) act(
	ctx context.Context, tx Tx, m *postrider.Message, h *stepHandler[Tx], r *store.SagaRecord, action machine.Action,
) (*postrider.Message, error) {
	switch action {
	case machine.RunDo:
		return p.do(ctx, tx, m, h, r)
	case machine.RunUndo:
		err := p.records.Savepoint(ctx, tx, func(ctx context.Context, tx Tx) error { return h.undo(ctx, tx, r) })
		if errors.Is(err, ErrCannotUndo) && !errors.Is(err, store.ErrUndone) {
			return replyMessage(m, machine.OutcomeCannotUndo, r.Reply), nil
		}
		if err != nil {
			return nil, err
		}
		r.State = store.SagaStepUndone
		return replyMessage(m, machine.OutcomeUndone, nil), nil
	case machine.Block:
		r.State, r.CommandType = store.SagaStepBlocked, m.Type
		return replyMessage(m, machine.OutcomeUndone, nil), nil
	case machine.Undone:
		return replyMessage(m, machine.OutcomeUndone, nil), nil
	case machine.Cannot:
		return replyMessage(m, machine.OutcomeCannotUndo, r.Reply), nil
	case machine.Refuse:
		return refusalMessage(m, machine.OutcomeRefused, Refusal{Reason: machine.Blocked, Text: "the step was undone before"})
	case machine.Settle:
		if h.settle != nil {
			return nil, h.settle(r)
		}
		return refusalMessage(m, machine.OutcomeNoRecord, Refusal{Reason: "calling", Text: fmt.Sprintf(
			"participant %s made a call for this step, and nobody knows how it ended", p.cfg.Name)})
	case machine.BlockDone, machine.NoRecord:
		if action == machine.BlockDone {
			r.State, r.CommandType = store.SagaStepBlocked, m.Type
		}
		return refusalMessage(m, machine.OutcomeNoRecord, Refusal{Reason: "expired", Text: fmt.Sprintf(
			"participant %s keeps records for %s, and has none of doing this step", p.cfg.Name, p.cfg.KeepRecords)})
	default: // machine.Repeat
		return replyMessage(m, machine.Outcome(r.ReplyType), r.Reply), nil
	}
}

// uncounted returns the outcome of a message. That its transaction and others waited for each other does not count as an attempt: the
// message would be dead-lettered, and the saga turned back, for what others do.
func (p *Participant[Tx]) uncounted(err error) error {
	if err == nil || !p.records.Conflicted(err) || postrider.OutcomeOf(err).Kind != postrider.Retried {
		return err
	}
	return errors.Join(postrider.Snooze(failureWait), err)
}

// do runs the handler of a command in a savepoint, which a refusal rolls back.
func (p *Participant[Tx]) do(ctx context.Context, tx Tx, m *postrider.Message, h *stepHandler[Tx], r *store.SagaRecord) (*postrider.Message, error) {
	var reply []byte
	err := p.records.Savepoint(ctx, tx, func(ctx context.Context, tx Tx) (err error) {
		reply, err = h.do(ctx, tx, m)
		return err
	})
	refused, isRefusal := errors.AsType[*machine.RefusalError](err)
	switch {
	case err == nil:
		r.State, r.ReplyType = store.SagaStepDone, string(machine.OutcomeDone)
	case isRefusal && !errors.Is(err, store.ErrUndone):
		r.State, r.ReplyType = store.SagaStepRefused, string(machine.OutcomeRefused)
		if reply, err = json.Marshal(refused.Refusal); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	r.CommandType, r.Command, r.SchemaVersion, r.Reply = m.Type, m.Payload, cmp.Or(m.SchemaVersion, 1), reply
	return replyMessage(m, machine.Outcome(r.ReplyType), reply), nil
}

func refusalMessage(m *postrider.Message, outcome machine.Outcome, r Refusal) (*postrider.Message, error) {
	payload, err := json.Marshal(r)
	return replyMessage(m, outcome, payload), err
}
