package deadletter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider/store"
)

const (
	stepLimit   = 500             // dead letters sent back in one transaction
	stepTimeout = 2 * time.Minute // for one step, so that a hanging step does not delay others for longer
	idleEvery   = 5 * time.Second // between polls for running redrives
	wokenEvery  = time.Second     // the same after a wake-up: most wake-ups are for something else
	retryWait   = time.Second     // after the redrives could not be read
)

// Drive drives a redrive until it has ended, and returns its final state. Other processes may drive it too. It calls
// progress, unless nil, after each step.
//
// When ctx ends, or a step fails, the redrive stays where it is so that another process can continue it, and Drive
// returns it as of the last step: the zero Redrive when there was none. An error together with a redrive that has ended
// says that the outcome of its messages could not be read.
func (s Store) Drive(ctx context.Context, id int64, progress func(store.Redrive)) (store.Redrive, error) {
	var r store.Redrive
	for {
		next, wait, err := s.StepRedrive(ctx, id, stepLimit)
		if err != nil {
			return r, err
		}
		if r = next; progress != nil {
			progress(r)
		}
		if r.State != store.RedriveRunning {
			shown, err := s.ShowRedrive(ctx, id)
			if err != nil {
				return r, err
			}
			return shown, nil
		}
		if err := pause(ctx, wait, nil); err != nil {
			return r, err
		}
	}
}

// Run drives all redrives, started by any process, until ctx ends. Run it next to a relay or consumer, so that a redrive
// continues when the process that started it is gone. Any number of processes may do so at once. It polls for redrives
// every 5 seconds, and at once when the store signals work (Subscribe, as relays use it), but at most once a second.
//
// A step that fails does not delay other redrives: its cause is recorded in the redrive, logged, and the step is retried
// with backoff until the redrive has failed (store.MaxRedriveFailures).
func (s Store) Run(ctx context.Context, logger *slog.Logger) {
	d := driver{store: s, logger: logger}
	if w, ok := s.records.(interface {
		Subscribe() (<-chan struct{}, func())
	}); ok {
		woken, end := w.Subscribe()
		defer end()
		d.woken = woken
	}
	for ctx.Err() == nil {
		d.looked = time.Now()
		wait, err := d.round(ctx)
		if err != nil && ctx.Err() == nil {
			if wait = retryWait; !d.failing {
				logger.Warn("redrives cannot go on, and are tried again", "error", err)
			}
		}
		d.failing = err != nil
		if d.wait(ctx, wait) != nil {
			return
		}
	}
}

// driver is the state of one Run call.
type driver struct {
	store   Store
	logger  *slog.Logger
	woken   <-chan struct{} // nil for a store that does not signal work
	looked  time.Time
	failing bool
}

// wait waits for the next poll.
func (d *driver) wait(ctx context.Context, wait time.Duration) error {
	if d.failing || wait < wokenEvery {
		return pause(ctx, wait, nil)
	}
	begin := time.Now()
	if err := pause(ctx, wait, d.woken); err != nil || time.Since(begin) >= wait {
		return err
	}
	return pause(ctx, wokenEvery-time.Since(d.looked), nil)
}

// round runs one step of each running redrive and returns how long to wait before the next round. An error concerns the
// store, not a single redrive.
func (d *driver) round(ctx context.Context) (time.Duration, error) {
	var running []store.Redrive
	for r, err := range d.store.ListRedrives(ctx, store.RedriveRunning) {
		if err != nil {
			return 0, err
		}
		running = append(running, r)
	}
	next := idleEvery
	for _, r := range running {
		wait, err := d.step(ctx, r)
		if err != nil {
			return 0, err
		}
		next = min(next, wait)
	}
	return next, nil
}

// step runs one step of a redrive and returns how long to wait before the next one, or records that the step has failed.
func (d *driver) step(ctx context.Context, r store.Redrive) (time.Duration, error) {
	bounded, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	after, wait, err := d.store.StepRedrive(bounded, r.ID, stepLimit)
	switch {
	case err == nil && after.State == store.RedriveRunning:
		return wait, nil
	case err == nil, errors.Is(err, store.ErrNoRedrive):
		return idleEvery, nil
	case ctx.Err() != nil:
		return 0, err
	case bounded.Err() != nil:
		err = fmt.Errorf("it took longer than %s: %w", stepTimeout, err)
	}
	noting, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	noted, noteErr := d.store.FailRedrive(noting, r.ID, r.Failures, err.Error())
	if noteErr != nil {
		return 0, err
	}
	if noted.State == store.RedriveFailed {
		d.logger.Error("redrive has failed; fix the cause and start another one", "redrive", r.ID, "error", err)
		return idleEvery, nil
	}
	d.logger.Warn("step of a redrive has failed, and is tried again", "redrive", r.ID, "failures", noted.Failures, "error", err)
	return backoff(noted), nil
}

// pause waits for a duration, or until woken.
func pause(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
	}
	return ctx.Err()
}
