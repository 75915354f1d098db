package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

func testSubscriberCapabilities(t *testing.T, s *inbound) {
	m := s.Member(t, "g")
	c := m.Capabilities()
	if c.Ordered != (s.features.Unordered == "") {
		t.Errorf("Ordered is %v, Features.Unordered is %q", c.Ordered, s.features.Unordered)
	}
	if c.Positions != (s.features.NoPositions == "") {
		t.Errorf("Positions is %v, Features.NoPositions is %q", c.Positions, s.features.NoPositions)
	}
	if c.NackDelay != (s.features.NoNackDelay == "") {
		t.Errorf("NackDelay is %v, Features.NoNackDelay is %q", c.NackDelay, s.features.NoNackDelay)
	}
	if c.AckWait < 0 || c.RedeliveryWindow < 0 {
		t.Errorf("a capability is negative: %+v", c)
	}
	sub, err := m.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again := m.Capabilities(); again != c {
		t.Errorf("capabilities changed from %+v to %+v", c, again)
	}
	if err := sub.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func testSubscriberFidelity(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	want := make(map[string]*postrider.Message)
	var msgs []*postrider.Message
	for i, m := range hardToCarry() {
		m.Topic = s.Topic
		if m.Key != "" {
			m.Key = fmt.Sprintf("%s/%d", m.Key, i)
		}
		want[m.ID], msgs = m, append(msgs, m)
	}
	s.publish(t, msgs)
	for range msgs {
		d := r.take(t, 1)[0]
		if d.Err != nil || want[d.Message.ID] == nil {
			t.Fatalf("what came is none of the messages sent: %+v, error %v", d.Message, d.Err)
		}
		checkSame(t, d.Message, want[d.Message.ID])
		d.ack(t.Context(), t)
	}
}

func testEverythingOnce(t *testing.T, s *inbound) {
	keys := []string{"", "a", "b", "c", "d", "e", "f", "g", "h"}
	msgs := batch(s.Topic, 450, 1, keys...)
	r := s.join(t, "g")
	s.publish(t, msgs[:200])
	stop := r.start(t, nil)
	s.publish(t, msgs[200:])
	r.ledger.awaitApplied(t, msgs)
	stop()
	r.leave(t)
	s.nothingLeft(t, "g", keys...)
}

func testTwoGroups(t *testing.T, s *inbound) {
	one, two := s.join(t, "one"), s.join(t, "two")
	msgs := batch(s.Topic, 60, 1, "a", "b", "")
	s.publish(t, msgs)
	one.start(t, nil)
	two.start(t, nil)
	one.ledger.awaitApplied(t, msgs)
	two.ledger.awaitApplied(t, msgs)
}

// testPositions checks that positions increase. That they do not change is checked for every redelivery.
func testPositions(t *testing.T, s *inbound) {
	msgs := batch(s.Topic, 60, 1, "a", "b", "c", "")
	r := s.join(t, "g")
	s.publish(t, msgs)
	at := make(map[string]postrider.Position)
	stood := make(map[postrider.Position]string)
	read := make(map[string]int64) // by partition
	for range msgs {
		d := r.take(t, 1)[0]
		id, p := d.Message.ID, d.Position
		if other := stood[p]; other != "" {
			t.Errorf("messages %s and %s both stand at %+v", other, id, p)
		}
		if last, ok := read[p.Partition]; ok && r.caps.Ordered && p.Offset <= last {
			t.Errorf("message %s at %+v comes after offset %d", id, p, last)
		}
		at[id], stood[p], read[p.Partition] = p, id, p.Offset
		d.ack(t.Context(), t)
	}
	before := make(map[string]*postrider.Message)
	for _, m := range msgs {
		if b := before[m.Key]; b != nil && m.Key != "" {
			p, q := at[b.ID], at[m.ID]
			if p.Incarnation != q.Incarnation || r.caps.Ordered && p.Partition != q.Partition || p.Partition == q.Partition && p.Offset >= q.Offset {
				t.Errorf("messages %s and %s stand at %+v and %+v", b.ID, m.ID, p, q)
			}
		}
		before[m.Key] = m
	}
}

// testRecreated recreates the topic while a member reads it.
func testRecreated(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	r.start(t, nil)
	old, fresh := batch(s.Topic, 4, 1, "a"), batch(s.Topic, 4, 5, "a")
	s.publish(t, old)
	r.ledger.awaitApplied(t, old)
	s.Recreate(t)
	s.publish(t, fresh)
	r.ledger.awaitApplied(t, fresh)
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	p, q := r.ledger.record(old[0].ID).position, r.ledger.record(fresh[0].ID).position
	if p.Incarnation == q.Incarnation {
		t.Errorf("incarnation of the topic is %q, and so is that of the recreated one", p.Incarnation)
	}
}

// testPoison puts something that is not a message between messages of the same key and others. What can be read of it comes
// with it: the ID, type and key, by which it can be told from others and its key can be held, and the headers, without which it
// cannot be repaired.
func testPoison(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	msgs := batch(s.Topic, 20, 1, "a", "b")
	s.publish(t, msgs[:10])
	bad := batch(s.Topic, 1, 1<<20, "a")[0]
	bad.Type, bad.Headers, bad.Payload = "poison", map[string]string{"trace": "t", "priority": "low"}, []byte(`{"no":"message"}`)
	bad.FillDefaults("brokertest", time.Now())
	s.Poison(t, bad)
	s.publish(t, msgs[10:])
	poisoned := 0
	for n := 0; n < len(msgs)+1; n++ {
		d := r.take(t, 1)[0]
		if d.Err == nil {
			d.apply(t)
			d.ack(t.Context(), t)
			continue
		}
		poisoned++
		if !bytes.Equal(d.Raw, bad.Payload) {
			t.Errorf("what is no message came as %.100q, want %.100q", d.Raw, bad.Payload)
		}
		if m := d.Message; m == nil || m.ID != bad.ID || m.Type != bad.Type || m.Key != bad.Key || m.Topic != s.Topic ||
			m.Headers["trace"] != "t" || m.Headers["priority"] != "low" || !bytes.Equal(m.Payload, bad.Payload) {
			t.Errorf("of %+v, which is no message, this was read: %+v", bad, m)
		}
		d.reject(t.Context(), t)
	}
	if poisoned != 1 {
		t.Errorf("what is no message came %d times, want once", poisoned)
	}
	r.ledger.awaitApplied(t, msgs)
	r.leave(t)
	s.nothingLeft(t, "g", "a", "b")
}

// testVerified verifies positions: of existing messages, of other messages at their offsets, and of a deleted topic.
func testVerified(t *testing.T, s *inbound) {
	r := s.join(t, "g")
	msgs := batch(s.Topic, 9, 1, "a", "b", "")
	s.publish(t, msgs)
	expect := func(what string, at postrider.Position, want postrider.PositionState) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			got, err := r.member.VerifyPosition(ctx, at)
			if err != nil && ctx.Err() == nil && postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
				continue
			}
			if err != nil || got != want {
				t.Fatalf("%s at %+v: state %v, error %v, want state %v", what, at, got, err, want)
			}
			return
		}
	}
	var last postrider.Position
	for range msgs {
		d := r.take(t, 1)[0]
		last = d.Position
		if last.Mark == "" || len(last.Mark) > 1000 {
			t.Fatalf("the mark of %+v is empty, or longer than 1,000 bytes", last)
		}
		expect("a message", last, postrider.PositionKept)
		other := last
		other.Mark += "0"
		expect("another message", other, postrider.PositionReplaced)
		d.ack(t.Context(), t)
	}
	expect("a message that is settled", last, postrider.PositionKept)
	if s.features.NoRecreate == "" {
		r.leave(t) // a topic that is not there yet takes no offsets
		s.Recreate(t)
		expect("a message of a recreated topic", last, postrider.PositionReplaced)
	}
}
