package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
)

// Consumer returns the observer of a consumer, whose database is the given store.
func (t *Telemetry) Consumer(storeName, consumer string) *inbox.Observer {
	i := &consumerInstruments{
		t: t, consumer: consumer,
		committed: t.histogram("postrider_consumer_transaction_duration_seconds", storeName, consumer, "committed"),
		failed:    t.histogram("postrider_consumer_transaction_duration_seconds", storeName, consumer, "failed"),
		endToEnd:  t.histogram("postrider_consumer_end_to_end_seconds", storeName, consumer),
		dead:      t.deadLettered(storeName, consumer, store.KindConsumer),
	}
	return &inbox.Observer{
		Processing: i.onProcessing, Processed: i.onProcessed,
		Parked: t.relay(RelayOf{Store: storeName, Relay: consumer}, store.KindConsumer),
	}
}

type consumerInstruments struct {
	t                           *Telemetry
	consumer                    string
	committed, failed, endToEnd boundHistogram
	dead                        map[string]boundCounter
}

// onProcessing begins the span of a transaction, as that of a relay's call.
func (i *consumerInstruments) onProcessing(ctx context.Context, msgs []*postrider.Message) context.Context {
	if i.t.tracer == nil {
		return ctx
	}
	attributes, _ := about(msgs)
	attributes = append(attributes, attribute.String("messaging.consumer.group.name", i.consumer),
		attribute.String("messaging.operation.name", "process"), attribute.String("messaging.operation.type", "process"))
	name, kind := "process "+msgs[0].Type, trace.SpanKindConsumer
	if len(msgs) > 1 {
		name, kind = "transact "+i.consumer, trace.SpanKindInternal
	}
	ctx, _ = i.t.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithSpanKind(kind), trace.WithLinks(i.t.links(msgs)...),
		trace.WithAttributes(attributes...))
	return ctx
}

func (i *consumerInstruments) onProcessed(ctx context.Context, p inbox.Processed) {
	now := time.Now()
	if p.Err != nil {
		i.failed.record(ctx, p.Took.Seconds())
	} else {
		i.committed.record(ctx, p.Took.Seconds())
	}
	for _, r := range p.Results {
		switch {
		case r.Outcome == inbox.DeadLettered:
			i.dead[deadReason(r.Reason)].add(1)
		case r.Outcome == inbox.Applied && !r.Message.Time.IsZero():
			i.endToEnd.record(ctx, max(now.Sub(r.Message.Time).Seconds(), 0))
		}
	}
	if i.t.tracer == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	if p.Err != nil {
		span.SetStatus(codes.Error, "the transaction was not committed")
	}
	if len(p.Results) == 1 {
		span.SetAttributes(attribute.String("postrider.outcome", string(p.Results[0].Outcome)))
	}
	span.End()
}

// Counters is the part of inbox.Consumer that WatchConsumer reads.
type Counters interface {
	Name() string
	Stats() inbox.Stats
	Connected() bool
}

// WatchConsumer exports the counters of a consumer until the returned function is called. Call it after inbox.NewConsumer.
func (t *Telemetry) WatchConsumer(storeName string, c Counters) (stop func()) {
	labels := []string{storeName, c.Name()}
	return t.source(func(r *reading) {
		s := c.Stats()
		for outcome, n := range map[string]int64{
			"applied": s.Applied, "duplicate": s.Duplicates, "skipped": s.Skipped, "parked": s.Parked, "dead": s.Dead,
			"lost": s.Lost, "unacknowledged": s.Unacknowledged,
		} {
			r.set("postrider_consumer_messages_total", float64(n), and(labels, outcome)...)
		}
		r.set("postrider_consumer_failed_attempts_total", float64(s.Failed), labels...)
		r.set("postrider_consumer_logs_replaced_total", float64(s.LogsReplaced), labels...)
		r.flag("postrider_consumer_connected", c.Connected(), labels...)
	})
}
