package scenariotest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// runRemotely runs the participants on a database of their own, with a broker between them and the engine.
func (w *world[Tx]) runRemotely() {
	broker, err := memorybroker.New(memorybroker.Config{})
	w.must(err)
	remote := w.kit.Open(w)
	box := w.newOutbox(remote)
	w.send("commands", w.store, participantTopics, broker)
	w.receive("participants", remote, participantTopics, broker, w.newParticipant(remote, box).Consume)
	w.send("answers", remote, []string{w.engine.Topic()}, broker)
	w.receive("replies", w.store, []string{w.engine.Topic()}, broker, w.engine.Consume)
	r, err := relay.New(remote, relayConfig("remote ledger", []string{"effects"}))
	w.must(err)
	w.must(w.count(r))
	w.keepRunning("remote ledger", r.Run)
}

// send publishes topics of an outbox to a broker.
func (w *world[Tx]) send(name string, s Store[Tx], topics []string, broker *memorybroker.Broker) {
	config := relayConfig(name, topics)
	config.Publisher, config.PollMax = broker, cmp.Or(w.pollMax, config.PollMax)
	r, err := relay.New(s, config)
	w.must(err)
	w.keepRunning(name, r.Run)
}

// receive consumes topics of a broker.
func (w *world[Tx]) receive(name string, s Store[Tx], topics []string, broker *memorybroker.Broker, register func(*inbox.Consumer[Tx]) error) {
	c := w.newConsumer(name, s, topics, broker)
	w.must(register(c))
	w.keepRunning(name, c.Run)
}

func (w *world[Tx]) newConsumer(name string, s Store[Tx], topics []string, broker *memorybroker.Broker) *inbox.Consumer[Tx] {
	subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: name, Topics: topics, Partitions: 4})
	w.must(err)
	in, err := inbox.New[Tx](s)
	w.must(err)
	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: name, Logger: quiet})
	w.must(err)
	return c
}

// betweenServices: engine and participants have databases of their own.
func betweenServices[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), chargeStep(), shipStep()))
	w.runEngine()
	w.runRemotely()
	w.start(s, order{ID: "41"})
	if r := w.ends(s, "41", saga.Completed); r.Data.Parcel != "ship of 41" {
		w.Errorf("data %+v", r.Data)
	}
	w.ledger(map[string]int{"reserve": 1, "charge": 1, "ship": 1})
	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", nil) })
	w.start(s, order{ID: "42"})
	if r := w.ends(s, "42", saga.Compensated); r.Cause.Reason != "limit" {
		w.Errorf("cause %+v, want the refusal", r.Cause)
	}
	w.ledger(map[string]int{"reserve": 1, "charge": 1, "ship": 1})
}

// placed starts the saga of an order.
var placed = postrider.Define[order]("order.placed").WithTopic("placed")

// startByMessage: messages that a relay and a consumer handle start instances in their transactions: ten for one order start one. One whose
// handler fails after the start leaves nothing.
func startByMessage[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep()))
	var failed atomic.Bool
	var handled sync.Map // messages by ID
	start := func(ctx context.Context, tx Tx, m postrider.Typed[order]) error {
		_, err := s.Start(ctx, tx, m.Data, saga.ID(m.Data.ID))
		if err == nil && m.Data.ID == "41" && failed.CompareAndSwap(false, true) {
			return errors.New("after the start")
		}
		if err == nil {
			handled.Store(m.ID, true)
		}
		return err
	}
	broker, err := memorybroker.New(memorybroker.Config{})
	w.must(err)
	w.runEngine()
	w.runParticipants()
	w.run("own orders", []string{placed.Topic()}, func(r *relay.Relay) error { return relay.HandleTx(r, placed, start) })
	w.receive("others' orders", w.store, []string{placed.Topic()}, broker, func(c *inbox.Consumer[Tx]) error { return inbox.Handle(c, placed, start) })
	remote := w.kit.Open(w)
	w.send("orders", remote, []string{placed.Topic()}, broker)
	for _, box := range []*outbox.Outbox[Tx]{w.box, w.newOutbox(remote)} {
		_, err := box.InTx(w.Context(), func(ctx context.Context, tx Tx) error {
			for range 5 {
				for _, id := range []string{"41", "42"} {
					m, err := placed.New(order{ID: id})
					if err == nil {
						_, err = box.Publish(ctx, tx, m)
					}
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
		w.must(err)
	}
	for _, id := range []string{"41", "42"} {
		w.await("its start", func() bool { _, err := s.Get(w.Context(), id); return err == nil })
		w.ends(s, id, saga.Completed)
	}
	w.await("the other messages", func() bool {
		n := 0
		handled.Range(func(any, any) bool { n++; return true })
		return n == 20
	})
	w.ledger(map[string]int{"reserve": 2})
}
