package rabbitmqbroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
)

// subscribe joins on the shared server. At the end of the test it leaves and deletes the queue.
func subscribe(t *testing.T, ch *amqp.Channel, cfg rabbitmqbroker.SubscriberConfig) postrider.Subscription {
	t.Helper()
	s, err := rabbitmqbroker.OpenSubscriber(t.Context(), running(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := s.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sub.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
		deleteQueue(t, ch, cfg.Queue)
	})
	return sub
}

// receive returns the next n deliveries.
func receive(t *testing.T, sub postrider.Subscription, n int) []*postrider.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []*postrider.Delivery
	for len(all) < n {
		got, err := sub.Receive(ctx, n-len(all))
		if err != nil && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Fatalf("receive number %d: %v", len(all), err)
		}
		all = append(all, got...)
	}
	return all
}

// send publishes messages to a queue.
func send(t *testing.T, queue string, msgs []*postrider.Message) {
	t.Helper()
	for _, m := range msgs {
		m.Topic = queue
	}
	accepted(t, open(t, running(t), rabbitmqbroker.Config{Exchange: "amq.default"}), msgs)
}

func settled(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("settle: %v", err)
	}
}

// TestPrefetch checks that no more than the configured number of messages are unsettled.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	queue := unique("queue")
	sub := subscribe(t, dial(t, running(t)), rabbitmqbroker.SubscriberConfig{Queue: queue, Prefetch: 3})
	send(t, queue, messages("prefetch", 10))
	first := receive(t, sub, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if more, err := sub.Receive(ctx, 10); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beyond the prefetch came %d deliveries and %v", len(more), err)
	}
	settled(t, first[0].Ack(t.Context()))
	receive(t, sub, 1)
}

// TestQueueDeleted deletes the queue of a subscription: the server then cancels the consumer.
func TestQueueDeleted(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{rabbitmqbroker.QuorumQueue, rabbitmqbroker.ClassicQueue} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			queue, ch := unique("queue"), dial(t, running(t))
			sub := subscribe(t, ch, rabbitmqbroker.SubscriberConfig{Queue: queue, QueueType: kind})
			send(t, queue, messages("deleted", 2))
			d := receive(t, sub, 2)
			settled(t, d[0].Ack(t.Context()))
			deleteQueue(t, ch, queue)
			select {
			case <-d[1].Lost():
			case <-time.After(patience):
				t.Fatal("the queue was deleted, and its message is not lost")
			}
			settled(t, d[1].Ack(t.Context())) // does nothing
			again := make(chan []*postrider.Delivery, 1)
			go func() { again <- receive(t, sub, 1) }()
			awaitQueue(t, queue)
			send(t, queue, messages("again", 1))
			if got := <-again; got[0].Message.ID != "again-0" {
				t.Errorf("after the queue was recreated came %s", got[0].Message.ID)
			}
		})
	}
}

// awaitQueue waits until a queue exists.
func awaitQueue(t *testing.T, name string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if _, err := dial(t, running(t)).QueueDeclarePassive(name, true, false, false, false, nil); err == nil {
			return
		}
	}
	t.Fatalf("queue %s is not there", name)
}

// TestDeadLetters dead-letters rejected messages, and messages that exceed the delivery limit, to a dead letter
// exchange.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	ch := dial(t, running(t))
	dead, queue := unique("dead"), unique("queue")
	if _, err := ch.QueueDeclare(dead, true, false, false, false, nil); err != nil { // deleted with its subscription
		t.Fatal(err)
	}
	if err := ch.QueueBind(dead, "rejected", "amq.direct", false, nil); err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, ch, rabbitmqbroker.SubscriberConfig{
		Queue: queue, DeliveryLimit: 2, DeadLetterExchange: "amq.direct", DeadLetterKey: "rejected",
	})
	send(t, queue, messages("dead", 2))
	got := receive(t, sub, 2)
	settled(t, got[0].Reject(t.Context(), "test"))
	last := got[1]
	for n := 2; n <= 3; n++ {
		settled(t, last.Nack(t.Context(), time.Hour))
		last = receive(t, sub, 1)[0]
		if last.Deliveries != n || last.Message.Attempt != n || !last.Redelivered {
			t.Errorf("delivery number %d says %d, attempt %d, redelivered %v", n, last.Deliveries, last.Message.Attempt, last.Redelivered)
		}
	}
	settled(t, last.Nack(t.Context(), 0)) // exceeds the delivery limit
	rejected := subscribe(t, ch, rabbitmqbroker.SubscriberConfig{Queue: dead, QueueType: rabbitmqbroker.ClassicQueue, CheckOnly: true})
	for _, d := range receive(t, rejected, 2) {
		settled(t, d.Ack(t.Context()))
	}
}

func TestSubscribeRefuses(t *testing.T) {
	t.Parallel()
	ch := dial(t, running(t))
	classic := unique("queue")
	declare(t, ch, classic, nil)
	for text, cfg := range map[string]rabbitmqbroker.SubscriberConfig{
		"it exists with other arguments": {Queue: classic},
		"rabbitmqadmin declare queue":    {Queue: unique("absent"), CheckOnly: true},
	} {
		s, err := rabbitmqbroker.OpenSubscriber(t.Context(), running(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Subscribe(t.Context())
		wantError(t, err, text)
		if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
			t.Errorf("%v: is made by Unavailable, and waiting does not help", err)
		}
	}
}

// TestNoExtension: a server with a consumer timeout cannot extend it.
func TestNoExtension(t *testing.T) {
	t.Parallel()
	queue := unique("queue")
	sub := subscribe(t, dial(t, running(t)), rabbitmqbroker.SubscriberConfig{Queue: queue})
	send(t, queue, messages("slow", 1))
	d := receive(t, sub, 1)[0]
	wantError(t, d.Extend(t.Context()), "consumer_timeout")
	settled(t, d.Ack(t.Context()))
	settled(t, d.Extend(t.Context()))
}
