package scenario_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/postrider/postrider/internal/prometheustest"
	"github.com/postrider/postrider/telemetry/internal/dashboard"
	"github.com/postrider/postrider/telemetry/internal/scenario"
)

// TestDashboardsInPrometheus: in a Prometheus that scrapes two processes of a system under load and faults, each query of the dashboards
// returns data, and the right numbers, and exemplars lead to traces.
func TestDashboardsInPrometheus(t *testing.T) { // not in parallel: the tests in virtual time leave it no processor
	spans := tracetest.NewSpanRecorder()
	w, second := newTracedWorld(t, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))), newWorld(t)
	s := scenario.Start(t, w.config(500*time.Millisecond))
	s.Watch(second.Telemetry)
	p := &prometheus{t, prometheustest.Start(t, prometheustest.Config{
		Rules: readFile(t, rulesFile), Targets: []http.Handler{w.metrics, second.metrics},
	})}
	provoke(slices.DeleteFunc(s.Faults(), func(f scenario.Fault) bool {
		return f.Name == "engine stops and starts" // which leaves the panels of sagas empty for most of a minute
	}))
	prometheustest.Await(t, "data of the dashboards", p.emptyPanels)
	prometheustest.Await(t, "right numbers", p.wrongNumbers)
	prometheustest.Await(t, "exemplars", func() []string { return p.withoutExemplar(spans) })
}

// withoutExemplar returns the histograms without an exemplar whose trace was exported.
func (p *prometheus) withoutExemplar(spans *tracetest.SpanRecorder) (without []string) {
	p.t.Helper()
	exported := make(map[string]bool)
	for _, span := range spans.Ended() {
		exported[span.SpanContext().TraceID().String()] = true
	}
	for _, name := range []string{"postrider_relay_attempt_duration_seconds_bucket", "postrider_relay_latency_seconds_bucket"} {
		if !slices.ContainsFunc(p.Exemplars(name), func(labels map[string]string) bool { return exported[labels["trace_id"]] }) {
			without = append(without, name)
		}
	}
	return without
}

// prometheus is a Prometheus with the test that asks it.
type prometheus struct {
	t *testing.T
	*prometheustest.Server
}

// emptyPanels returns the queries of the dashboards without data.
func (p *prometheus) emptyPanels() (empty []string) {
	p.t.Helper()
	for _, d := range dashboard.All() {
		for _, panel := range d.Panels {
			for _, q := range panel.Queries {
				if p.Count(q.All()) == 0 {
					empty = append(empty, d.Title+", "+panel.Title+": "+q.Expr)
				}
			}
		}
	}
	return empty
}

// rightNumbers are what panels show under the faults, although two processes export them: the value of the series with a label.
var rightNumbers = []struct {
	panel, label, value string
	want                float64
}{
	{"Destination up", "relay", "to-broker", 0},
	{"Processes", "relay", "mails", 0},
	{"Processes", "relay", "paused", 1},
	{"Held keys", "relay", "keys", 1},
	{"Open dead letters", "relay", "keys", 1},
	{"Open dead letters", "relay", "surge", 100},
	{"Paused", "relay", "paused", 1},
	{"Paused", "relay", "keys", 0},
	{"Gate closed", "relay", "gated", 1},
	{"Partitions without an owner", "relay", "unowned", 2},
	{"Partitions without an owner", "relay", "keys", 0},
	{"Store up", "store", "other", 0},
	{"Store up", "store", "main", 1},
	{"Connected", "consumer", "billing", 0},
	{"Connected", "consumer", "archive", 1},
	{"Stuck", "saga", "fulfilment", 1},
	{"Without a definition", "saga", "legacy", 1},
	{"Without a definition", "saga", "fulfilment", 0},
	{"Active", "saga", "legacy", 1},
	{"Breakers that are not closed", "state", "open", 1},
}

// wrongNumbers returns the panels that show another number than is right.
func (p *prometheus) wrongNumbers() (wrong []string) {
	p.t.Helper()
	for _, want := range rightNumbers {
		highest := -1.0
		for _, v := range p.Query(queryOf(p.t, want.panel).All()) {
			if v.Labels[want.label] == want.value {
				highest = max(highest, v.Value)
			}
		}
		if highest != want.want {
			wrong = append(wrong, fmt.Sprintf("%s of %s is %v, want %v", want.panel, want.value, highest, want.want))
		}
	}
	return wrong
}

// queryOf returns the first query of a panel.
func queryOf(t *testing.T, title string) dashboard.Query {
	t.Helper()
	for _, d := range dashboard.All() {
		for _, panel := range d.Panels {
			if panel.Title == title {
				return panel.Queries[0]
			}
		}
	}
	t.Fatalf("there is no panel %s", title)
	return dashboard.Query{}
}
