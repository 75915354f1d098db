package deadletter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// judged is a store in which a test says what became of the messages of a redrive, and of those sent after somebody continued it.
type judged struct {
	*memory.Store
	n, later *store.Redriven
}

func (j judged) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	return j.Store.Change(ctx, op, func(w store.Writer) error { return f(judgedWriter{w, j}) })
}

type judgedWriter struct {
	store.Writer
	says judged
}

func (j judgedWriter) Redriven(ctx context.Context, id, after int64) (store.Redriven, error) {
	found, err := j.Writer.Redriven(ctx, id, after)
	n := *j.says.n
	if after > 0 {
		n = *j.says.later
	}
	n.Found = found.Found
	return n, err
}

// guarded starts a redrive of n dead letters. step makes its next step when its time has come.
func guarded(t *testing.T, n int, p deadletter.Plan) (s deadletter.Store, became *store.Redriven, step func() store.Redrive) {
	t.Helper()
	s, became, _, step = continuable(t, n, p)
	return s, became, step
}

// continuable is guarded, also for what becomes of the messages that are sent after somebody continued the redrive.
func continuable(t *testing.T, n int, p deadletter.Plan) (s deadletter.Store, became, later *store.Redriven, step func() store.Redrive) {
	t.Helper()
	became, later = new(store.Redriven), new(store.Redriven)
	s = deadletter.New(judged{withDead(t, memory.Config{}, n), became, later})
	r, err := s.StartRedrive(t.Context(), p)
	must(t, err)
	return s, became, later, func() store.Redrive {
		t.Helper()
		for {
			before := r
			next, wait, err := s.StepRedrive(t.Context(), r.ID, 0)
			must(t, err)
			if r = next; wait == 0 || r.Done != before.Done || r.Guard.Stopped != before.Guard.Stopped {
				return r
			}
			time.Sleep(wait)
			if !before.NextAt.IsZero() && r.NextAt != before.NextAt {
				return r
			}
		}
	}
}

// TestFirstMessageFirst: the others follow when the first message was delivered; if it fails, or waits for five minutes, somebody decides.
func TestFirstMessageFirst(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		became store.Redriven
		stops  store.RedriveStop
	}{
		"delivered":                {store.Redriven{}, ""},
		"failed, and is retried":   {store.Redriven{Parked: 1, Failing: 1}, store.StoppedFirst},
		"is a dead letter again":   {store.Redriven{Dead: 1}, store.StoppedFirst},
		"waits behind another one": {store.Redriven{Parked: 1}, store.StoppedWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s, became, step := guarded(t, 10, deadletter.Plan{First: true})
				*became = store.Redriven{Parked: 1}
				if r := step(); r.Done != 1 || r.State != store.RedriveRunning {
					t.Fatalf("it begins with %d messages: %+v", r.Done, r)
				}
				*became = tt.became
				r := step()
				for time.Since(began) < 10*time.Minute && r.Done == 1 && r.Stopped() == "" {
					r = step()
				}
				if took := time.Since(began); tt.stops == store.StoppedWaiting && (took < 5*time.Minute || took > 6*time.Minute) {
					t.Errorf("it asks after %s", took)
				}
				if r.Stopped() != tt.stops || r.Done != map[bool]int64{true: 10, false: 1}[tt.stops == ""] {
					t.Fatalf("it has sent %d, stopped %q", r.Done, r.Stopped())
				}
				if tt.stops == "" {
					return
				}
				if _, err := s.Drive(t.Context(), r.ID, nil); !errors.Is(err, deadletter.ErrStopped) {
					t.Errorf("driving it: %v", err)
				}
				for shown, err := range s.ListRedrives(t.Context(), store.RedriveRunning) {
					if must(t, err); shown.Stopped() != tt.stops {
						t.Errorf("the list says %q", shown.Stopped())
					}
				}
				_, err := s.ContinueRedrive(t.Context(), r.ID, "eva")
				must(t, err)
				if _, err := s.ContinueRedrive(t.Context(), r.ID, "eva"); !errors.Is(err, deadletter.ErrNotStopped) {
					t.Errorf("a second time: %v", err)
				}
				if r := step(); r.Done != 10 || r.State != store.RedriveFinished || r.Guard.ContinuedBy != "eva" {
					t.Errorf("continued, it has sent %d: %+v", r.Done, r)
				}
			})
		})
	}
}

// TestRedriveStops: when more than the share of first attempts fail, of 20 or more; continued, it counts again.
func TestRedriveStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, became, step := guarded(t, 300, deadletter.Plan{StopAt: 0.10, Rate: 40})
		r := step()
		for r.Done < 20 {
			*became = store.Redriven{Parked: 5, Failing: 5}
			r = step()
		}
		for n := 0; r.Stopped() == "" && n < 100; n++ { // 5 of 20 and more have failed
			r = step()
		}
		if r.Stopped() != store.StoppedLimit || r.Done > 40 || r.Guard.Failed != 5 || r.Guard.Made < 20 {
			t.Fatalf("it has sent %d and is stopped %q: %+v", r.Done, r.Stopped(), r.Guard)
		}
		sent := r.Done
		time.Sleep(time.Hour)
		if r = step(); r.Done != sent {
			t.Errorf("stopped, it has sent %d more", r.Done-sent)
		}
		_, err := s.ContinueRedrive(t.Context(), r.ID, "eva")
		must(t, err)
		for n := 0; r.State == store.RedriveRunning && n < 1000; n++ { // nothing fails any more
			if r = step(); r.Stopped() != "" {
				t.Fatalf("it stops again: %+v", r.Guard)
			}
		}
		if r.State != store.RedriveFinished || r.Done != 300 {
			t.Errorf("continued: %+v", r)
		}
	})
}

// TestContinuedRedriveStopsAgain: what failed before somebody continued, and is delivered later, does not hide what fails then.
func TestContinuedRedriveStopsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, became, later, step := continuable(t, 500, deadletter.Plan{StopAt: 0.10})
		step()
		*became = store.Redriven{Parked: 50, Failing: 50}
		r := step()
		if r.Stopped() != store.StoppedLimit {
			t.Fatalf("50 of %d failed: %+v", r.Done, r.Guard)
		}
		sent := r.Done
		_, err := s.ContinueRedrive(t.Context(), r.ID, "eva")
		must(t, err)
		step()
		*became = store.Redriven{Parked: 40, Failing: 40} // the 50 were delivered meanwhile; these are new
		*later = *became
		if r = step(); r.Stopped() != store.StoppedLimit || r.Guard.Failed != 40 || r.Guard.Made != r.Done-sent {
			t.Errorf("40 of %d failed after that: stopped %q, %+v", r.Done-sent, r.Stopped(), r.Guard)
		}
	})
}

// TestBlockedRedrive: a redrive none of whose messages is attempted says so, and goes on when one is, or when somebody continues it.
func TestBlockedRedrive(t *testing.T) {
	t.Parallel()
	for name, goesOn := range map[string]func(*testing.T, deadletter.Store, *store.Redriven){
		"attempted": func(_ *testing.T, _ deadletter.Store, became *store.Redriven) { *became = store.Redriven{} },
		"continued": func(t *testing.T, s deadletter.Store, _ *store.Redriven) {
			_, err := s.ContinueRedrive(t.Context(), 1, "eva")
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, became, step := guarded(t, 300, deadletter.Plan{StopAt: 0.05})
				r := step()
				*became = store.Redriven{Parked: r.Done}
				for began := time.Now(); r.Stopped() == "" && time.Since(began) < time.Hour; {
					r = step()
				}
				if r.Stopped() != store.StoppedBlocked || r.Done != 200 || deadletter.WhyStopped(r) == "" {
					t.Fatalf("it has sent %d, stopped %q", r.Done, r.Stopped())
				}
				if goesOn(t, s, became); step().Done != 300 {
					t.Error("it does not go on")
				}
			})
		})
	}
}

// TestGuardedRedriveWaitsForAttempts: it does not send everything before the first attempts can fail.
func TestGuardedRedriveWaitsForAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, became, step := guarded(t, 1000, deadletter.Plan{StopAt: 0.05})
		for range 10 {
			r := step()
			*became = store.Redriven{Parked: r.Done}
		}
		if became.Parked > 200 {
			t.Errorf("%d messages wait for their first attempt", became.Parked)
		}
	})
}

// TestGuardsExpire: the guard of a redrive goes some time after the redrive has ended, however it did.
func TestGuardsExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, step := guarded(t, 2, deadletter.Plan{First: true})
		for r := step(); r.State == store.RedriveRunning; r = step() {
			continue
		}
		r, err := s.StartRedrive(t.Context(), deadletter.Plan{StopAt: 0.05})
		must(t, err)
		_, err = s.CancelRedrive(t.Context(), r.ID, "eva")
		must(t, err)
		for id := range int64(2) {
			if r, err := s.ShowRedrive(t.Context(), id+1); err != nil || r.Guard == nil || r.State == store.RedriveRunning {
				t.Errorf("%+v, %v", r, err)
			}
		}
		time.Sleep(31 * 24 * time.Hour)
		for id := range int64(2) {
			if r, err := s.ShowRedrive(t.Context(), id+1); err != nil || r.Guard != nil {
				t.Errorf("a month later: %+v, %v", r.Guard, err)
			}
		}
	})
}

// TestPlansOfGuards: shares are from 0 to 1, and a single message needs no guard.
func TestPlansOfGuards(t *testing.T) {
	t.Parallel()
	s := deadletter.New(withDead(t, memory.Config{}, 1))
	for _, share := range []float64{-0.1, 1, 5} {
		if _, err := s.StartRedrive(t.Context(), deadletter.Plan{StopAt: share}); err == nil {
			t.Errorf("a share of %v is accepted", share)
		}
	}
	r, err := s.StartRedrive(t.Context(), deadletter.Plan{First: true})
	if must(t, err); r.Guard != nil {
		t.Errorf("one message has a guard: %+v", r.Guard)
	}
	if _, err := s.ContinueRedrive(t.Context(), r.ID, "eva"); !errors.Is(err, deadletter.ErrNotStopped) {
		t.Errorf("continued without a guard: %v", err)
	}
}
