package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
)

// Outbox returns the observer of an outbox. With Propagator, consumers' spans link to the one of the call that published.
func (t *Telemetry) Outbox(storeName string) *observe.Outbox {
	i := &outboxInstruments{
		t: t, written: t.counter("postrider_outbox_written_messages_total", storeName),
		refused:  countersBy(t, "postrider_outbox_refused_messages_total", []string{storeName}, []string{"invalid", "store"}),
		duration: t.histogram("postrider_outbox_publish_duration_seconds", storeName),
		size:     t.histogram("postrider_outbox_message_bytes", storeName),
	}
	return &observe.Outbox{Publishing: i.onPublishing, Published: i.onPublished}
}

type outboxInstruments struct {
	t              *Telemetry
	written        boundCounter
	refused        map[string]boundCounter
	duration, size boundHistogram
}

// onPublishing begins the span of a call, a child of the caller's.
func (i *outboxInstruments) onPublishing(ctx context.Context, msgs []*postrider.Message) context.Context {
	if i.t.tracer == nil || len(msgs) == 0 || msgs[0] == nil {
		return ctx
	}
	name := "create " + msgs[0].Type
	for _, m := range msgs {
		if m != nil && m.Type != msgs[0].Type {
			name = "create"
		}
	}
	ctx, _ = i.t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes( //nolint:spancheck // onPublished ends the span, which is in ctx
		attribute.String("messaging.operation.name", "create"), attribute.String("messaging.operation.type", "create"),
		attribute.Int("messaging.batch.message_count", len(msgs))))
	return ctx
}

func (i *outboxInstruments) onPublished(ctx context.Context, p observe.Published) {
	i.duration.record(ctx, p.Took.Seconds())
	switch {
	case p.Err == nil:
		i.written.add(int64(len(p.Messages)))
		for _, m := range p.Messages {
			i.size.record(i.t.background, float64(m.Size()))
		}
	case errors.As(p.Err, new(*postrider.ValidationError)):
		i.refused["invalid"].add(int64(len(p.Messages)))
	default:
		i.refused["store"].add(int64(len(p.Messages)))
	}
	if i.t.tracer == nil {
		return
	}
	if span := trace.SpanFromContext(ctx); len(p.Messages) > 0 && p.Messages[0] != nil {
		if p.Err != nil {
			span.SetStatus(codes.Error, "nothing was written")
		}
		span.End()
	}
}
