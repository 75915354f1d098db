package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// signal sends a signal to each instance whose timer is not due, 100 in a transaction.
func (t *timers) signal(ctx context.Context) error {
	const size = 100
	for done := 0; done < t.fresh; done += size {
		if _, err := t.s.box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			for i := done; i < min(done+size, t.fresh); i++ {
				o := orderOf(t.due + i)
				if err := saga.Signal(ctx, tx, t.s.box, "bench", o.ID, resumed, part{ID: o.ID}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// runFresh runs the engine until all signals are handled. The time counts from its first transition on, which may be that of a timer.
func (t *timers) runFresh(ctx context.Context) (report.Figures, error) {
	done := expectEffects(t.fresh)
	t.s.observe(func(tr observe.Transitioned) {
		done.begin()
		if number, ok := orderNumber(tr.ID); ok && number >= t.due && tr.Status.Ended() {
			done.end()
		}
	})
	r, err := t.s.engineRelay(relay.Config{})
	if err != nil {
		return nil, err
	}
	if err := runUntil(ctx, r, done.all); err != nil {
		return nil, err
	}
	var due int
	if err := t.b.pool.QueryRow(ctx, fmt.Sprintf("select count(*) from %sparked where due_at < now()", t.s.prefix)).Scan(&due); err != nil {
		return nil, err
	}
	if t.due > 0 && due == 0 {
		return nil, fmt.Errorf("no timer was due any more when %d signals were handled", t.fresh)
	}
	return report.Figures{figureRate: float64(t.fresh) / done.ended.Sub(done.began).Seconds()}, nil
}
