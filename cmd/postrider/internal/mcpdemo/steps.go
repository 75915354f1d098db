package mcpdemo

import (
	"context"

	"github.com/postrider/postrider/store"
)

// delivered reports whether a relay has nothing to deliver.
func delivered(r store.RelayStatus) bool { return r.Backlog.N+r.Parked.N == 0 }

func (w *World) place(ctx context.Context) (Done, error) {
	ids, err := w.order(ctx)
	if err != nil {
		return Done{}, err
	}
	w.mu.Lock()
	away := w.away
	w.mu.Unlock()
	if away {
		return Done{Step: "place_orders", Did: "5 orders are placed; their messages wait, since the broker does not answer.", Next: "overview", IDs: ids}, nil
	}
	return Done{
		Step: "place_orders", Did: "5 orders are placed, and the relay has nothing left to deliver.", Next: "show_message with one of the IDs", IDs: ids,
	}, w.until(ctx, delivered)
}

func (w *World) stopBroker(ctx context.Context) (Done, error) {
	w.set(func(w *World) { w.away = true })
	ids, err := w.order(ctx)
	if err != nil {
		return Done{}, err
	}
	return Done{
		Step: "stop_broker", Did: "The broker does not answer. 5 messages wait in order, and no attempt is counted.", Next: "overview, then run_doctor", IDs: ids,
	}, w.until(ctx, func(r store.RelayStatus) bool { return r.DestinationOf().State == store.DestinationDown })
}

func (w *World) startBroker(ctx context.Context) (Done, error) {
	w.set(func(w *World) { w.away = false })
	return Done{Step: "start_broker", Did: "The broker answers again, and has got what waited.", Next: "overview"}, w.until(ctx, func(r store.RelayStatus) bool {
		return delivered(r) && r.DestinationOf().State != store.DestinationDown
	})
}

func (w *World) breakOrders(ctx context.Context) (Done, error) {
	w.set(func(w *World) { w.broken = true })
	before, err := w.dead(ctx)
	if err != nil {
		return Done{}, err
	}
	ids, err := w.order(ctx)
	if err != nil {
		return Done{}, err
	}
	return Done{
		Step: "break_orders", Did: "The broker refuses orders without a currency. 5 messages are dead letters after 2 attempts each.",
		Next: "count_dead_letters, list_dead_letters, show_dead_letter", IDs: ids,
	}, w.until(ctx, func(r store.RelayStatus) bool { return delivered(r) && r.Dead.N >= before+orders })
}

func (w *World) correctOrders(context.Context) (Done, error) {
	w.set(func(w *World) { w.broken = false })
	return Done{
		Step: "correct_orders", Did: "The broker takes orders again. The dead letters stay until they are redriven.",
		Next: "plan_redrive; a person approves it on its page; then list_redrives, show_redrive and show_message",
	}, nil
}

// dead counts the open dead letters.
func (w *World) dead(ctx context.Context) (n int64, err error) {
	return n, w.until(ctx, func(r store.RelayStatus) bool {
		n = r.Dead.N
		return true
	})
}
