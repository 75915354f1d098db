package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/store"
)

// Consumer returns the observer of a consumer, whose database is the given store.
func (t *Telemetry) Consumer(storeName, consumer string) *observe.Consumer {
	i := &consumerInstruments{
		t: t, consumer: consumer, running: t.transactions(storeName, consumer),
		committed: t.histogram("postrider_consumer_transaction_duration_seconds", storeName, consumer, "committed"),
		failed:    t.histogram("postrider_consumer_transaction_duration_seconds", storeName, consumer, "failed"),
		endToEnd:  t.histogram("postrider_consumer_end_to_end_seconds", storeName, consumer),
		dead:      t.deadLettered(storeName, consumer, store.KindConsumer),
	}
	return &observe.Consumer{
		Processing: i.onProcessing, Processed: i.onProcessed,
		Parked: t.relay(RelayOf{Store: storeName, Relay: consumer}, store.KindConsumer),
	}
}

type consumerInstruments struct {
	t                           *Telemetry
	consumer                    string
	running                     *transactions
	committed, failed, endToEnd boundHistogram
	dead                        map[string]boundCounter
}

// transactions are those in progress, by when they began.
type transactions struct {
	mu    sync.Mutex
	began map[*time.Time]struct{}
}

type transactionKey struct{}

// transactions returns those in progress of a consumer, whose processes may follow each other.
func (t *Telemetry) transactions(storeName, consumer string) *transactions {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := [2]string{storeName, consumer}
	if t.running[of] == nil {
		t.running[of] = &transactions{began: make(map[*time.Time]struct{})}
	}
	return t.running[of]
}

func (r *transactions) begin(ctx context.Context) context.Context {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began[&now] = struct{}{}
	return context.WithValue(ctx, transactionKey{}, &now)
}

func (r *transactions) end(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if began, ok := ctx.Value(transactionKey{}).(*time.Time); ok {
		delete(r.began, began)
	}
}

// longest returns how long the longest has taken.
func (r *transactions) longest() (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for began := range r.began {
		longest = max(longest, time.Since(*began))
	}
	return longest
}

// onProcessing begins the span of a transaction, as that of a relay's call.
func (i *consumerInstruments) onProcessing(ctx context.Context, msgs []*postrider.Message) context.Context {
	ctx = i.running.begin(ctx)
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
	ctx, _ = i.t.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithSpanKind(kind), trace.WithLinks(i.t.links(msgs)...), //nolint:spancheck // onProcessed ends the span, which is in ctx
		trace.WithAttributes(attributes...))
	return ctx
}

func (i *consumerInstruments) onProcessed(ctx context.Context, p observe.Processed) {
	i.running.end(ctx)
	now := time.Now()
	if p.Err != nil {
		i.failed.record(ctx, p.Took.Seconds())
	} else {
		i.committed.record(ctx, p.Took.Seconds())
	}
	for _, r := range p.Results {
		switch {
		case r.Outcome == observe.DeadLettered:
			i.dead[deadReason(r.Reason)].add(1)
		case r.Outcome == observe.Applied && !r.Message.Time.IsZero():
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
	labels, running := []string{storeName, c.Name()}, t.transactions(storeName, c.Name())
	return t.source(func(r *reading) {
		s := c.Stats()
		for outcome, n := range map[string]int64{
			"applied": s.Applied, "duplicate": s.Duplicates, "skipped": s.Skipped, "parked": s.Parked, "dead": s.Dead, "discarded": s.Discarded,
			"lost": s.Lost, "unacknowledged": s.Unacknowledged,
		} {
			r.set("postrider_consumer_messages_total", float64(n), and(labels, outcome)...)
		}
		r.set("postrider_consumer_failed_attempts_total", float64(s.Failed), labels...)
		r.set("postrider_consumer_logs_replaced_total", float64(s.LogsReplaced), labels...)
		r.set("postrider_consumer_removed_messages_total", float64(s.Missing), labels...)
		r.set("postrider_consumer_longest_transaction_seconds", running.longest().Seconds(), labels...)
		r.flag("postrider_consumer_connected", c.Connected(), labels...)
	})
}
