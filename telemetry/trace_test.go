package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
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

// TestTraceOfAHeldMessage: each attempt of a message that was held for more than a minute is the root of a trace of its own, with a link to
// the span in which the message was published.
func TestTraceOfAHeldMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		tele, err := telemetry.New(telemetry.Config{
			Meter: sdkmetric.NewMeterProvider(), Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		})
		must(t, err)
		s := memory.New(memory.Config{Partitions: 1})
		o, err := outbox.New[*memory.Tx](s, outbox.Config{Source: "test", Observer: tele.Outbox("main"), Propagator: tele.Propagator()})
		must(t, err)
		r, err := relay.New(s, relay.Config{
			Name: "r", Observer: tele.Relay(telemetry.RelayOf{Store: "main", Relay: "r"}), Logger: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		must(t, r.HandleFunc("t", func(_ context.Context, m *postrider.Message) error {
			if m.Attempt == 1 {
				return postrider.Retry(61*time.Second, nil)
			}
			return nil
		}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		_, err = o.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			_, err := o.Publish(ctx, tx, &postrider.Message{Type: "t", Key: "k"})
			return err
		})
		must(t, err)
		time.Sleep(2 * time.Minute)
		stop()
		must(t, <-ended)
		var create trace.SpanID
		var attempts []sdktrace.ReadOnlySpan
		for _, span := range spans.Ended() {
			if span.Name() == "create t" {
				create = span.SpanContext().SpanID()
			} else {
				attempts = append(attempts, span)
			}
		}
		if len(attempts) != 2 || attempts[1].StartTime().Sub(attempts[0].StartTime()) < 61*time.Second {
			t.Fatalf("attempts: %v", attempts)
		}
		for _, span := range attempts {
			if links := span.Links(); span.Name() != "process t" || span.Parent().IsValid() || len(links) != 1 || links[0].SpanContext.SpanID() != create {
				t.Errorf("%s has the parent %v and the links %v, want none and one to %s", span.Name(), span.Parent(), links, create)
			}
		}
	})
}
