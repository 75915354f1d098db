package saga

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// callHandler has the handlers of a step of HandleCall with their types removed.
type callHandler struct {
	do   func(ctx context.Context, key string, m *postrider.Message) (reply []byte, err error)
	undo func(ctx context.Context, key string, r *store.SagaRecord) error // nil: the step cannot be undone
	// decodes says why do cannot read a command.
	decodes func(m *postrider.Message) error
	// schemaVersion is that of the definition.
	schemaVersion int
}

// errCall: the transaction is rolled back, and the call comes first.
var errCall = errors.New("the call comes first")

// HandleCall is Handle for steps that call a service over the network: do and undo run outside of any transaction, and what they
// return is recorded in one together with the answer. If the process dies in between, the call is repeated with its data. It is given a key that is the same
// for all attempts, and another one for the undo: pass it to the service as its idempotency key, or else the call can have its effect
// twice. An error of do is no refusal: the relay tries again, and an undo waits behind its command for that. An undo that finds a call of
// which nobody knows how it ended, since its command is a dead letter, repeats it with its key first. Refuse says that the call
// certainly had no effect. Call HandleCall before Calls. Errors: as for Handle.
func HandleCall[Tx, C, R any](
	p *Participant[Tx], s StepDefinition[C, R],
	do func(ctx context.Context, key string, m postrider.Typed[C]) (R, error),
	undo func(ctx context.Context, key string, command C, reply R) error,
) error {
	if err := p.mayHandle(s.Type(), s.Validate(), do == nil, undo == nil, s.noUndo); err != nil {
		return err
	}
	decodes := func(m *postrider.Message) error {
		_, err := decodeCommand(p, s, m)
		return err
	}
	h := callHandler{schemaVersion: s.command.SchemaVersion(), decodes: decodes, do: func(ctx context.Context, key string, m *postrider.Message) ([]byte, error) {
		typed, err := decodeCommand(p, s, m)
		if err != nil {
			return nil, err
		}
		reply, err := do(ctx, key, typed)
		if err != nil {
			return nil, err
		}
		return s.reply.Encode(reply)
	}}
	if undo != nil {
		h.undo = func(ctx context.Context, key string, r *store.SagaRecord) error {
			command, reply, err := decodeRecord(p, s, r)
			if err != nil {
				return err
			}
			return undo(ctx, key, command, reply)
		}
	}
	p.calls[s.Type()] = h
	p.versions.AddAny(s.Type(), struct{}{})
	return nil
}

// Calls lets a relay of the participant's outbox take the commands and undos of the steps of HandleCall. It needs their topics, and is one
// without transactions: other handlers of it are those of relay.Handle. What one instance asks for comes in order, what others ask
// for at the same time. Errors: those of relay.Relay.HandleFunc.
func (p *Participant[Tx]) Calls(r *relay.Relay) error {
	errs := []error{r.Background(p.maintain)}
	for messageType, h := range p.calls {
		errs = append(errs,
			r.HandleFunc(messageType, func(ctx context.Context, m *postrider.Message) error { return p.call(ctx, m, h, false) }),
			r.HandleFunc(machine.UndoType(messageType), func(ctx context.Context, m *postrider.Message) error { return p.call(ctx, m, h, true) }),
			r.HandleFunc(machine.ClosedType(messageType), func(ctx context.Context, m *postrider.Message) error {
				_, err := p.box.InTx(ctx, func(ctx context.Context, tx Tx) error { return p.close(ctx, tx, m) })
				return err
			}))
	}
	return errors.Join(errs...)
}

// call handles a command or an undo: if its record says that there is something to do, it makes the call, and then records and answers
// what came of it. Before the call, it records that there may be one: an undo that finds it so first finds out how the call ended, by
// repeating it, since its command may be a dead letter by then.
func (p *Participant[Tx]) call(ctx context.Context, m *postrider.Message, h callHandler, undo bool) error {
	var did store.SagaRecord       // what there is to undo
	var unknown *postrider.Message // the command of a call of which nobody knows how it ended
	asked := &stepHandler[Tx]{
		// Nothing is called for a command that cannot be read, so nothing may say so.
		do: func(_ context.Context, _ Tx, m *postrider.Message) ([]byte, error) {
			return nil, cmp.Or(h.decodes(m), errCall)
		},
		settle: func(r *store.SagaRecord) error {
			unknown = p.calledWith(m, r)
			return errCall
		},
	}
	if h.undo != nil {
		asked.undo = func(_ context.Context, _ Tx, r *store.SagaRecord) error {
			did = *r
			return errCall
		}
	}
	m, err := p.ask(ctx, m, asked, undo)
	if err != nil || m == nil {
		return err
	}
	key := m.Headers[headerRun] + "/" + m.Headers[headerStep]
	var reply []byte
	switch {
	case unknown != nil:
		reply, err = h.do(ctx, key, unknown)
	case undo:
		err = h.undo(ctx, key+"/undo", &did)
	default:
		reply, err = h.do(ctx, key, m)
	}
	if _, refused := errors.AsType[*machine.RefusalError](err); err != nil && !refused && !errors.Is(err, ErrCannotUndo) {
		return err
	}
	answered := &stepHandler[Tx]{do: func(context.Context, Tx, *postrider.Message) ([]byte, error) { return reply, err }}
	if h.undo != nil {
		answered.undo = func(context.Context, Tx, *store.SagaRecord) error { return err }
	}
	if unknown == nil {
		return p.inTx(ctx, m, answered, undo)
	}
	if err := p.settled(ctx, m, answered); err != nil {
		return err
	}
	return p.call(ctx, m, h, undo)
}

// calledWith is the command of a record that says that there may have been a call, for its undo or another attempt m.
func (p *Participant[Tx]) calledWith(m *postrider.Message, r *store.SagaRecord) *postrider.Message {
	command := *m
	command.Type, command.Payload = r.CommandType, r.Command
	command.SchemaVersion = p.versionOf(r, p.calls[r.CommandType].schemaVersion)
	return &command
}

// ask returns the message to make a call for, nil if it takes none, and records that one of a command begins. A call that may have been made
// is repeated with its data, whatever those of another attempt are: they go with its key.
func (p *Participant[Tx]) ask(ctx context.Context, m *postrider.Message, h *stepHandler[Tx], undo bool) (call *postrider.Message, err error) {
	_, err = p.box.InTx(ctx, func(ctx context.Context, tx Tx) error {
		b := p.newBatch(tx)
		of := asked[Tx]{h, undo}
		switch err := b.handle(ctx, m, of); {
		case err != nil && !errors.Is(err, errCall):
			return err
		case err == nil:
			return b.write(ctx)
		}
		call = m
		locked := b.steps[stepOf(m)]
		switch {
		case undo:
			return nil
		case locked.State == store.SagaStepCalling:
			call = p.calledWith(m, &locked.SagaRecord)
			return nil
		}
		locked.State, locked.CommandType, locked.Command, locked.changed = store.SagaStepCalling, m.Type, m.Payload, true
		locked.SchemaVersion = cmp.Or(m.SchemaVersion, 1)
		locked.Reply = []byte(strconv.Itoa(locked.SchemaVersion))                // for programs that do not know the other, see versionOf
		locked.FirstSentAt, _ = time.Parse(time.RFC3339, m.Headers[headerSince]) // handle has read it
		return b.write(ctx)
	})
	return call, p.uncounted(err)
}

// settled records how a call ended, for the undo that has repeated it.
func (p *Participant[Tx]) settled(ctx context.Context, m *postrider.Message, h *stepHandler[Tx]) error {
	_, err := p.box.InTx(ctx, func(ctx context.Context, tx Tx) error {
		b := p.newBatch(tx)
		if err := b.lock(ctx, stepOf(m)); err != nil {
			return err
		}
		locked := b.steps[stepOf(m)]
		if locked.State != store.SagaStepCalling { // somebody else has
			return b.write(ctx)
		}
		locked.changed = true
		if _, err := b.do(ctx, tx, p.calledWith(m, &locked.SagaRecord), h, &locked.SagaRecord); err != nil {
			return err
		}
		return b.write(ctx)
	})
	return p.uncounted(err)
}

// inTx handles a command or an undo in a transaction of its own.
func (p *Participant[Tx]) inTx(ctx context.Context, m *postrider.Message, h *stepHandler[Tx], undo bool) error {
	_, err := p.box.InTx(ctx, func(ctx context.Context, tx Tx) error { return p.handle(ctx, tx, m, h, undo) })
	return p.uncounted(err)
}

// mayHandle says why a step cannot be registered.
func (p *Participant[Tx]) mayHandle(messageType string, invalid error, noDo, noUndo, withoutUndo bool) error {
	_, called := p.calls[messageType]
	switch {
	case invalid != nil:
	case noDo:
		invalid = errors.New("there is no handler")
	case noUndo && !withoutUndo:
		invalid = errors.New("there is no undo handler; define the step WithoutUndo if it needs none")
	case !noUndo && withoutUndo:
		invalid = errors.New("the step is defined WithoutUndo and has an undo handler")
	case called || p.handlers[messageType] != nil:
		invalid = ErrDuplicate
	default:
		return nil
	}
	return fmt.Errorf("participant %s: handle %q: %w", p.cfg.Name, messageType, invalid)
}
