package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// operator is who acts, and reason is why.
const operator, reason = "ann", "what the runbook says"

// deliveryFaults are those of stores and relays.
func (s *System) deliveryFaults() []Fault {
	return []Fault{
		{
			Name: "store unreachable", Alerts: []Alert{{"PostriderStoreUnreachable", "store", otherStore}},
			Provoke: func() { s.other.fails.set("Status", true) }, Fix: func() { s.other.fails.set("Status", false) },
		},
		{
			Name: "maintenance fails", Alerts: []Alert{{"PostriderMaintenanceFailing", "store", otherStore}},
			Provoke: func() { s.other.fails.set("Maintain", true); s.restart(s.other, "tidy") },
			Fix:     func() { s.other.fails.set("Maintain", false); s.restart(s.other, "tidy") },
		},
		{
			Name: "no process", Alerts: []Alert{{"PostriderRelayNotRunning", "relay", "mails"}, {"PostriderDeliveryLate", "relay", "mails"}},
			Provoke: s.stopOf("mails"), Fix: s.startMails,
		},
		{
			Name: "outcomes cannot be recorded", Alerts: []Alert{{"PostriderRelayStalled", "relay", "stalled"}},
			Provoke: func() { s.sick.fails.set("Settle", true) }, Fix: func() { s.sick.fails.set("Settle", false) },
		},
		{
			Name: "partitions cannot be leased", Alerts: []Alert{{"PostriderPartitionUnowned", "relay", "unowned"}},
			Provoke: func() { s.sick.fails.set("Acquire", true); s.restart(s.sick, "unowned") },
			Fix:     func() { s.sick.fails.set("Acquire", false) },
		},
		{
			Name: "message fails", Alerts: []Alert{{"PostriderKeyHeld", "relay", "keys"}},
			Provoke: func() { s.send("keys", "bad", "refused") },
			Fix: func() {
				skip := store.Decision{Relay: "keys", Key: "bad", Verb: store.VerbSkip, By: operator, Reason: reason}
				_, err := held.Decide(s.tb.Context(), s.main.store, skip)
				must(s.tb, err)
			},
		},
		{
			Name: "message is rejected", Alerts: []Alert{{"PostriderDeadLettersNew", "relay", "keys"}},
			Provoke: func() { s.send("keys", "other", "rejected") }, Fix: func() { s.discard("keys") },
		},
		{
			Name: "all messages are rejected", Alerts: []Alert{{"PostriderDeadLettersSurge", "relay", "surge"}},
			Provoke: func() {
				for n := range 100 {
					s.send("surge", fmt.Sprint(n), "rejected")
				}
			},
			Fix: func() { s.discard("surge") },
		},
		{
			Name: "no relay takes a topic", Alerts: []Alert{{"PostriderUnrouted", "store", mainStore}},
			Provoke: func() { s.send("nobody", "k", "t") },
		},
	}
}

// auditFault is that of the administration.
func (s *System) auditFault() Fault {
	return Fault{
		Name: "audit cannot be written", Alerts: []Alert{{"PostriderAuditFailing", "store", mainStore}},
		Provoke: func() {
			s.main.fails.set("audit", true)
			if s.reveal() == nil {
				s.tb.Error("hidden values were shown without an entry in the audit")
			}
		},
		Fix: func() { s.main.fails.set("audit", false); must(s.tb, s.reveal()) },
	}
}

// SlowFaults are those of which an alert tells, or stops telling, after hours only.
func (s *System) SlowFaults() []Fault {
	return []Fault{
		{
			Name: "no process for long", Alerts: []Alert{{"PostriderDeliveryLateSlowBurn", "relay", "mails"}}, Provoke: s.stopOf("mails"), Fix: s.startMails,
		},
		{
			Name: "dead letter is left", Alerts: []Alert{{"PostriderDeadLettersUnresolved", "relay", "keys"}},
			Provoke: func() { s.send("keys", "other", "rejected") }, Fix: func() { s.discard("keys") },
		},
	}
}

// reveal asks for the hidden values of the first dead letter, if there is one.
func (s *System) reveal() error {
	_, err := s.admin.Reveal(s.tb.Context(), admin.Principal{Issuer: "scenario", Subject: operator, Role: admin.Admin}, 1, reason)
	if errors.Is(err, deadletter.ErrNotFound) {
		return nil
	}
	return err
}

func (s *System) startMails() { s.start(s.main, "mails", relay.Config{}) }

// discard discards the dead letters of a relay.
func (s *System) discard(name string) {
	_, err := deadletter.New(s.main.store).DiscardDead(s.tb.Context(), store.DeadFilter{Relay: name}, operator, reason, 0)
	must(s.tb, err)
}

// restart replaces the process of a relay by one that sees the database as p does.
func (s *System) restart(p place, name string) {
	s.stopOf(name)()
	s.start(p, name, relay.Config{})
}

// silences are what operators do: no alert of these relays fires. That of a closed gate is only that the relay is stalled, since its
// messages are late.
func (s *System) silences() []Fault {
	var replaced func()
	return []Fault{
		{
			Name: "pause", Silent: Alert{Label: "relay", Value: "paused"},
			Provoke: func() {
				_, err := pause.New(s.main.store).Pause(s.tb.Context(), pause.Request{Relay: "paused", By: operator, Reason: reason})
				must(s.tb, err)
			},
			Fix: func() {
				_, err := pause.New(s.main.store).Resume(s.tb.Context(), "paused")
				must(s.tb, err)
			},
		},
		{
			Name: "closed gate", Silent: Alert{"PostriderRelayStalled", "relay", "gated"},
			Provoke: func() { s.gate.set(true) }, Fix: func() { s.gate.set(false) },
		},
		{
			Name: "deployment", Silent: Alert{Label: "relay", Value: "rolling"},
			Provoke: func() { replaced = s.deploy() }, Fix: func() { replaced() },
		},
	}
}

// deploy replaces the processes of the relay "rolling", one after another, until the returned function is called.
func (s *System) deploy() (stop func()) {
	return s.run(func(ctx context.Context) error {
		for range 3 {
			sleep(ctx, 2*time.Second)
			old := s.stopOf("rolling")
			s.start(s.main, "rolling", relay.Config{})
			sleep(ctx, 2*time.Second)
			old()
		}
		return nil
	})
}

// consumerFaults are those of the broker and of the consumers.
func (s *System) consumerFaults() []Fault {
	return []Fault{
		{
			Name: "broker down", Alerts: []Alert{{"PostriderDestinationDown", "relay", "to-broker"}, {"PostriderConsumerNotReading", "consumer", "billing"}},
			Provoke: func() { s.broker.SetUnavailable(errors.New("connection refused")) }, Fix: func() { s.broker.SetUnavailable(nil) },
		},
		{
			Name: "handler hangs", Alerts: []Alert{{"PostriderConsumerStalled", "consumer", "ledger"}},
			Provoke: func() {
				s.publish(&postrider.Message{ID: "hang", Type: "hang", Topic: "ledger", Key: "k", Time: time.Now()})
			},
			Fix: s.unhang,
		},
		{
			Name: "retention is too short", Alerts: []Alert{{"PostriderMessagesMissing", "consumer", "archive"}}, Provoke: s.expire,
		},
	}
}

// expire makes the broker remove messages while the consumer "archive" is away.
func (s *System) expire() {
	s.stopOf("archive")()
	var more []*postrider.Message
	for n := range 10 {
		more = append(more, &postrider.Message{ID: fmt.Sprint("archived", n), Type: "t", Topic: "archive", Key: fmt.Sprint(n), Time: time.Now()})
	}
	s.publish(more...)
	s.archive.Expire("archive", len(s.archive.Messages("archive")))
	s.consumeLog()
}

// publish publishes to the log that the consumer "archive" reads.
func (s *System) publish(msgs ...*postrider.Message) {
	if errs := s.archive.Publish(s.tb.Context(), msgs); errs != nil {
		s.tb.Fatal(errs)
	}
}

// consumeGroup starts the consumer "billing", which reads in a group.
func (s *System) consumeGroup() {
	s.consume("billing", s.broker, memorybroker.SubscriberConfig{Group: "billing", Topics: []string{"to-broker"}, Partitions: 2})
}

// consumeLog starts the consumer "archive", which reads a log without a group.
func (s *System) consumeLog() {
	s.consume("archive", s.archive, memorybroker.SubscriberConfig{Topics: []string{"archive"}})
}

// consumeLedger starts the consumer "ledger", whose handler ignores its context and hangs until the fault is fixed.
func (s *System) consumeLedger() {
	s.consume("ledger", s.archive, memorybroker.SubscriberConfig{Group: "ledger", Topics: []string{"ledger"}})
	s.tb.Cleanup(s.unhang)
}

func (s *System) consume(name string, from *memorybroker.Broker, c memorybroker.SubscriberConfig) {
	s.tb.Helper()
	in, err := inbox.New(s.main.store)
	must(s.tb, err)
	subscriber, err := from.Subscriber(c)
	must(s.tb, err)
	consumer, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{
		Name: name, Observer: s.Telemetry.Consumer(mainStore, name), Logger: s.Logger,
	})
	must(s.tb, err)
	must(s.tb, consumer.HandleFunc("t", func(context.Context, *memory.Tx, *postrider.Message) error { return nil }))
	must(s.tb, consumer.HandleFunc("hang", func(context.Context, *memory.Tx, *postrider.Message) error { <-s.hung; return nil }))
	unwatch, end := s.Telemetry.WatchConsumer(mainStore, consumer), s.run(consumer.Run)
	s.process(name, func() { end(); unwatch() })
}
