package postridertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/store/memory"
)

// Fault is something that goes wrong in a Flow.
type Fault string

// The faults of a Flow.
const (
	// LostAnswer: the broker accepts each message, and the relay does not get the answer, so that it sends the message again.
	LostAnswer Fault = "lost answer"
	// Duplicate: the broker delivers each message twice.
	Duplicate Fault = "duplicate"
	// CrashBeforeCommit: a consumer's process ends after the handler has returned and before its transaction is committed. The
	// transaction is rolled back, and the message is delivered again. Whatever a handler has changed outside of the transaction, it
	// finds changed.
	CrashBeforeCommit Fault = "crash before commit"
	// CrashBeforeAck: a consumer's process ends after the commit and before the broker gets the acknowledgement, so that the broker
	// delivers the message again.
	CrashBeforeAck Fault = "crash before acknowledgement"
	// PoisonedMessage: each topic that is consumed begins with something that is not a message.
	PoisonedMessage Fault = "poisoned message"
	// BrokerDown: the broker cannot be reached for the first 30 seconds, neither by the relay nor by consumers.
	BrokerDown Fault = "broker down"
)

// Faults returns all faults.
func Faults() []Fault {
	return []Fault{LostAnswer, Duplicate, CrashBeforeCommit, CrashBeforeAck, PoisonedMessage, BrokerDown}
}

// crashes is how often the processes of a consumer crash for each fault: at the first chance, and then at every second one.
const crashes = 10

var (
	errLostAnswer = errors.New("postridertest: the answer was lost")
	errCrashed    = errors.New("postridertest: the process has crashed")
	errDown       = errors.New("postridertest: the broker is down")
)

// loseAnswers makes the broker lose the answer to the first time that each message is published.
func loseAnswers(b *memorybroker.Broker) {
	var mu sync.Mutex
	lost := make(map[string]bool)
	b.FailWhen(func(m *postrider.Message) (before, after error) {
		mu.Lock()
		defer mu.Unlock()
		if lost[m.ID] {
			return nil, nil
		}
		lost[m.ID] = true
		return nil, errLostAnswer
	})
}

// twice is a publisher whose broker keeps everything twice.
type twice struct{ *memorybroker.Broker }

// Publish implements postrider.Publisher.
func (p twice) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	errs := p.Broker.Publish(ctx, msgs)
	if errs == nil {
		_ = p.Broker.Publish(ctx, msgs) // a duplicate may be missing
	}
	return errs
}

// chance decides whether a process crashes now.
type chance struct {
	enabled bool
	seen    atomic.Int64
}

func (c *chance) crashes() bool {
	if !c.enabled {
		return false
	}
	n := c.seen.Add(1)
	return n%2 == 1 && n < 2*crashes
}

// process is one process of a consumer. When it has crashed, nothing that it does has an effect.
type process struct {
	*memory.Store
	beforeCommit, beforeAck *chance
	end                     func() // ends the process

	crashed atomic.Bool
}

func (p *process) crash() error {
	p.crashed.Store(true)
	p.end()
	return errCrashed
}

// Begin implements store.Inbox.
func (p *process) Begin(ctx context.Context) (*memory.Tx, error) {
	if p.crashed.Load() {
		return nil, errCrashed
	}
	return p.Store.Begin(ctx)
}

// Commit implements store.Inbox.
func (p *process) Commit(ctx context.Context, tx *memory.Tx) error {
	switch {
	case p.crashed.Load():
		return errCrashed
	case p.beforeCommit.crashes():
		return p.crash()
	}
	return p.Store.Commit(ctx, tx)
}

// settleFault is a memorybroker.SubscriberConfig.SettleFault.
func (p *process) settleFault(op string, _ *postrider.Message) (before, after error) {
	switch {
	case p.crashed.Load():
		return errCrashed, nil
	case op == "Ack" && p.beforeAck.crashes():
		return p.crash(), nil
	}
	return nil, nil
}
