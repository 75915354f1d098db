package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

const fromKafka = "Postrider, from Kafka, one partition"

// consumeKafkaSuite compares the same consumer on JetStream and Kafka.
var consumeKafkaSuite = suite{
	name: "consume-kafka", title: "Consume in order from JetStream and from Kafka, with an effect of one row", figure: figureRate, unit: "msg/s", share: 0.6,
	also: usual,
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		url, err := b.startKafka(ctx)
		if err != nil {
			return nil, err
		}
		c, err := newConsumption(ctx, b)
		if err != nil {
			return nil, err
		}
		return []entry{
			c.consumeKafka(ctx, fromKafka, url, 1),
			c.consumeKafka(ctx, "Postrider, from Kafka, 6 partitions", url, 6),
			c.consume(fromLog, fromKafka, c.keyed, inbox.ConsumerConfig{}, b.n, oneByOne(0)),
		}, nil
	},
}

// startKafka returns the URL of a private Kafka.
func (w *world) startKafka(ctx context.Context) (string, error) {
	if w.kafkaURL != "" {
		return w.kafkaURL, nil
	}
	home, err := servertest.Lookup(ctx, servertest.KafkaHome)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errMissing, err)
	}
	s, err := process.StartKafka(ctx, home, w.dir, 0)
	if err != nil {
		return "", err
	}
	w.kafkaURL = s.URL
	w.servers = append(w.servers, s)
	return s.URL, nil
}

// consumeKafka is consume for a new topic.
func (c *consumption) consumeKafka(ctx context.Context, name, url string, partitions int) entry {
	topic := fmt.Sprintf("bench-%d", partitions)
	filled := c.fillKafka(ctx, url, topic, partitions)
	return entry{name: name, role: report.Ours, prepare: c.empty, messages: c.b.n, run: func(ctx context.Context) (_ report.Figures, err error) {
		if filled != nil {
			return nil, filled
		}
		subscriber, err := kafkabroker.OpenSubscriber(ctx, url, kafkabroker.SubscriberConfig{Topics: []string{topic}, LagGroup: kafkabroker.NoLagGroup})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, subscriber.Close()) }()
		return c.consumeFrom(ctx, subscriber, inbox.ConsumerConfig{}, c.b.n, oneByOne(0))
	}}
}

// fillKafka publishes the suite's messages to a new topic.
func (c *consumption) fillKafka(ctx context.Context, url, topic string, partitions int) (err error) {
	p, err := kafkabroker.Open(ctx, url, kafkabroker.Config{Topic: topic, Create: true, Partitions: partitions, Replicas: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	msgs := make([]*postrider.Message, c.b.n)
	for i := range msgs {
		msgs[i] = keys(manyKeys).message(i)
		msgs[i].FillDefaults(source, time.Now())
	}
	for batch := range slices.Chunk(msgs, 1000) {
		if err := errors.Join(p.Publish(ctx, batch)...); err != nil {
			return err
		}
	}
	return nil
}
