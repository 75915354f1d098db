package telemetry

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
)

// maxLinks bounds the links of a span.
const maxLinks = 128

// Propagator writes the context of the current trace into the headers of published messages (outbox.Config.Propagator). A
// message whose headers have one already keeps it.
func (t *Telemetry) Propagator() postrider.Propagator { return propagator{t.textMap} }

type propagator struct{ textMap propagation.TextMapPropagator }

// Inject implements postrider.Propagator.
func (p propagator) Inject(ctx context.Context, headers map[string]string) {
	p.textMap.Inject(ctx, propagation.MapCarrier(headers))
}

// Extract implements postrider.Propagator.
func (p propagator) Extract(ctx context.Context, headers map[string]string) context.Context {
	return p.textMap.Extract(ctx, propagation.MapCarrier(headers))
}

// links returns the contexts in which messages were published.
func (t *Telemetry) links(msgs []*postrider.Message) []trace.Link {
	var out []trace.Link
	for _, m := range msgs {
		if len(m.Headers) == 0 {
			continue
		}
		published := trace.SpanContextFromContext(t.textMap.Extract(t.background, propagation.MapCarrier(m.Headers)))
		if published.IsValid() {
			if out = append(out, trace.Link{SpanContext: published}); len(out) == maxLinks {
				break
			}
		}
	}
	return out
}

// about returns the attributes of messages in a call. Keys, tenants and payloads are not among them.
func about(msgs []*postrider.Message) (out []attribute.KeyValue, topic string) {
	first := msgs[0]
	topic = first.Topic
	for _, m := range msgs[1:] {
		if m.Topic != topic {
			topic = ""
			break
		}
	}
	if topic != "" {
		out = append(out, attribute.String("messaging.destination.name", topic))
	}
	if len(msgs) > 1 {
		return append(out, attribute.Int("messaging.batch.message_count", len(msgs))), topic
	}
	out = append(out, attribute.String("messaging.message.id", first.ID), attribute.String("postrider.type", first.Type),
		attribute.Int64("postrider.sequence", first.Sequence), attribute.Int("postrider.attempt", first.Attempt))
	if first.CorrelationID != "" {
		out = append(out, attribute.String("messaging.message.conversation_id", first.CorrelationID))
	}
	return out, topic
}

// onAttempting begins the span of a call: "send" to a broker, "process" for a handler, "transact" for several messages in a
// transaction. It is the root of a trace of its own, with links to the contexts in which the messages were published: a message
// may have waited longer than its trace was kept, and a batch has many.
func (i *relayInstruments) onAttempting(ctx context.Context, msgs []*postrider.Message) context.Context {
	if i.t.tracer == nil {
		return ctx
	}
	attributes, topic := about(msgs)
	attributes = append(attributes, attribute.String("postrider.relay", i.of.Relay))
	name, kind, operation := "process "+msgs[0].Type, trace.SpanKindConsumer, "process"
	switch {
	case i.of.System != "":
		name, kind, operation = "send "+topic, trace.SpanKindClient, "send"
		attributes = append(attributes, attribute.String("messaging.system", i.of.System))
	case len(msgs) > 1:
		name, kind = "transact "+i.of.Relay, trace.SpanKindInternal
	}
	attributes = append(attributes, attribute.String("messaging.operation.name", operation), attribute.String("messaging.operation.type", operation))
	ctx, _ = i.t.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithSpanKind(kind), trace.WithLinks(i.t.links(msgs)...), //nolint:spancheck // endSpan ends the span, which is in ctx
		trace.WithAttributes(attributes...))
	return ctx
}

// endSpan ends the span of a call.
func (i *relayInstruments) endSpan(ctx context.Context, a observe.Attempted) {
	if i.t.tracer == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	failed := 0
	for n := range a.Attempts {
		switch a.Attempts[n].Outcome {
		case observe.AttemptRetried, observe.AttemptDead, observe.AttemptUnavailable:
			failed++
		}
	}
	if failed > 0 {
		span.SetStatus(codes.Error, fmt.Sprintf("%d of %d messages failed", failed, len(a.Attempts)))
	}
	if len(a.Attempts) == 1 {
		span.SetAttributes(attribute.String("postrider.outcome", string(a.Attempts[0].Outcome)))
	}
	span.End()
}
