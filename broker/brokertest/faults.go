package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

func testRefused(t *testing.T, s *suite) {
	msgs := batch("refused", 30, 1, "a", "b", "c")
	s.Refuse(ids(msgs[12], msgs[1])...) // the fifth of a and the first of b
	errs := s.publish(t.Context(), t, msgs)
	for i, m := range msgs {
		wantErr := m.Key == "b" || m.Key == "a" && m.AggregateVersion >= 5
		if (errs[i] != nil) != wantErr {
			t.Errorf("message %s: error %v, want one: %v", m.ID, errs[i], wantErr)
		}
	}
	s.deliver(t.Context(), t, failedOf(msgs, errs))
	s.checkArrived(t, "refused", msgs)
}

func testRefusedUnkeyed(t *testing.T, s *suite) {
	msgs := batch("unkeyed", 20, 1, "")
	s.Refuse(ids(msgs[0], msgs[7])...)
	errs := s.publish(t.Context(), t, msgs)
	for i, err := range errs {
		if wantErr := i == 0 || i == 7; (err != nil) != wantErr {
			t.Errorf("message %s: error %v, want one: %v", msgs[i].ID, err, wantErr)
		}
	}
	s.deliver(t.Context(), t, failedOf(msgs, errs))
	s.checkArrived(t, "unkeyed", msgs)
}

// testRefusedAtRandom makes several concurrent calls meet rejections repeatedly.
func testRefusedAtRandom(t *testing.T, s *suite) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var all []*postrider.Message
	var calls sync.WaitGroup
	for c := range 4 {
		own := batch("random", 400, 1, fmt.Sprintf("x%d", c), fmt.Sprintf("y%d", c), fmt.Sprintf("z%d", c), "")
		for i, m := range own {
			m.ID = fmt.Sprintf("%d-%d", c, i)
		}
		all = append(all, own...)
		random := rand.New(rand.NewPCG(seed, uint64(c)))
		calls.Go(func() {
			for range 10 {
				s.Refuse(own[random.IntN(len(own))].ID)
			}
			s.deliver(t.Context(), t, own)
		})
	}
	calls.Wait()
	s.checkArrived(t, "random", all)
}

func testLostAcks(t *testing.T, s *suite) {
	msgs := batch("acks", 60, 1, "a", "b", "")
	s.LoseAcks(ids(msgs[0], msgs[10], msgs[32], msgs[59])...)
	s.deliver(t.Context(), t, msgs)
	s.checkArrived(t, "acks", msgs)
}

func testLostMessages(t *testing.T, s *suite) {
	msgs := batch("lost", 60, 1, "a", "b", "")
	s.LoseMessages(ids(msgs[3], msgs[10], msgs[32], msgs[59])...)
	if s.deliver(t.Context(), t, msgs) == 0 {
		t.Error("messages were lost on the way, and none was reported as failed")
	}
	s.checkArrived(t, "lost", msgs)
}

func testDrop(t *testing.T, s *suite) {
	s.publishThrough(t, "drop", 12, func() { s.Drop() })
}

func testRestart(t *testing.T, s *suite) {
	s.publishThrough(t, "restart", 3, func() {
		s.Stop(t)
		s.Start(t)
	})
}

// publishThrough publishes batch after batch and runs trouble in the middle, the given number of times.
func (s *suite) publishThrough(t *testing.T, topic string, times int, trouble func()) {
	var all []*postrider.Message
	var running chan struct{} // closed when the last trouble is over
	over := func() bool {
		select {
		case <-running:
			return true
		default:
			return running == nil
		}
	}
	for n := int64(0); times > 0 || !over(); n++ {
		msgs := batch(topic, 600, 1+n*200, "a", "b", "")
		all = append(all, msgs...)
		if times > 0 && over() {
			times--
			done := make(chan struct{})
			running = done
			go func() {
				defer close(done)
				trouble()
			}()
			defer func() { <-done }()
		}
		s.deliver(t.Context(), t, msgs)
	}
	s.checkArrived(t, topic, all)
}

// testStopped checks that a stopped broker is reported as unavailable for every message, and used again after its
// restart.
func testStopped(t *testing.T, s *suite) {
	msgs := batch("stopped", 30, 1, "a", "b", "")
	s.mustAccept(t.Context(), t, msgs[:15])
	s.Stop(t)
	within(t, "Publish to a stopped broker", func() {
		for i, err := range s.publish(t.Context(), t, msgs[15:]) {
			if o := postrider.OutcomeOf(err); o.Kind != postrider.BrokerUnavailable {
				t.Errorf("message %s: %v, want unavailable", msgs[15+i].ID, err)
			}
		}
	})
	s.Start(t)
	s.deliver(t.Context(), t, msgs[15:])
	s.checkArrived(t, "stopped", msgs)
}

// testNoAnswer checks that a silent broker is reported as unavailable.
func testNoAnswer(t *testing.T, s *suite) {
	msgs := batch("silent", 30, 1, "a", "b", "")
	s.mustAccept(t.Context(), t, msgs[:3])
	s.Pause()
	within(t, "Publish to a silent broker", func() {
		for i, err := range s.publish(t.Context(), t, msgs[3:]) {
			if o := postrider.OutcomeOf(err); o.Kind != postrider.BrokerUnavailable {
				t.Errorf("message %s: %v, want unavailable", msgs[3+i].ID, err)
			}
		}
	})
	s.Resume()
	s.deliver(t.Context(), t, msgs[3:])
	s.checkArrived(t, "silent", msgs)
}

func testCancelledBefore(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	msgs := batch("cancelled", 6, 1, "a", "")
	for i, err := range s.publish(ctx, t, msgs) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("message %s: %v, want context.Canceled", msgs[i].ID, err)
		}
	}
	s.checkArrived(t, "cancelled", nil)
}

func testCancelledWhileWaiting(t *testing.T, s *suite) {
	msgs := batch("waiting", 300, 1, "a", "b", "")
	s.mustAccept(t.Context(), t, msgs[:3])
	s.Pause()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("test"))
	defer cancel()
	began := time.Now()
	for i, err := range s.publish(ctx, t, msgs[3:]) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("message %s: %v, want context.DeadlineExceeded", msgs[3+i].ID, err)
		}
	}
	if took := time.Since(began); took > 2*time.Second { // less than the timeout for answers
		t.Errorf("Publish returned %s after it began, its context ended after 50ms", took)
	}
	s.Resume()
	s.deliver(t.Context(), t, msgs[3:])
	s.checkArrived(t, "waiting", msgs)
}
