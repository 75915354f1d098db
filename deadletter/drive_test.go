package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// runs calls deadletter.Store.Run in a synctest bubble until the test ends, and returns a function that reads its log.
func runs(t *testing.T, s store.Records) (log func() string) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		deadletter.New(s).Run(ctx, slog.New(slog.NewTextHandler(&out, nil)))
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return func() string {
		synctest.Wait()
		return out.String()
	}
}

func shown(t *testing.T, s store.Records, id int64) store.Redrive {
	t.Helper()
	r, err := deadletter.New(s).ShowRedrive(t.Context(), id)
	must(t, err)
	return r
}

func TestRunDrivesWhatOthersStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		s := withDead(t, memory.Config{Fault: func(string, bool) error {
			if away.Load() {
				return errors.New("the database is away")
			}
			return nil
		}}, 30)
		log := runs(t, s)
		first, second := start(t, s, 5), start(t, s, 0.5)
		away.Store(true)
		time.Sleep(5 * time.Second)
		away.Store(false)
		time.Sleep(time.Minute)
		for _, id := range []int64{first.ID, second.ID} {
			if r := shown(t, s, id); r.State != store.RedriveFinished {
				t.Errorf("redrive %+v", r)
			}
		}
		if n := strings.Count(log(), "redrives cannot go on"); n != 1 || strings.Contains(log(), "step of a redrive") {
			t.Errorf("one trouble was logged %d times: %s", n, log())
		}
	})
}

// stubborn fails every step of one redrive.
type stubborn struct {
	*memory.Store
	id    int64
	steps int
	hang  bool // the step hangs until its timeout
}

func (s *stubborn) View(ctx context.Context, op store.Operation, f func(store.Reader) error) error {
	var read store.Redrive
	err := s.Store.View(ctx, op, func(r store.Reader) error { return f(watched{r, &read}) })
	if op.Method != "StepRedrive" || err != nil || read.ID != s.id || read.State != store.RedriveRunning || read.NextAt.After(time.Now()) {
		return err
	}
	if s.steps++; s.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("letter 1 has no history")
}

// watched keeps the redrive that was read.
type watched struct {
	store.Reader
	read *store.Redrive
}

func (w watched) Redrive(ctx context.Context, id int64) (r store.Redrive, err error) {
	r, err = w.Reader.Redrive(ctx, id)
	*w.read = r
	return r, err
}

func TestRedriveThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{Store: withDead(t, memory.Config{}, 20)}
		// The filter of the failing redrive leaves dead letters for the other.
		bad, err := deadletter.New(s).StartRedrive(t.Context(), deadletter.Plan{Filter: store.DeadFilter{MessageID: "m-0"}, By: "olga"})
		must(t, err)
		s.id = bad.ID
		log := runs(t, s)
		good := start(t, s.Store, 0)
		time.Sleep(3 * time.Second)
		if r := shown(t, s, good.ID); r.State != store.RedriveFinished || r.Done != 20 {
			t.Errorf("redrive next to one that fails: %+v", r)
		}
		r := shown(t, s, bad.ID)
		if r.State != store.RedriveRunning || r.Failures == 0 || r.Cause != "letter 1 has no history" {
			t.Errorf("redrive that fails: %+v", r)
		}
		time.Sleep(8 * time.Minute)
		if r := shown(t, s, bad.ID); r.State != store.RedriveRunning {
			t.Errorf("redrive after eight minutes of failures: %+v, want it running", r)
		}
		time.Sleep(12 * time.Minute)
		if r := shown(t, s, bad.ID); r.State != store.RedriveFailed || r.Failures != store.MaxRedriveFailures || s.steps != r.Failures {
			t.Errorf("redrive after %d steps that failed: %+v", s.steps, r)
		}
		if n := strings.Count(log(), "letter 1 has no history"); n != store.MaxRedriveFailures || strings.Count(log(), `"redrive has failed;`) != 1 {
			t.Errorf("%d failures were logged, want %d and the end: %s", n, store.MaxRedriveFailures, log())
		}
		if again, err := deadletter.New(s).Drive(t.Context(), bad.ID, nil); err != nil || again.State != store.RedriveFailed {
			t.Errorf("driven after it has failed: %+v, %v", again, err)
		}
	})
}

func TestRedriveThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{Store: withDead(t, memory.Config{}, 20), hang: true}
		bad, good := start(t, s.Store, 0), start(t, s.Store, 0)
		s.id = bad.ID
		runs(t, s)
		time.Sleep(3 * time.Minute)
		if r := shown(t, s, good.ID); r.State != store.RedriveFinished {
			t.Errorf("redrive next to one that hangs: %+v", r)
		}
		if r := shown(t, s, bad.ID); r.Failures == 0 || !strings.Contains(r.Cause, "longer than 2m0s") {
			t.Errorf("redrive that hangs: %+v", r)
		}
	})
}

func TestStopIsNoFailureOfARedrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{Store: withDead(t, memory.Config{}, 1), hang: true}
		r := start(t, s.Store, 0)
		s.id = r.ID
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		deadletter.New(s).Run(ctx, slog.New(slog.DiscardHandler))
		if r := shown(t, s, r.ID); r.Failures != 0 {
			t.Errorf("after a stop: %+v, want no failures", r)
		}
	})
}

func TestRunLooksSeldomAndIsWokenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		s := withDead(t, memory.Config{Fault: func(op string, done bool) error {
			if op == "ListRedrives" && !done {
				looks.Add(1)
			}
			return nil
		}}, 20)
		runs(t, s)
		time.Sleep(time.Minute + time.Second)
		if n := looks.Swap(0); n > 14 {
			t.Errorf("%d looks for redrives in an idle minute, want one every five seconds", n)
		}
		began := time.Now()
		r := start(t, s, 0)
		synctest.Wait()
		if r := shown(t, s, r.ID); r.State != store.RedriveFinished || time.Since(began) > 0 {
			t.Errorf("a redrive that was started in the same process: %+v, after %s", r, time.Since(began))
		}
		looks.Store(0)
		for range 600 { // a process that publishes
			time.Sleep(100 * time.Millisecond)
			s.Wake()
		}
		if n := looks.Load(); n > 62 {
			t.Errorf("%d looks for redrives in a busy minute, want one a second", n)
		}
		// Redrives that other processes start are found without a wake-up.
		_, err := deadletter.New(s.Reopen()).StartRedrive(t.Context(), deadletter.Plan{By: "otto"})
		must(t, err)
		time.Sleep(6 * time.Second)
		for r, err := range deadletter.New(s).ListRedrives(t.Context(), store.RedriveRunning) {
			t.Errorf("still running: %+v, %v", r, err)
		}
	})
}

// TestRateThatIsNextToNone: the wait for the next dead letter exceeds the maximum time.Duration.
func TestRateThatIsNextToNone(t *testing.T) {
	t.Parallel()
	s := withDead(t, memory.Config{}, 3)
	r := start(t, s, 1e-11)
	for range 3 {
		var wait time.Duration
		var err error
		if r, wait, err = deadletter.New(s).StepRedrive(t.Context(), r.ID, 0); err != nil || r.Done != 1 || wait < time.Hour {
			t.Errorf("one letter in 3,000 years: %d done, %s to wait, %v", r.Done, wait, err)
		}
	}
}

// unseen is a store that cannot show redrives.
type unseen struct{ *memory.Store }

func (u unseen) View(ctx context.Context, op store.Operation, f func(store.Reader) error) error {
	if op.Method == "ShowRedrive" {
		return errors.New("the database is away")
	}
	return u.Store.View(ctx, op, f)
}

// TestDriveThatEndsUnseen: the final outcome of the messages cannot be read.
func TestDriveThatEndsUnseen(t *testing.T) {
	t.Parallel()
	s := withDead(t, memory.Config{}, 2)
	end, err := deadletter.New(unseen{s}).Drive(t.Context(), start(t, s, 0).ID, nil)
	if err == nil || end.State != store.RedriveFinished || end.Done != 2 {
		t.Errorf("ended as %+v, %v", end, err)
	}
}
