package deadletter

import (
	"context"
	"log/slog"
	"time"
)

const (
	stepLimit = 500         // letters sent back in one transaction
	idleEvery = time.Second // between looks for redrives to drive
	retryWait = time.Second // after a failed step
)

// Drive drives a redrive until it has ended, and returns how it stands then. Other processes may drive it too. It calls
// progress, unless nil, after each step. When ctx ends, or the store fails, the redrive stays where it is, for whoever
// drives it on; the error says so.
func Drive(ctx context.Context, s RedriveStore, id int64, progress func(Redrive)) (Redrive, error) {
	var r Redrive
	for {
		next, wait, err := s.StepRedrive(ctx, id, stepLimit)
		if err != nil {
			return r, err
		}
		if r = next; progress != nil {
			progress(r)
		}
		if r.State != RedriveRunning {
			return s.ShowRedrive(ctx, id)
		}
		if err := pause(ctx, wait); err != nil {
			return r, err
		}
	}
}

// Run drives all redrives, whoever started them, until ctx ends: beside a relay or consumer, so that a redrive goes on when
// the process that started it is gone. Any number of processes may do so at once. A failure is logged, and tried again.
func Run(ctx context.Context, s RedriveStore, logger *slog.Logger) {
	failing := false
	for ctx.Err() == nil {
		wait, err := round(ctx, s)
		if err != nil && ctx.Err() == nil {
			if wait = retryWait; !failing {
				logger.Warn("redrives cannot go on, and are tried again", "error", err)
			}
		}
		failing = err != nil
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// round makes a step of each running redrive and returns how long to wait before the next.
func round(ctx context.Context, s RedriveStore) (time.Duration, error) {
	var running []int64
	for r, err := range s.ListRedrives(ctx, RedriveRunning) {
		if err != nil {
			return 0, err
		}
		running = append(running, r.ID)
	}
	next := idleEvery
	for _, id := range running {
		r, wait, err := s.StepRedrive(ctx, id, stepLimit)
		if err != nil {
			return 0, err
		}
		if r.State == RedriveRunning {
			next = min(next, wait)
		}
	}
	return next, nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
