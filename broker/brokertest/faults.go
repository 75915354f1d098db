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

// testRefusedAtRandom has several calls meet refusals at once, over and over.
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
	s.trouble(t, "drop", 12, func(int) { s.Drop() })
}

func testRestart(t *testing.T, s *suite) {
	s.trouble(t, "restart", 3, func(int) {
		s.Stop(t)
		s.Start(t)
	})
}

// trouble publishes batch after batch and makes trouble in the middle of them, until it was made the given number of times.
func (s *suite) trouble(t *testing.T, topic string, times int, make func(n int)) {
	var all []*postrider.Message
	trouble := newMischief(times, make)
	defer trouble.wait()
	for n := int64(0); !trouble.over(); n++ {
		msgs := batch(topic, 600, 1+n*200, "a", "b", "")
		all = append(all, msgs...)
		trouble.start()
		s.deliver(t.Context(), t, msgs)
	}
	after := batch(topic, 9, 1_000_000, "a", "b", "")
	s.deliver(t.Context(), t, after)
	s.checkArrived(t, topic, append(all, after...))
}

// mischief is made in the background, once at a time.
type mischief struct {
	left    int
	n       int
	make    func(n int)
	running chan struct{}
}

func newMischief(times int, make func(n int)) *mischief {
	return &mischief{left: times, make: make}
}

// start makes trouble in the background, unless the trouble made before is not over.
func (m *mischief) start() {
	if m.running != nil {
		select {
		case <-m.running:
		default:
			return
		}
	}
	if m.left == 0 {
		return
	}
	m.left--
	m.n++
	running, n := make(chan struct{}), m.n
	m.running = running
	go func() {
		defer close(running)
		m.make(n)
	}()
}

func (m *mischief) over() bool {
	if m.left > 0 {
		return false
	}
	select {
	case <-m.running:
		return true
	default:
		return false
	}
}

func (m *mischief) wait() {
	if m.running != nil {
		<-m.running
	}
}

// testStopped checks that a broker that is away is reported as unavailable, for every message, and found again.
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

// testNoAnswer checks that a broker that has fallen silent is given up.
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
	if took := time.Since(began); took > 600*time.Millisecond {
		t.Errorf("Publish returned %s after it began, its context ended after 50ms", took)
	}
	s.Resume()
	s.deliver(t.Context(), t, msgs[3:])
	s.checkArrived(t, "waiting", msgs)
}
