package brokertest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// inFlight returns how many of n messages a member can have unsettled.
func (s *inbound) inFlight(n int) int {
	if s.features.OneInFlight != "" {
		return 1
	}
	return n
}

func testUnsettled(t *testing.T, s *inbound) {
	n := s.inFlight(6)
	r := s.join(t, "g")
	s.publish(t, batch(s.Topic, n, 1, "a", "b", ""))
	first := r.take(t, n)
	r.leave(t)
	for _, d := range first {
		if !d.lost() {
			t.Errorf("%s is not lost, and its subscription is closed", describe(d))
		}
		_ = d.Ack(t.Context()) // does nothing
	}
	r = s.join(t, "g")
	again := r.take(t, n)
	if got, want := idsOf(again), idsOf(first); !slices.Equal(got, want) {
		t.Errorf("after the close came %v, want %v", got, want)
	}
	for _, d := range again {
		d.ack(t.Context(), t)
	}
	r.leave(t)
	s.nothingLeft(t, "g", "a", "b", "")
}

// testSomeSettled settles every other message. The suite checks that these are not redelivered.
func testSomeSettled(t *testing.T, s *inbound) {
	n := s.inFlight(9)
	r := s.join(t, "g")
	s.publish(t, batch(s.Topic, n, 1, "a", "b", ""))
	var left []*delivery
	for i, d := range r.take(t, n) {
		d.apply(t)
		if i%2 == 1 {
			d.ack(t.Context(), t)
		} else {
			left = append(left, d)
		}
	}
	r.leave(t)
	r = s.join(t, "g")
	stop := r.start(t, nil)
	r.ledger.await(t, "what was not settled to come again", func() bool {
		return !slices.ContainsFunc(left, func(d *delivery) bool { return r.ledger.applied(d.Message) < 2 })
	})
	stop()
	r.leave(t)
	s.nothingLeft(t, "g", "a", "b", "")
}

func testSettledConcurrently(t *testing.T, s *inbound) {
	keys := []string{"a", "b", "c", "d", ""}
	const rounds = 6
	n := s.inFlight(50)
	r := s.join(t, "g")
	s.publish(t, batch(s.Topic, rounds*n, 1, keys...))
	for range rounds {
		got := r.take(t, n)
		rand.Shuffle(n, func(i, j int) { got[i], got[j] = got[j], got[i] })
		var settling sync.WaitGroup
		for _, d := range got {
			settling.Go(func() { d.ack(t.Context(), t) })
		}
		settling.Wait()
	}
	r.leave(t)
	s.nothingLeftFor(t, "g", r.caps.AckWait*3/2, keys...)
}

// testSettledWhileClosing checks that a settlement is effective if it reported success before the delivery was lost.
func testSettledWhileClosing(t *testing.T, s *inbound) {
	n := s.inFlight(40)
	r := s.join(t, "g")
	s.publish(t, batch(s.Topic, n, 1, "a", "b", ""))
	var settling sync.WaitGroup
	for _, d := range r.take(t, n) {
		d.apply(t)
		settling.Go(func() { d.ack(t.Context(), t) })
	}
	settling.Go(func() { r.leave(t) })
	within(t, "settling while closing", settling.Wait)
	r = s.join(t, "g")
	stop := r.start(t, nil)
	marks := batch(s.Topic, 3, int64(n)+1, "a", "b", "")
	for _, m := range marks {
		m.AggregateVersion = r.ledger.lastOf(m.Key) + 1
	}
	s.publish(t, marks)
	r.ledger.awaitApplied(t, marks)
	stop()
}

// lastOf returns the highest number of a key that was worked on.
func (l *ledger) lastOf(key string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[key]
}

// testSettledTwice checks that only the first settlement counts.
func testSettledTwice(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	msgs := batch(s.Topic, 3, 1, "a")
	settle := func(d *delivery, verbs ...func(ctx context.Context) error) {
		t.Helper()
		for _, verb := range verbs {
			if err := verb(t.Context()); err != nil {
				t.Errorf("settle once more: %v", err)
			}
		}
	}
	next := func(i int) *delivery {
		t.Helper()
		if i >= 0 {
			s.publish(t, msgs[i:i+1])
		}
		return r.take(t, 1)[0]
	}
	nack := func(d *delivery) func(context.Context) error {
		return func(ctx context.Context) error { return d.Nack(ctx, 0) }
	}
	reject := func(d *delivery) func(context.Context) error {
		return func(ctx context.Context) error { return d.Reject(ctx, "test") }
	}
	d := next(0)
	d.ack(t.Context(), t)
	settle(d, nack(d), reject(d), d.Ack, d.Extend)
	d = next(1)
	d.reject(t.Context(), t)
	settle(d, nack(d), d.Ack)
	d = next(2)
	d.nack(t.Context(), t, 0)
	settle(d, d.Ack, reject(d), nack(d))
	again := next(-1)
	if again.Message.ID != d.Message.ID {
		t.Errorf("after the nack of %s came %s", d.Message.ID, again.Message.ID)
	}
	settle(d, d.Ack, reject(d)) // the old delivery is settled
	again.ack(t.Context(), t)
	r.leave(t)
	s.nothingLeft(t, "g", "a")
}

// testSettledTooLate settles with a context that has ended. What then reports an error, or is nacked, is redelivered while the
// subscription goes on: a consumer forgets a delivery once it has settled it, with or without success.
func testSettledTooLate(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i, m := range batch(s.Topic, 3, 1, "a") {
		s.publish(t, []*postrider.Message{m})
		d := r.take(t, 1)[0]
		d.settling()
		var err error
		switch i {
		case 0:
			err = d.Ack(ended)
		case 1:
			err = d.Reject(ended, "test")
		default:
			err = d.Nack(ended, 0)
		}
		if d.check(t, err); err == nil && i < 2 {
			continue
		}
		again := r.take(t, 1)[0]
		if again.Message.ID != m.ID {
			t.Errorf("%s comes instead of %s", describe(again), m.ID)
		}
		again.ack(t.Context(), t)
	}
	r.leave(t)
	s.nothingLeft(t, "g", "a")
}

// testNack nacks every message twice.
func testNack(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	msgs := batch(s.Topic, 30, 1, "a", "b", "")
	s.publish(t, msgs)
	refused := make(map[string]int)
	stop := r.start(t, func(d *delivery) bool {
		refused[d.Message.ID]++
		return refused[d.Message.ID] <= 2
	})
	r.ledger.awaitApplied(t, msgs)
	stop()
	r.leave(t)
	s.nothingLeft(t, "g", "a", "b", "")
}

func testNackDelay(t *testing.T, s *inbound) {
	const delay = 2 * time.Second
	r := s.join(t, "g")
	s.publish(t, batch(s.Topic, 1, 1, "a"))
	d := r.take(t, 1)[0]
	began := time.Now()
	d.nack(t.Context(), t, delay)
	s.publish(t, batch(s.Topic, 1, 1, "b"))
	inTime := time.Since(began) < delay/2
	for n, d := range r.take(t, s.inFlight(2)) {
		if d.Message.Key == "b" {
			continue
		}
		if early := delay - time.Since(began); early > 20*time.Millisecond {
			t.Errorf("the message came %s before its time", early)
		}
		if n == 0 && inTime && !r.caps.Ordered {
			t.Error("another message waited for one that was nacked with a delay")
		}
	}
}

// testNackKeepsOrder nacks messages at random, in two members.
func testNackKeepsOrder(t *testing.T, s *inbound) {
	keys := []string{"a", "b", "c", "d"}
	msgs := batch(s.Topic, 200, 1, keys...)
	one, two := s.join(t, "g"), s.join(t, "g")
	s.publish(t, msgs)
	refuse := func(*delivery) bool { return rand.IntN(6) == 0 }
	stop1, stop2 := one.start(t, refuse), two.start(t, refuse)
	one.ledger.awaitApplied(t, msgs)
	stop1()
	stop2()
	one.leave(t)
	two.leave(t)
	s.nothingLeft(t, "g", keys...)
}

// testNackLosesQueued checks that messages after a nacked one are lost when Nack returns, and are redelivered.
func testNackLosesQueued(t *testing.T, s *inbound) {
	n := s.inFlight(6)
	nacked := n / 3
	msgs := batch(s.Topic, 6, 1, "a")
	r := s.join(t, "g")
	s.publish(t, msgs)
	got := r.take(t, n)
	got[nacked].nack(t.Context(), t, 0)
	for _, d := range got[nacked+1:] {
		if !d.lost() {
			t.Errorf("message %s is not lost, and %s before it was nacked", d.Message.ID, got[nacked].Message.ID)
		}
		d.ack(t.Context(), t) // does nothing
	}
	for _, d := range got[:nacked] {
		if !d.lost() {
			d.apply(t)
			d.ack(t.Context(), t)
		}
	}
	stop := r.start(t, nil)
	r.ledger.awaitApplied(t, msgs)
	stop()
	r.leave(t)
	s.nothingLeft(t, "g", "a")
}

func testReject(t *testing.T, s *inbound) {
	n := s.inFlight(6)
	r := s.join(t, "g")
	s.publish(t, batch(s.Topic, n, 1, "a", "b"))
	for i, d := range r.take(t, n) {
		if i%2 == 0 {
			d.reject(t.Context(), t)
		} else {
			d.ack(t.Context(), t)
		}
	}
	r.leave(t)
	s.nothingLeft(t, "g", "a", "b")
}

// testExtend holds a message for longer than AckWait and keeps extending it.
func testExtend(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	if r.caps.AckWait == 0 {
		t.Log("the broker waits as long as the connection lives")
	}
	s.publish(t, batch(s.Topic, 1, 1, "a"))
	d := r.take(t, 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), r.caps.AckWait*2+time.Millisecond)
	defer cancel()
	var extending sync.WaitGroup
	stalled := false // this machine was too slow to extend in time
	extending.Go(func() {
		tick := time.NewTicker(max(r.caps.AckWait/5, time.Millisecond))
		defer tick.Stop()
		for last := d.at; ctx.Err() == nil; <-tick.C {
			stalled = stalled || r.caps.AckWait > 0 && time.Since(last) > r.caps.AckWait/2
			if err := d.Extend(t.Context()); err != nil {
				t.Errorf("extend: %v", err)
			}
			last = time.Now()
		}
	})
	got, err := r.receive(ctx, t, 1)
	extending.Wait()
	switch {
	case stalled:
		t.Logf("this machine did not extend twice in %s; nothing is found out", r.caps.AckWait)
		return
	case err == nil:
		t.Errorf("%s comes again although its time was extended", describe(got[0]))
	case d.lost():
		t.Error("the message is lost although its time was extended")
	}
	d.settling()
	if err := d.Ack(t.Context()); err != nil {
		t.Errorf("acknowledge: %v", err)
	}
	r.leave(t)
	s.nothingLeft(t, "g", "a")
}

func testNotSettledInTime(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	if r.caps.AckWait == 0 {
		t.Log("the broker waits as long as the connection lives")
		return
	}
	s.publish(t, batch(s.Topic, 1, 1, "a"))
	first := r.take(t, 1)[0]
	again := r.take(t, 1)[0]
	if first.Message.ID != again.Message.ID {
		t.Errorf("message %s came instead of %s", again.Message.ID, first.Message.ID)
	}
	again.ack(t.Context(), t)
	r.leave(t)
	s.nothingLeft(t, "g", "a")
}
