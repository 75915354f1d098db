package redisbroker_test

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider"
	redisbroker "github.com/postrider/postrider/broker/redis"
)

// contextWithCancelAfter returns a context that is canceled after a time, without having a deadline.
func contextWithCancelAfter(t testing.TB, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(after, cancel)
	return ctx, cancel
}

func subscribe(t testing.TB, url string, cfg redisbroker.SubscriberConfig) postrider.Subscription {
	t.Helper()
	sub, err := openSubscriber(t, url, cfg).Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sub.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sub
}

// receive returns n deliveries.
func receive(t testing.TB, sub postrider.Subscription, n int) []*postrider.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []*postrider.Delivery
	for len(all) < n {
		got, err := sub.Receive(ctx, n-len(all))
		if err != nil && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}

func ack(t testing.TB, deliveries ...*postrider.Delivery) {
	t.Helper()
	for _, d := range deliveries {
		if err := d.Ack(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// awaitLost waits until deliveries are lost.
func awaitLost(t testing.TB, deliveries ...*postrider.Delivery) {
	t.Helper()
	deadline := time.After(patience)
	for _, d := range deliveries {
		select {
		case <-d.Lost():
		case <-deadline:
			t.Fatalf("waited %s for the right to message %s to be lost", patience, d.Message.ID)
		}
	}
}
