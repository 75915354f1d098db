// Package drive runs long operations that a store keeps, such as redrives and replays, step by step. Any number of processes may
// drive the same operation; another one continues when a process ends.
package drive

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// MaxFailures is how many steps of an operation may fail in a row. The wait after each doubles from a second to a minute, so an
// operation fails after about a quarter of an hour.
const MaxFailures = 20

const (
	stepTimeout = 2 * time.Minute // for one step, so that a hanging step does not delay others for longer
	idleEvery   = 5 * time.Second // between polls for running operations
	wokenEvery  = time.Second     // the same after a wake-up: most wake-ups are for something else
	retryWait   = time.Second     // after the operations could not be read

	// The wait after a failed step doubles between these bounds.
	retryMin = time.Second
	retryMax = time.Minute
)

// Backoff is the wait after a number of failures in a row.
func Backoff(failures int) time.Duration {
	return min(retryMin<<min(max(failures-1, 0), 10), retryMax)
}

// Operation is a running operation. Failures counts the steps that failed in a row.
type Operation[ID any] struct {
	ID       ID
	Failures int
}

// Steps are those of one kind of operation, called What, e.g. "redrive".
type Steps[ID any] struct {
	What string
	// Running returns the operations that are running.
	Running func(ctx context.Context) ([]Operation[ID], error)
	// Step takes the next step of one, and returns the time until it may take another; running is false if there will be none.
	Step func(ctx context.Context, id ID) (running bool, wait time.Duration, err error)
	// Fail records that a step failed, when so many had failed before it. It returns how many have now, and reports whether the
	// operation has failed for good.
	Fail func(ctx context.Context, o Operation[ID], cause string) (failures int, ended bool, err error)
	// Woken signals that there may be work; nil if nothing does.
	Woken <-chan struct{}
}

// Run takes the steps of all running operations, started by any process, until ctx ends. It polls for them every 5 seconds, and at
// once when Woken signals work, but at most once a second. A step that fails does not delay other operations: its cause is
// recorded and logged, and the step is tried again with backoff, up to MaxFailures times.
func Run[ID any](ctx context.Context, s Steps[ID], logger *slog.Logger) {
	d := driver[ID]{Steps: s, logger: logger}
	for ctx.Err() == nil {
		d.looked = time.Now()
		wait, err := d.round(ctx)
		if err != nil && ctx.Err() == nil {
			if wait = retryWait; !d.failing {
				logger.Warn(s.What+"s cannot go on, and are tried again", "error", err)
			}
		}
		d.failing = err != nil
		if d.wait(ctx, wait) != nil {
			return
		}
	}
}

// driver is the state of one Run call.
type driver[ID any] struct {
	Steps[ID]
	logger  *slog.Logger
	looked  time.Time
	failing bool
}

// wait waits for the next poll.
func (d *driver[ID]) wait(ctx context.Context, wait time.Duration) error {
	if d.failing || wait < wokenEvery {
		return Wait(ctx, wait, nil)
	}
	begin := time.Now()
	if err := Wait(ctx, wait, d.Woken); err != nil || time.Since(begin) >= wait {
		return err
	}
	return Wait(ctx, wokenEvery-time.Since(d.looked), nil)
}

// round takes one step of each running operation and returns how long to wait before the next round. An error concerns the
// store, not a single operation.
func (d *driver[ID]) round(ctx context.Context) (time.Duration, error) {
	running, err := d.Running(ctx)
	if err != nil {
		return 0, err
	}
	next := idleEvery
	for _, o := range running {
		wait, err := d.step(ctx, o)
		if err != nil {
			return 0, err
		}
		next = min(next, wait)
	}
	return next, nil
}

// step takes one step and returns how long to wait before the next one, or records that the step has failed.
func (d *driver[ID]) step(ctx context.Context, o Operation[ID]) (time.Duration, error) {
	bounded, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	running, wait, err := d.Step(bounded, o.ID)
	switch {
	case err == nil && running:
		return wait, nil
	case err == nil:
		return idleEvery, nil
	case ctx.Err() != nil:
		return 0, err
	case bounded.Err() != nil:
		err = fmt.Errorf("it took longer than %s: %w", stepTimeout, err)
	}
	noting, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	failures, ended, noteErr := d.Fail(noting, o, err.Error())
	if noteErr != nil {
		return 0, err
	}
	if ended {
		d.logger.Error(d.What+" has failed; fix the cause and start another one", d.What, o.ID, "error", err)
		return idleEvery, nil
	}
	d.logger.Warn("step of a "+d.What+" has failed, and is tried again", d.What, o.ID, "failures", failures, "error", err)
	return Backoff(failures), nil
}

// Wait waits for a duration, or until woken.
func Wait(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
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

// Woken subscribes to the wake-ups of a store that has them; the returned function ends the subscription.
func Woken(store any) (<-chan struct{}, func()) {
	if w, ok := store.(interface {
		Subscribe(takes func(topic string) bool) (<-chan struct{}, func())
	}); ok {
		return w.Subscribe(nil)
	}
	return nil, func() {}
}
