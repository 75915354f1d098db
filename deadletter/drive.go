package deadletter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/drive"
	"github.com/postrider/postrider/store"
)

// stepLimit is how many dead letters are sent back in one transaction.
const stepLimit = 500

// Drive drives a redrive until it has ended, and returns its final state. Other processes may drive it too. It calls
// progress, unless nil, after each step.
//
// When ctx ends, its guard stops the redrive (ErrStopped), or a step fails, the redrive stays where it is so that another process
// can continue it, and Drive returns it as of the last step: the zero Redrive when there was none. An error together with a redrive
// that has ended says that the outcome of its messages could not be read.
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
		if r.Stopped() != "" {
			return r, fmt.Errorf("redrive %d: %w: %s", id, ErrStopped, r.Stopped())
		}
		if r.State != store.RedriveRunning {
			shown, err := s.ShowRedrive(ctx, id)
			if err != nil {
				return r, err
			}
			return shown, nil
		}
		if err := drive.Wait(ctx, wait, nil); err != nil {
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
	woken, end := drive.Woken(s.records)
	defer end()
	drive.Run(ctx, drive.Steps[int64]{What: "redrive", Running: s.running, Step: s.stepOf, Fail: s.failOf, Woken: woken}, logger)
}

// running returns the redrives that are running.
func (s Store) running(ctx context.Context) (running []drive.Operation[int64], err error) {
	for r, err := range s.ListRedrives(ctx, store.RedriveRunning) {
		if err != nil {
			return nil, err
		}
		running = append(running, drive.Operation[int64]{ID: r.ID, Failures: r.Failures})
	}
	return running, nil
}

func (s Store) stepOf(ctx context.Context, id int64) (running bool, wait time.Duration, err error) {
	r, wait, err := s.StepRedrive(ctx, id, stepLimit)
	if errors.Is(err, store.ErrNoRedrive) {
		return false, 0, nil
	}
	return r.State == store.RedriveRunning, wait, err
}

func (s Store) failOf(ctx context.Context, o drive.Operation[int64], cause string) (failures int, ended bool, err error) {
	r, err := s.FailRedrive(ctx, o.ID, o.Failures, cause)
	return r.Failures, r.State == store.RedriveFailed, err
}
