package brokertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// testUnavailable checks that a stopped broker is reported as unavailable, and used again after its restart.
func testUnavailable(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	msgs := batch(s.Topic, 10, 1, "a", "")
	s.publish(t, msgs[:2])
	d := r.take(t, 1)[0]
	d.apply(t)
	r.breaks()
	r.ledger.allowAgain()
	s.Stop(t)
	within(t, "Receive and Ack while the broker is away", func() {
		got, err := r.receive(t.Context(), t, 10)
		for ; err == nil; got, err = r.receive(t.Context(), t, 10) {
			for _, d := range got { // the member had them already
				d.apply(t)
				d.settling()
				_ = d.Ack(t.Context()) // if it fails, they are redelivered
			}
		}
		if postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Errorf("receive: %v, want an error made by Unavailable", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d.settling()
		err = d.Ack(ctx)
		if err != nil && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acknowledge: %v, want an error made by Unavailable", err)
		}
	})
	within(t, "Subscribe while the broker is away", func() {
		if sub, err := r.member.Subscribe(t.Context()); err == nil {
			t.Error("Subscribe succeeded while the broker is away")
			_ = sub.Close(t.Context())
		} else if postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Errorf("subscribe: %v, want an error made by Unavailable", err)
		}
	})
	s.Start(t)
	r.start(t, nil)
	s.publish(t, msgs[2:])
	r.ledger.awaitApplied(t, msgs)
}

func testRestartWhileReading(t *testing.T, s *inbound) {
	st := &stream{s: s, keys: []string{"a", "b", "c", ""}}
	one, two := s.join(t, "g"), s.join(t, "g")
	one.start(t, nil)
	two.start(t, nil)
	for range 2 {
		st.publish(t, 20)
		one.ledger.await(t, "some work to be done", func() bool { return one.ledger.applied(st.all[len(st.all)-60]) > 0 })
		one.breaks()
		two.breaks()
		one.ledger.allowAgain()
		s.Stop(t)
		one.ledger.allowAgain() // also messages that arrived in the meantime
		s.Start(t)
		st.publish(t, 5)
	}
	one.ledger.awaitApplied(t, st.all)
}

// testReceiveCancelled checks that a canceled Receive loses no messages.
func testReceiveCancelled(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := r.receive(ctx, t, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("receive with a cancelled context: %d deliveries and %v, want context.Canceled", len(got), err)
	}
	st := &stream{s: s, keys: []string{"a", "b", ""}}
	received := 0
	for range 30 {
		st.publish(t, 1)
		for deadline := time.Now().Add(patience); received < len(st.all); {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Microsecond)
			got, err := r.receive(ctx, t, 10)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("receive: %v, want context.DeadlineExceeded", err)
			}
			if err != nil && time.Now().After(deadline) {
				t.Fatalf("%d of %d messages came in %s", received, len(st.all), patience)
			}
			for _, d := range got {
				d.apply(t)
				d.ack(t.Context(), t)
				received++
			}
			if received >= len(st.all)-2 {
				break // the next ones are published while some are in flight
			}
		}
	}
	stop := r.start(t, nil)
	r.ledger.awaitApplied(t, st.all)
	stop()
}

func testSubscriptionClosed(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	s.publish(t, batch(s.Topic, 1, 1, "a"))
	r.leave(t)
	r.leave(t)
	for range 2 {
		if got, err := r.receive(t.Context(), t, 1); !errors.Is(err, postrider.ErrSubscriptionClosed) {
			t.Errorf("receive after close: %d deliveries and %v, want ErrSubscriptionClosed", len(got), err)
		}
	}
}

func testClosedWhileWaiting(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	ended := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		close(waiting)
		_, err := r.receive(t.Context(), t, 1)
		ended <- err
	}()
	<-waiting
	within(t, "Close while Receive waits", func() { r.leave(t) })
	within(t, "Receive when closed", func() {
		if err := <-ended; !errors.Is(err, postrider.ErrSubscriptionClosed) {
			t.Errorf("receive while the subscription was closed: %v, want ErrSubscriptionClosed", err)
		}
	})
}
