package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the meter and of the tracer.
const scope = "github.com/postrider/postrider/telemetry"

// Config configures Telemetry.
type Config struct {
	// Meter makes the instruments. Required. The global provider is not used unless it is given.
	Meter metric.MeterProvider
	// Tracer makes the spans. Default: none.
	Tracer trace.TracerProvider
	// TextMap reads and writes the context of a trace in headers. Default: W3C trace context.
	TextMap propagation.TextMapPropagator
	// Types are the types of messages that are labels, at most 50; others count as "_other". Default: none.
	Types []string
	// Version is the version of the program. Default: that of the build.
	Version string
	// Prefix is what the names of metrics begin with instead of "postrider", which is the default. Alerts and dashboards need the
	// same one.
	Prefix string
}

// prefixes are the valid ones.
var prefixes = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// Telemetry has the instruments of a process. It is safe for concurrent use.
type Telemetry struct {
	tracer  trace.Tracer // nil: no traces
	textMap propagation.TextMapPropagator
	types   []string
	build   []string

	counters   map[string]metric.Int64Counter
	histograms map[string]metric.Float64Histogram
	observed   map[string]metric.Float64Observable
	labels     map[string][]string
	background context.Context

	mu       sync.Mutex
	sources  map[*func(*reading)]struct{} // called at each export
	upkeep   map[string]*upkeep           // by store
	running  map[[2]string]*transactions  // by store and consumer
	readings map[string]*watch            // by store
}

// upkeep is when this process last maintained a store's log; zero as long as it has no reason to.
type upkeep struct{ last time.Time }

// maxTypes bounds the labels of types.
const maxTypes = 50

// New makes the instruments. Errors: those of the configuration, and of the meter.
func New(c Config) (*Telemetry, error) {
	if c.Meter == nil {
		return nil, errors.New("telemetry: New needs a meter provider")
	}
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	if !prefixes.MatchString(c.Prefix) {
		return nil, fmt.Errorf("telemetry: Prefix %q is not of lower-case letters, digits and underscores", c.Prefix)
	}
	if len(c.Types) > maxTypes {
		return nil, fmt.Errorf("telemetry: Types has %d types, the most is %d", len(c.Types), maxTypes)
	}
	t := &Telemetry{
		textMap: c.TextMap, types: slices.Clone(c.Types), build: buildInfo(c.Version),
		counters: make(map[string]metric.Int64Counter), histograms: make(map[string]metric.Float64Histogram),
		observed: make(map[string]metric.Float64Observable), labels: make(map[string][]string),
		background: context.Background(), sources: make(map[*func(*reading)]struct{}),
		upkeep: make(map[string]*upkeep), running: make(map[[2]string]*transactions), readings: make(map[string]*watch),
	}
	if t.textMap == nil {
		t.textMap = propagation.TraceContext{}
	}
	if c.Tracer != nil {
		t.tracer = c.Tracer.Tracer(scope)
	}
	meter := c.Meter.Meter(scope)
	var all []metric.Observable
	for _, m := range metrics {
		observable, err := t.instrument(meter, m, c.Prefix)
		if err != nil {
			return nil, fmt.Errorf("telemetry: %s: %w", m.Name, err)
		}
		if observable != nil {
			all = append(all, observable)
		}
	}
	_, err := meter.RegisterCallback(t.export, all...)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return t, nil
}

// buildInfo returns the version, revision and Go version of the program.
func buildInfo(version string) []string {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if version == "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return []string{version, revision, runtime.Version()}
}

// defaultPrefix is that of the names in the table of metrics.
const defaultPrefix = "postrider"

// otelName returns the OpenTelemetry name of a metric.
func (m *Metric) otelName(prefix string) string {
	name := strings.TrimSuffix(prefix+strings.TrimPrefix(m.Name, defaultPrefix), "_total")
	switch m.Unit {
	case "s":
		name = strings.TrimSuffix(name, "_seconds")
	case "By":
		name = strings.TrimSuffix(name, "_bytes")
	}
	return strings.ReplaceAll(name, "_", ".")
}

// instrument makes the instrument of a metric, and returns it if it is observed at each export.
func (t *Telemetry) instrument(meter metric.Meter, m Metric, prefix string) (observable metric.Observable, err error) {
	name, unit, help := m.otelName(prefix), metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
	t.labels[m.Name] = m.Labels
	switch {
	case m.Kind == Histogram:
		t.histograms[m.Name], err = meter.Float64Histogram(name, unit, help, metric.WithExplicitBucketBoundaries(m.buckets...))
		return nil, err
	case !m.read:
		t.counters[m.Name], err = meter.Int64Counter(name, unit, help)
		return nil, err
	case m.Kind == Counter:
		o, err := meter.Float64ObservableCounter(name, unit, help)
		t.observed[m.Name] = o
		return o, err
	default:
		o, err := meter.Float64ObservableGauge(name, unit, help)
		t.observed[m.Name] = o
		return o, err
	}
}

// set returns the attributes of a metric for values in the order of its labels. "name=value" adds another label.
func (t *Telemetry) set(name string, values []string) metric.MeasurementOption {
	labels := t.labels[name]
	attributes := make([]attribute.KeyValue, 0, len(values))
	for i, v := range values {
		if i < len(labels) {
			attributes = append(attributes, attribute.String(labels[i], v))
		} else if key, value, ok := strings.Cut(v, "="); ok {
			attributes = append(attributes, attribute.String(key, value))
		}
	}
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

// boundCounter is a counter with its labels.
type boundCounter struct {
	counter metric.Int64Counter
	with    []metric.AddOption
}

// counter returns a counter, which is exported as 0 from now on.
func (t *Telemetry) counter(name string, values ...string) boundCounter {
	b := boundCounter{t.counters[name], []metric.AddOption{t.set(name, values)}}
	b.add(0)
	return b
}

func (b boundCounter) add(n int64) { b.counter.Add(context.Background(), n, b.with...) }

// countersBy returns a counter for each value of the last label.
func countersBy[L ~string](t *Telemetry, name string, values []string, last []L) map[L]boundCounter {
	out := make(map[L]boundCounter, len(last))
	for _, l := range last {
		out[l] = t.counter(name, and(values, string(l))...)
	}
	return out
}

// boundHistogram is a histogram with its labels.
type boundHistogram struct {
	histogram metric.Float64Histogram
	with      []metric.RecordOption
}

func (t *Telemetry) histogram(name string, values ...string) boundHistogram {
	return boundHistogram{t.histograms[name], []metric.RecordOption{t.set(name, values)}}
}

// record records a value. A sampled span in ctx becomes its exemplar.
func (b boundHistogram) record(ctx context.Context, value float64) {
	b.histogram.Record(ctx, value, b.with...)
}

// reading is one export of the values that are read.
type reading struct {
	t        *Telemetry
	observer metric.Observer
}

// set exports a value.
func (r *reading) set(name string, value float64, values ...string) {
	r.observer.ObserveFloat64(r.t.observed[name], value, r.t.set(name, values))
}

// flag exports whether something is the case.
func (r *reading) flag(name string, is bool, values ...string) {
	value := 0.0
	if is {
		value = 1
	}
	r.set(name, value, values...)
}

// export exports everything that is read.
func (t *Telemetry) export(_ context.Context, o metric.Observer) error {
	r := &reading{t, o}
	r.set("postrider_build_info", 1, t.build...)
	t.mu.Lock()
	var sources []func(*reading)
	for f := range t.sources {
		sources = append(sources, *f)
	}
	for name, u := range t.upkeep {
		if !u.last.IsZero() {
			r.set("postrider_maintenance_age_seconds", time.Since(u.last).Seconds(), name)
		}
	}
	t.mu.Unlock()
	for _, f := range sources {
		f(r)
	}
	return nil
}

// source calls f at each export until the returned function is called.
func (t *Telemetry) source(f func(*reading)) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[&f] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.sources, &f)
	}
}
