package saga

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga/internal/machine"
)

// callHandler has the handlers of a step of HandleCall with their types removed.
type callHandler struct {
	do   func(ctx context.Context, key string, m *postrider.Message) (reply []byte, err error)
	undo func(ctx context.Context, key string, command, reply []byte) error // nil: the step cannot be undone
}

// errCall: the transaction is rolled back, and the call comes first.
var errCall = errors.New("the call comes first")

// HandleCall is Handle for steps that call a service over the network: do and undo run outside of any transaction, and what they
// return is recorded in one together with the answer. If the process dies in between, the call is repeated. It is given a key that is the same
// for all attempts, and another one for the undo: pass it to the service as its idempotency key, or else the call can have its effect
// twice. An error of do is no refusal: the relay tries again, and an undo waits behind its command for that. Refuse says
// that the call certainly had no effect. Call HandleCall before Calls. Errors: as for Handle.
func HandleCall[Tx, C, R any](
	p *Participant[Tx], s StepDefinition[C, R],
	do func(ctx context.Context, key string, m postrider.Typed[C]) (R, error),
	undo func(ctx context.Context, key string, command C, reply R) error,
) error {
	if err := p.mayHandle(s.Type(), s.Validate(), do == nil, undo == nil, s.noUndo); err != nil {
		return err
	}
	h := callHandler{do: func(ctx context.Context, key string, m *postrider.Message) ([]byte, error) {
		typed, err := s.command.Decode(m)
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
		h.undo = func(ctx context.Context, key string, command, reply []byte) error {
			c, r, err := s.decodeRecord(command, reply)
			if err != nil {
				return err
			}
			return undo(ctx, key, c, r)
		}
	}
	p.calls[s.Type()] = h
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
// what came of it.
func (p *Participant[Tx]) call(ctx context.Context, m *postrider.Message, h callHandler, undo bool) error {
	var command, did []byte
	asked := &stepHandler[Tx]{do: func(context.Context, Tx, *postrider.Message) ([]byte, error) { return nil, errCall }}
	if h.undo != nil {
		asked.undo = func(_ context.Context, _ Tx, c, r []byte) error {
			command, did = c, r
			return errCall
		}
	}
	err := p.inTx(ctx, m, asked, undo)
	if !errors.Is(err, errCall) {
		return err
	}
	key := m.Headers[headerRun] + "/" + m.Headers[headerStep]
	var reply []byte
	if undo {
		err = h.undo(ctx, key+"/undo", command, did)
	} else {
		reply, err = h.do(ctx, key, m)
	}
	if _, refused := errors.AsType[*machine.RefusalError](err); err != nil && !refused && !errors.Is(err, ErrCannotUndo) {
		return err
	}
	answered := &stepHandler[Tx]{do: func(context.Context, Tx, *postrider.Message) ([]byte, error) { return reply, err }}
	if h.undo != nil {
		answered.undo = func(context.Context, Tx, []byte, []byte) error { return err }
	}
	return p.inTx(ctx, m, answered, undo)
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
