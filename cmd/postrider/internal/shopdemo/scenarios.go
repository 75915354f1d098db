package shopdemo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Scenario is something that happens to the shop, with what must come of it.
type Scenario struct {
	Number int
	Title  string
	// about says in a few lines what is done and what is expected.
	about string
	// limits are the time limits that the scenario needs; those that are configured have precedence, and those that are missing are
	// ample, since no scenario depends on the speed of the machine.
	limits Limits
	// processes: it kills services, so they must be processes.
	processes bool
	run       func(context.Context, *stage) error
}

// Scenarios are all scenarios.
var Scenarios = []Scenario{
	{
		Number: 1, Title: "an order is shipped", run: shipOrders,
		about: "A new customer orders two products. Stock is reserved, the card is charged, and the parcel leaves. The order is fulfilled by an\n" +
			"orchestrated saga, and once more by services that react to each other's events.",
	},
	{
		Number: 2, Title: "an order is cancelled", run: both(cancelOrder),
		about: "A customer cancels an order that is confirmed and paid, but not shipped: goods and money must go back. Cancelling it a\n" +
			"second time is refused, and so is cancelling an order whose parcel has left.",
	},
	{
		Number: 3, Title: "a read model is rebuilt", run: rebuildView,
		about: "The service view keeps a read model of the orders. While orders come in, its database is dropped. It reads all events again,\n" +
			"and must then be equal to the orders. No saga may run again.",
	},
	{
		Number: 4, Title: "a new consumer joins", run: joinConsumer,
		about: "While orders come in, the service loyalty is started for the first time. It must give points for every order that is shipped,\n" +
			"once; no other service is changed or restarted. Then version 2 of the contract has the points: new orders must follow it, and\n" +
			"one that is in progress must continue with version 1.",
	},
	{
		Number: 5, Title: "a payment is declined", run: both(declinePayment),
		about: "Two workstations cost more than the limit of a card. The goods must go back at once: no timeout is waited for.",
	},
	{
		Number: 6, Title: "a service does not answer", run: both(timeOut), limits: Limits{StepTimeout: 15 * time.Second},
		about: "Payments is stopped, and an order is placed. When the charge times out, the saga turns back. When payments is back, it finds\n" +
			"the command and its undo: whatever it does first, no money is kept. A choreographed order can also be shipped in the end, if its\n" +
			"parcel leaves before shipping hears that it must not: never half.",
	},
	{
		Number: 7, Title: "a dead letter is redriven", run: redrive,
		about: "Inventory fails until its message is a dead letter. It is repaired, an operator redrives, and the order is shipped. Then once\n" +
			"more, but the order is cancelled before the redrive: nothing may be reserved then.",
	},
	{
		Number: 8, Title: "a refund fails", run: stickRefund, limits: Limits{UndoAttempts: 2, UndoTimeout: time.Second},
		about: "An order is cancelled, and its refund fails as often as it is tried. The saga must not end as if it were undone: it is stuck\n" +
			"until an operator has repaired payments and tries again.",
	},
	{
		Number: 9, Title: "a new version is deployed", run: deploy,
		about: "Orders are confirmed and held when version 2 of the saga is deployed, which has a review of expensive orders. They must\n" +
			"continue with version 1; an expensive order of version 2 must wait for a person.",
	},
	{
		Number: 10, Title: "services are killed", run: killServices, processes: true,
		limits: Limits{LeaseTTL: 5 * time.Second, StepTimeout: 15 * time.Second, Deadline: time.Minute},
		about:  "Each service is a process. While orders come in, one after another is killed, as by kill -9, and started again.",
	},
}

// ample are limits that nothing reaches but what must not happen at all.
var ample = Limits{StepTimeout: 30 * time.Minute, Deadline: time.Hour}

// both is a scenario with an order of each kind.
func both(run func(context.Context, *stage, kind) error) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error { return s.bothKinds(ctx, run) }
}

// ErrNoScenario: there is no scenario of this number.
var ErrNoScenario = errors.New("there is no such scenario")

// RunScenario runs a scenario in a shop of its own. Errors: ErrNoScenario; BrokenError; what prevented it from running.
func RunScenario(ctx context.Context, cfg Config, number int) (err error) {
	var sc *Scenario
	for i := range Scenarios {
		if Scenarios[i].Number == number {
			sc = &Scenarios[i]
		}
	}
	if sc == nil {
		return fmt.Errorf("scenario %d: %w", number, ErrNoScenario)
	}
	cfg.Faults, cfg.Processes = true, cfg.Processes || sc.processes
	cfg.Limits = cfg.Limits.or(sc.limits).or(ample)
	s := newStage(cfg)
	s.title(sc)
	w, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	s.world = w
	if err := sc.run(ctx, s); err != nil {
		return fmt.Errorf("scenario %d: %w", number, err)
	}
	tally, err := w.settle(ctx)
	if err != nil {
		return fmt.Errorf("check the ledger: %w", err)
	}
	s.broken = append(s.broken, tally.Broken...)
	fmt.Fprintln(cfg.Out)
	cfg.show("", ledgerLines(tally)...)
	if len(s.broken) > 0 {
		return &BrokenError{s.broken}
	}
	return nil
}

// or fills in the limits that are zero.
func (l Limits) or(o Limits) Limits {
	return Limits{
		StepTimeout: cmp.Or(l.StepTimeout, o.StepTimeout), Deadline: cmp.Or(l.Deadline, o.Deadline),
		UndoTimeout: cmp.Or(l.UndoTimeout, o.UndoTimeout), LeaseTTL: cmp.Or(l.LeaseTTL, o.LeaseTTL), Keep: cmp.Or(l.Keep, o.Keep),
		Replenish: cmp.Or(l.Replenish, o.Replenish), UndoAttempts: cmp.Or(l.UndoAttempts, o.UndoAttempts),
		Version: cmp.Or(l.Version, o.Version), ReviewAbove: cmp.Or(l.ReviewAbove, o.ReviewAbove),
	}
}
