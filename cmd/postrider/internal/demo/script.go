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
	atBadDeploy  = 0.40
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
		{atBrokerAway, r.takeBrokerAway}, {atBrokerBack, r.bringBrokerBack}, {atBadDeploy, r.deployBad},
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

func (r *run) deployBad(context.Context) error {
	r.shop.badDeploy.Store(true)
	r.screen.step("a bad deployment: 3%% of the orders lack their currency, and the broker refuses them; only their customers' keys are held")
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
	r.screen.step("another relay starts; once those leases have ended, it continues from what the database holds")
	return nil
}

// repair deploys the fix and redrives the dead letters.
func (r *run) repair(ctx context.Context) error {
	if r.refusal.fixed.Load() {
		return nil
	}
	status, err := r.status(ctx)
	if err != nil {
		return err
	}
	r.shop.badDeploy.Store(false)
	r.refusal.fixed.Store(true)
	n, err := r.redrive(ctx)
	if err != nil {
		return err
	}
	if n == 0 {
		r.screen.step("the fix is deployed; the refused messages have attempts left and are delivered without help")
		return nil
	}
	r.screen.step("the fix is deployed; an operator redrives %s of one cause, and %s follow in order",
		drawing.Plural(n, "dead letter"), drawing.Plural(max(status.Parked.N, 0), "parked message"))
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
	r.shop.badDeploy.Store(false)
	r.refusal.fixed.Store(true)
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
