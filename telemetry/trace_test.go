package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
	"github.com/postrider/postrider/telemetry"
)

// TestTraceFromPublisherToConsumer: the spans of the relay and of the consumer link to the span in which the message was
// published, through the outbox and the broker, and each is the root of a trace of its own.
//
// size: it sets up a publisher, a relay, a broker and a consumer.
func TestTraceFromPublisherToConsumer(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	tele, err := telemetry.New(telemetry.Config{Meter: sdkmetric.NewMeterProvider(), Tracer: provider})
	must(t, err)
	quiet := slog.New(slog.DiscardHandler)

	s := memory.New(memory.Config{Partitions: 1})
	o, err := outbox.New[*memory.Tx](s, outbox.Config{Source: "test", Observer: tele.Outbox("main"), Propagator: tele.Propagator()})
	must(t, err)
	broker, err := memorybroker.New(memorybroker.Config{})
	must(t, err)
	r, err := relay.New(s, relay.Config{
		Name: "r", Publisher: broker, Observer: tele.Relay(telemetry.RelayOf{Store: "main", Relay: "r", System: "memory"}), Logger: quiet,
	})
	must(t, err)
	subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "c", Topics: []string{"t"}, Partitions: 1})
	must(t, err)
	in, err := inbox.New(memory.New(memory.Config{Partitions: 1}))
	must(t, err)
	var log bytes.Buffer
	logger := slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, nil)))
	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "c", Observer: tele.Consumer("other", "c"), Logger: quiet})
	must(t, err)
	handled := make(chan trace.SpanContext, 1)
	must(t, c.HandleFunc("t", func(ctx context.Context, _ *memory.Tx, _ *postrider.Message) error {
		logger.InfoContext(ctx, "handled")
		handled <- trace.SpanContextFromContext(ctx)
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- r.Run(ctx) }()
	go func() { done <- c.Run(ctx) }()

	request, root := provider.Tracer("test").Start(t.Context(), "request")
	_, err = o.InTx(request, func(ctx context.Context, tx *memory.Tx) error {
		_, err := o.Publish(ctx, tx, &postrider.Message{Type: "t", Key: "k"})
		return err
	})
	must(t, err)
	root.End()
	var inHandler trace.SpanContext
	select {
	case inHandler = <-handled:
	case <-time.After(time.Minute):
		t.Fatal("not handled")
	}
	cancel()
	must(t, <-done)
	must(t, <-done)

	byName := make(map[string]sdktrace.ReadOnlySpan)
	for _, span := range spans.Ended() {
		byName[span.Name()] = span
	}
	create, send, process := byName["create t"], byName["send t"], byName["process t"]
	if create == nil || send == nil || process == nil {
		t.Fatalf("spans: %v", byName)
	}
	if create.Parent().SpanID() != root.SpanContext().SpanID() {
		t.Errorf("create is no child of the request")
	}
	for _, span := range []sdktrace.ReadOnlySpan{send, process} {
		if links := span.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != create.SpanContext().SpanID() {
			t.Errorf("%s has the links %v, want one to create", span.Name(), links)
		}
		if span.Parent().IsValid() || span.SpanContext().TraceID() == create.SpanContext().TraceID() {
			t.Errorf("%s is not the root of a trace of its own", span.Name())
		}
	}
	if inHandler.SpanID() != process.SpanContext().SpanID() || !strings.Contains(log.String(), "trace_id="+inHandler.TraceID().String()) {
		t.Errorf("the handler has span %s, want %s; log: %s", inHandler.SpanID(), process.SpanContext().SpanID(), log.String())
	}
}
