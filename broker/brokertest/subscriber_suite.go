package brokertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// inbound is the environment of one test and what the tests share.
type inbound struct {
	SubscriberEnv
	features SubscriberFeatures
	out      *suite // used to publish

	mu     sync.Mutex
	groups map[string]*ledger
}

func newInbound(t *testing.T, h SubscriberHarness) *inbound {
	t.Helper()
	env := h.New(t)
	h.Features.checkComplete(t, env)
	return &inbound{
		SubscriberEnv: env, features: h.Features, out: &suite{Harness: Harness{Publisher: env.Publisher}},
		groups: make(map[string]*ledger),
	}
}

// publish publishes until everything is accepted.
func (s *inbound) publish(t testing.TB, msgs []*postrider.Message) {
	t.Helper()
	s.out.deliver(t.Context(), t, msgs)
}

// reader is a member that has joined its group.
type reader struct {
	s      *inbound
	member Member
	caps   postrider.SubscriberCapabilities
	sub    postrider.Subscription
	ledger *ledger

	mu   sync.Mutex
	dead bool // cut off permanently
	cut  bool // its connections were broken at least once
}

// join creates a member that joins the group. It leaves at the end of the test, unless it has left before.
func (s *inbound) join(t testing.TB, group string) *reader {
	t.Helper()
	m := s.Member(t, group)
	if s.features.NoCut == "" && (m.Cut == nil || m.Restore == nil) {
		t.Fatal("Member.Cut or Member.Restore is missing; give it, or the reason why the broker cannot have it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sub, err := m.Subscribe(ctx)
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	r := &reader{s: s, member: m, caps: m.Capabilities(), sub: sub, ledger: s.ledger(group)}
	t.Cleanup(func() { r.leave(t) })
	return r
}

// leave closes the subscription. A second call is harmless. A member that was cut off permanently must have lost its
// deliveries by itself.
func (r *reader) leave(t testing.TB) {
	t.Helper()
	if r.isDead() {
		r.awaitLost(t)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := r.sub.Close(ctx); err != nil && !r.isDead() {
		t.Errorf("close the subscription: %v", err)
	}
}

// die cuts the member off permanently.
func (r *reader) die() {
	r.mu.Lock()
	r.dead = true
	r.mu.Unlock()
	r.member.Cut()
}

// awaitLost waits until the reader has lost all its deliveries from an ordered source.
func (r *reader) awaitLost(t testing.TB) {
	t.Helper()
	deadline := time.After(patience)
	for _, d := range r.ledger.heldBy(r) {
		select {
		case <-d.Lost():
		case <-deadline:
			t.Errorf("message %s is not lost %s after its member was cut off", d.Message.ID, patience)
			return
		}
	}
}

// breaks records that the reader's connections are about to break.
func (r *reader) breaks() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
}

func (r *reader) isDead() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

// mayLoseLate reports whether others may receive the reader's messages before it has lost them.
func (r *reader) mayLoseLate() bool { return r.s.features.LostLate != "" && r.isDead() }

// receive calls Receive and checks its result.
func (r *reader) receive(ctx context.Context, t testing.TB, limit int) ([]*delivery, error) {
	t.Helper()
	got, err := r.sub.Receive(ctx, limit)
	if err != nil {
		if len(got) > 0 {
			t.Errorf("Receive returned %d deliveries together with error %v", len(got), err)
		}
		return nil, err
	}
	if len(got) < 1 || len(got) > limit {
		t.Errorf("Receive returned %d deliveries, want 1 to %d", len(got), limit)
	}
	out := make([]*delivery, len(got))
	for i, d := range got {
		out[i] = &delivery{Delivery: d, reader: r, at: time.Now()}
		r.check(t, out[i])
	}
	return out, nil
}

// check checks the rules that hold for every delivery.
func (r *reader) check(t testing.TB, d *delivery) {
	t.Helper()
	if d.Message == nil && d.Err == nil {
		t.Fatal("a delivery has neither a message nor an error")
	}
	if d.Deliveries > 1 && !d.Redelivered {
		t.Errorf("delivery number %d does not say that it is Redelivered", d.Deliveries)
	}
	if counts := r.s.features.NoDeliveryCount == ""; counts != (d.Deliveries > 0) {
		t.Errorf("Deliveries is %d, Features.NoDeliveryCount is %q", d.Deliveries, r.s.features.NoDeliveryCount)
	}
	if has := d.Position != (postrider.Position{}); has != r.caps.Positions {
		t.Errorf("position is %+v, Capabilities.Positions is %v", d.Position, r.caps.Positions)
	}
	if d.Err != nil {
		return
	}
	if d.Deliveries > 0 && d.Message.Attempt != d.Deliveries {
		t.Errorf("message %s: attempt %d, delivery number %d", d.Message.ID, d.Message.Attempt, d.Deliveries)
	}
	r.checkAgain(t, d)
}

// checkAgain compares a delivery with earlier ones of the same message. It ignores lost deliveries, because after
// Receive another member may already have received and settled the message. With LostLate, it also ignores deliveries of
// a member that was cut off.
func (r *reader) checkAgain(t testing.TB, d *delivery) {
	t.Helper()
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	ordered := r.caps.Ordered && d.Message.Key != ""
	switch {
	case d.lost():
		return
	case r.mayLoseLate():
		if ordered {
			r.ledger.heldOf(d.Message.Key)[d] = true
		}
		return
	}
	known := r.ledger.record(d.Message.ID)
	switch id := d.Message.ID; {
	case !known.seen:
	case known.settled != nil && !known.settled.mayBeUnknown():
		t.Errorf("message %s was settled and comes again", id)
	case known.position != d.Position:
		t.Errorf("message %s stands at %+v, stood at %+v before", id, d.Position, known.position)
	case !known.counted:
	case !d.Redelivered && r.s.features.NoRedeliveredFlag == "":
		t.Errorf("message %s comes again and does not say that it is Redelivered", id)
	case d.Deliveries > 0 && d.Deliveries <= known.deliveries:
		t.Errorf("message %s comes again as delivery number %d, after number %d", id, d.Deliveries, known.deliveries)
	}
	known.seen, known.counted, known.position, known.deliveries = true, true, d.Position, d.Deliveries
	if ordered {
		r.hold(t, d)
	}
}

// hold records a delivery from an ordered source, and checks that no other process holds messages of its key; with
// LostLate, except one that was cut off and has not noticed. It needs ledger.mu.
func (r *reader) hold(t testing.TB, d *delivery) {
	t.Helper()
	held := r.ledger.heldOf(d.Message.Key)
	for other := range held {
		switch {
		case other.lost():
			delete(held, other)
		case other.reader.mayLoseLate():
		case other.reader != r:
			t.Errorf("message %s comes while another process has %s and has not lost it", d.Message.ID, other.Message.ID)
		}
	}
	held[d] = true
}

// take receives n messages and leaves them unsettled. A broker that is unavailable meanwhile is waited for.
func (r *reader) take(t testing.TB, n int) []*delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []*delivery
	for len(all) < n {
		got, err := r.receive(ctx, t, n-len(all))
		switch {
		case err == nil:
		case postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable && ctx.Err() == nil:
			<-time.After(20 * time.Millisecond)
		default:
			t.Fatalf("receive number %d of %d: %v", len(all)+1, n, err)
		}
		all = append(all, got...)
	}
	return all
}

// work receives and works on messages, like a consumer, until ctx ends or the subscription is closed. It acknowledges
// each message, unless refuse is not nil and returns true; then it nacks the message.
func (r *reader) work(ctx context.Context, t testing.TB, refuse func(d *delivery) bool) {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	settle := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		got, err := r.receive(ctx, t, 10)
		switch {
		case err == nil:
		case ctx.Err() != nil, errors.Is(err, postrider.ErrSubscriptionClosed):
			return
		case postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable:
			<-pause.C
		default:
			t.Errorf("receive: %v, want an error made by Unavailable", err)
			return
		}
		for _, d := range got {
			switch {
			case d.lost():
				d.settling()
			case refuse != nil && refuse(d):
				d.nack(settle, t, 0)
			default:
				d.apply(t)
				d.ack(settle, t)
			}
		}
	}
}

// start runs work in the background. stop ends it and waits.
func (r *reader) start(t testing.TB, refuse func(d *delivery) bool) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.work(ctx, t, refuse) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// nothingLeft adds a new member and checks that it receives only what is published now: one message per key. Messages
// published before must have lower numbers.
func (s *inbound) nothingLeft(t testing.TB, group string, keys ...string) {
	t.Helper()
	s.nothingLeftFor(t, group, 0, keys...)
}

// nothingLeftFor additionally waits for unexpected messages.
func (s *inbound) nothingLeftFor(t testing.TB, group string, longer time.Duration, keys ...string) {
	t.Helper()
	const last = 1 << 30
	r := s.join(t, group)
	marks := batch(s.Topic, len(keys), last, keys...)
	s.publish(t, marks)
	for missing := len(marks); missing > 0; {
		for _, d := range r.take(t, 1) {
			d.ack(t.Context(), t)
			if d.Err == nil && d.Message.AggregateVersion == last {
				missing--
				continue
			}
			s.checkExcused(t, group, d)
		}
	}
	if longer > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), longer)
		defer cancel()
		if got, err := r.receive(ctx, t, 1); err == nil {
			s.checkExcused(t, group, got[0])
		}
	}
	r.leave(t)
}
