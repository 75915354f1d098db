package replay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/drive"
)

// Drive takes the steps of a replay until it has ended or is paused, and returns it. Other processes may drive it too. It calls progress,
// unless nil, after each step. When ctx ends, or a step fails, the replay stays where it is so that another process can continue it,
// and Drive returns it as of the last step.
func (s Store) Drive(ctx context.Context, id string, progress func(Replay)) (Replay, error) {
	var r Replay
	for {
		next, wait, err := s.Step(ctx, id)
		if err != nil {
			return r, err
		}
		if r = next; progress != nil {
			progress(r)
		}
		if r.State != Running {
			return r, nil
		}
		if err := drive.Wait(ctx, wait, nil); err != nil {
			return r, err
		}
	}
}

// Run drives all replays, started by any process, until ctx ends. Run it next to a relay, so that a replay continues when the process
// that started it is gone. Any number of processes may do so at once. It polls for replays every 5 seconds, and at once when the
// store signals work, but at most once a second. A step that fails is retried with backoff until the replay has failed.
func (s Store) Run(ctx context.Context, logger *slog.Logger) {
	woken, end := drive.Woken(s.records)
	defer end()
	drive.Run(ctx, drive.Steps[string]{What: "replay", Running: s.running, Step: s.stepOf, Fail: s.fail, Woken: woken}, logger)
}

// running returns the replays that are running.
func (s Store) running(ctx context.Context) (running []drive.Operation[string], err error) {
	for r, err := range s.List(ctx) {
		if err != nil {
			return nil, err
		}
		if r.State == Running {
			running = append(running, drive.Operation[string]{ID: r.ID, Failures: r.Failures})
		}
	}
	return running, nil
}

func (s Store) stepOf(ctx context.Context, id string) (running bool, wait time.Duration, err error) {
	r, wait, err := s.Step(ctx, id)
	if errors.Is(err, ErrNoReplay) {
		return false, 0, nil
	}
	return r.State == Running, wait, err
}
