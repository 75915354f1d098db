package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/telemetry"
)

// TestExemplars: in the format OpenMetrics, the histograms of a call have the trace of one of its messages.
func TestExemplars(t *testing.T) {
	t.Parallel()
	w := newWorld(t, telemetry.Config{Tracer: sdktrace.NewTracerProvider()})
	o := w.Relay(telemetry.RelayOf{Store: "main", Relay: "r"})
	m := postrider.Message{Type: "t", CreatedAt: time.Now()}
	ctx := o.Attempting(t.Context(), []*postrider.Message{&m})
	o.Attempted(ctx, observe.Attempted{Took: time.Millisecond, Attempts: []observe.Attempt{{Message: &m, Outcome: observe.AttemptDelivered}}})
	want := trace.SpanContextFromContext(ctx).TraceID().String()

	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	rec := httptest.NewRecorder()
	w.providers.Handler.ServeHTTP(rec, request)
	for _, name := range []string{"attempt_duration", "latency"} {
		if !regexp.MustCompile(`(?m)^postrider_relay_` + name + `_seconds_bucket\{.*# \{.*trace_id="` + want + `"`).MatchString(rec.Body.String()) {
			t.Errorf("%s has no exemplar with the trace %s:\n%s", name, want, rec.Body.String())
		}
	}
}
