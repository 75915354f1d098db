package memorybroker_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
)

// keyed returns n messages, which use the keys in turn.
func keyed(n int, keys ...string) []*postrider.Message {
	msgs := numbered(n)
	for i, m := range msgs {
		m.Key = keys[i%len(keys)]
	}
	return msgs
}

func subscribe(t *testing.T, b *memorybroker.Broker, cfg memorybroker.SubscriberConfig) postrider.Subscription {
	t.Helper()
	cfg.Group, cfg.Topics = "g", []string{"numbers"}
	s, err := b.Subscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := s.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Close(context.Background()) })
	return sub
}

// receive returns the messages that are available now.
func receive(t *testing.T, s postrider.Subscription, limit int) []*postrider.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	out, err := s.Receive(ctx, limit)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return out
}

func wantIDs(t *testing.T, what string, got []*postrider.Delivery, want ...string) {
	t.Helper()
	var ids []string
	for _, d := range got {
		ids = append(ids, d.Message.ID)
	}
	if !slices.Equal(ids, want) {
		t.Fatalf("%s: %v, want %v", what, ids, want)
	}
}

func settle(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isLost(d *postrider.Delivery) bool {
	select {
	case <-d.Lost():
		return true
	default:
		return false
	}
}

func TestQueueSharesMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memorybroker.Config{})
		b.Publish(t.Context(), numbered(4))
		one, two := subscribe(t, b, memorybroker.SubscriberConfig{}), subscribe(t, b, memorybroker.SubscriberConfig{})
		first, second := receive(t, one, 2), receive(t, two, 5)
		wantIDs(t, "first member", first, "1", "2")
		wantIDs(t, "second member", second, "3", "4")
		if p := first[0].Position; p != (postrider.Position{}) {
			t.Errorf("a queue has position %+v", p)
		}
		settle(t, first[0].Ack(t.Context()))
		settle(t, first[1].Nack(t.Context(), time.Minute))
		settle(t, second[0].Reject(t.Context(), "bad"))
		wantIDs(t, "before the nack's time", receive(t, two, 5))
		time.Sleep(time.Minute)
		again := receive(t, two, 5)
		wantIDs(t, "after it", again, "2")
		if d := again[0]; d.Deliveries != 2 || !d.Redelivered || d.Message.Attempt != 2 {
			t.Errorf("delivery is %+v, want the second", d)
		}
		settle(t, two.Close(t.Context()))
		if !isLost(again[0]) || !isLost(second[1]) || isLost(first[0]) {
			t.Error("a closed subscription loses what it has not settled, and only that")
		}
		settle(t, again[0].Ack(t.Context())) // does nothing
		wantIDs(t, "after the second has left", receive(t, one, 5), "2", "4")
		if _, err := two.Receive(t.Context(), 1); !errors.Is(err, postrider.ErrSubscriptionClosed) {
			t.Errorf("receive after close: %v", err)
		}
	})
}

func TestSettlementThatIsLateComesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memorybroker.Config{})
		b.Publish(t.Context(), numbered(2))
		s := subscribe(t, b, memorybroker.SubscriberConfig{AckWait: time.Second})
		got := receive(t, s, 2)
		time.Sleep(900 * time.Millisecond)
		settle(t, got[0].Extend(t.Context()))
		time.Sleep(500 * time.Millisecond)
		wantIDs(t, "after a second", receive(t, s, 2), "2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		waited, err := s.Receive(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		wantIDs(t, "in the end", waited, "1")
		settle(t, got[0].Ack(t.Context())) // too late to have an effect
		if left := b.Unsettled("g"); len(left) != 2 {
			t.Errorf("unsettled %v, want both", left)
		}
	})
}

func TestLogKeepsOrderAndPositions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memorybroker.Config{})
		b.Publish(t.Context(), keyed(9, "a", "b", "c"))
		s := subscribe(t, b, memorybroker.SubscriberConfig{Partitions: 1})
		got := receive(t, s, 4)
		wantIDs(t, "first", got, "1", "2", "3", "4")
		for i, d := range got {
			if want := (postrider.Position{Incarnation: "0", Partition: "numbers/0", Offset: int64(i), Mark: strconv.Itoa(i + 1)}); d.Position != want {
				t.Errorf("position is %+v, want %+v", d.Position, want)
			}
		}
		settle(t, got[0].Ack(t.Context()))
		settle(t, got[1].Nack(t.Context(), 0))
		wantIDs(t, "after a nack", receive(t, s, 3), "2", "3", "4")
		b.Redeliver("g", "1")
		wantIDs(t, "delivered again", receive(t, s, 1), "1")
		b.Recreate("numbers")
		if left := b.Unsettled("g"); len(left) != 0 {
			t.Errorf("of the old topic are left %v", left)
		}
		b.Publish(t.Context(), numbered(1))
		fresh := receive(t, s, 5)
		wantIDs(t, "of the new topic", fresh, "1")
		if p := fresh[0].Position; p.Incarnation != "1" || p.Offset != 0 {
			t.Errorf("position in the new topic is %+v", p)
		}
	})
}

func TestLogPartitionsChangeHands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memorybroker.Config{})
		var keys []string
		for i := range 12 {
			keys = append(keys, strconv.Itoa(i))
		}
		b.Publish(t.Context(), keyed(12, keys...))
		one := subscribe(t, b, memorybroker.SubscriberConfig{Partitions: 2})
		all := receive(t, one, 20)
		if len(all) != 12 {
			t.Fatalf("the only member got %d of 12", len(all))
		}
		two := subscribe(t, b, memorybroker.SubscriberConfig{Partitions: 2})
		var lost []string
		for _, d := range all {
			if isLost(d) {
				lost = append(lost, d.Message.ID)
			}
		}
		wantIDs(t, "the second member", receive(t, two, 20), lost...)
		if len(lost) == 0 || len(lost) == 12 {
			t.Errorf("lost %v, want those of one partition", lost)
		}
		b.Rebalance("g")
		if n := len(receive(t, one, 20)); n != len(lost) {
			t.Errorf("after the rebalancing the first member got %d, want the %d of the other partition", n, len(lost))
		}
	})
}

func TestSubscriberFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memorybroker.Config{})
		b.Publish(t.Context(), numbered(2))
		before, after := errors.New("refused"), error(nil)
		s := subscribe(t, b, memorybroker.SubscriberConfig{
			SettleFault: func(string, *postrider.Message) (error, error) { return before, after },
			Pick:        func(n int) int { return n - 1 },
		})
		got := receive(t, s, 2)
		wantIDs(t, "picked", got, "2", "1")
		if err := got[0].Ack(t.Context()); postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable || len(b.Unsettled("g")) != 2 {
			t.Errorf("a fault before: %v, unsettled %v", err, b.Unsettled("g"))
		}
		before, after = nil, errors.New("lost")
		if err := got[0].Ack(t.Context()); err == nil || len(b.Unsettled("g")) != 1 {
			t.Errorf("a fault after: %v, unsettled %v", err, b.Unsettled("g"))
		}
		b.SetUnavailable(errors.New("away"))
		if _, err := s.Receive(t.Context(), 1); postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Errorf("receive while away: %v", err)
		}
	})
}

func TestSubscriberConfig(t *testing.T) {
	t.Parallel()
	b := open(t, memorybroker.Config{})
	_, err := b.Subscriber(memorybroker.SubscriberConfig{Partitions: -1})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 2 {
		t.Errorf("error = %v, want both faults", err)
	}
	subscribe(t, b, memorybroker.SubscriberConfig{Partitions: 2})
	s, err := b.Subscriber(memorybroker.SubscriberConfig{Group: "g", Topics: []string{"numbers"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Subscribe(t.Context()); err == nil {
		t.Error("a member with other partitions joined")
	}
}
