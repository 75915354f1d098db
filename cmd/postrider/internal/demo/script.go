package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/drawing"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// The times of the script's events, as fractions of the time that the shop is open.
const (
	atBrokerAway = 0.15
	atBrokerBack = 0.30
	atPoison     = 0.40
	atCrash      = 0.58
	atRepair     = 0.78
)

// tell runs the script until the shop closes; it ends early when ctx ends or the shop fails.
func (r *run) tell(ctx, work context.Context, failed <-chan struct{}) error {
	r.screen.step("the shop opens: every order is a transaction that also publishes its messages; 1 in %d is rolled back", rollbackEvery)
	for _, step := range []struct {
		at   float64
		take func(context.Context) error
	}{
		{atBrokerAway, r.takeBrokerAway}, {atBrokerBack, r.bringBrokerBack}, {atPoison, r.poisonMessage},
		{atCrash, r.crashRelay}, {atRepair, r.repair}, {1, nil},
	} {
		select {
		case <-time.After(time.Until(r.began.Add(time.Duration(step.at * float64(r.cfg.For))))):
		case <-failed:
			return nil
		case <-ctx.Done():
			r.screen.step("interrupted: closing early")
			return nil
		}
		if step.take == nil {
			return nil
		}
		if err := step.take(work); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) takeBrokerAway(context.Context) error {
	r.setBrokerAway(true)
	r.screen.step("the broker is taken away: %s", r.broker.away())
	return nil
}

func (r *run) bringBrokerBack(ctx context.Context) error {
	status, err := r.status(ctx)
	if err != nil {
		return err
	}
	if err := r.broker.back(); err != nil {
		return err
	}
	r.setBrokerAway(false)
	r.screen.step("the broker is back: %s wait in the log, %s were parked, %s counted as failed",
		drawing.Plural(status.Backlog.N, "message"), drawing.Number(status.Parked.N), drawing.Plural(status.Failed, "attempt"))
	return nil
}

func (r *run) poisonMessage(context.Context) error {
	r.shop.poisonNext.Store(true)
	r.screen.step("a message of %s is poisoned: the broker refuses it; its key is held, the others flow", poisonedCustomer)
	return nil
}

// crashRelay crashes the relay and starts another, which must wait until the first one's leases have expired.
func (r *run) crashRelay(context.Context) error {
	r.mu.Lock()
	crashed := r.relay
	r.relay, r.relayDown = nil, true
	r.gone = append(r.gone, crashed)
	r.mu.Unlock()
	crashed.crash()
	r.screen.step("the relay crashes, as by kill -9: nothing is settled, no lease given back (each ends within %s)", r.leaseTTL())
	if err := r.startRelay(); err != nil {
		return err
	}
	r.mu.Lock()
	r.relayDown = false
	r.mu.Unlock()
	r.screen.step("another relay starts, and goes on from what stands in the database once those leases have ended")
	return nil
}

// repair fixes the cause of the poisoning and redrives the dead letter.
func (r *run) repair(ctx context.Context) error {
	if r.poison.repaired.Load() {
		return nil
	}
	status, err := r.status(ctx)
	if err != nil {
		return err
	}
	r.poison.repaired.Store(true)
	n, err := r.redrive(ctx)
	if err != nil {
		return err
	}
	if n == 0 {
		r.screen.step("the cause is repaired; the poisoned message has attempts left and goes by itself")
		return nil
	}
	r.screen.step("an operator repairs the cause and redrives %s; its key goes on, %s in order after it",
		drawing.Plural(n, "dead letter"), drawing.Plural(max(status.Parked.N, 0), "message"))
	return nil
}

func (r *run) redrive(ctx context.Context) (int, error) {
	n, err := deadletter.New(r.cfg.Store).RedriveDead(ctx, store.DeadFilter{Relay: relayName}, "demo", 0)
	if err != nil {
		return n, fmt.Errorf("redrive the dead letters: %w", err)
	}
	r.cfg.Transactions.Wake()
	return n, nil
}

// undoAll undoes the effects of an early end, so that everything can arrive.
func (r *run) undoAll(ctx context.Context) error {
	r.mu.Lock()
	away := r.brokerAway
	r.mu.Unlock()
	if away {
		if err := r.bringBrokerBack(ctx); err != nil {
			return err
		}
	}
	r.poison.repaired.Store(true)
	_, err := r.redrive(ctx)
	return err
}

func (r *run) setBrokerAway(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.brokerAway = away
}

// status is the relay's status, as an operator sees it.
func (r *run) status(ctx context.Context) (store.RelayStatus, error) {
	s, err := r.cfg.Store.Status(ctx)
	if err != nil {
		return store.RelayStatus{}, fmt.Errorf("read the status: %w", err)
	}
	if len(s.Relays) == 0 {
		return store.RelayStatus{}, nil
	}
	return s.Relays[0], nil
}
