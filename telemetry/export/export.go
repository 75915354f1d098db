// Package export makes the OpenTelemetry providers that telemetry.New needs: metrics for Prometheus, and metrics and traces for
// an OTLP collector over HTTP.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config configures the providers.
type Config struct {
	// Prometheus makes a Handler.
	Prometheus bool
	// OTLP is the URL of a collector, to which /v1/metrics and /v1/traces are added, e.g. "http://collector:4318". Default: the
	// standard variables OTEL_EXPORTER_OTLP_ENDPOINT, …_TRACES_ENDPOINT, …_METRICS_ENDPOINT; without any, nothing is sent.
	OTLP string
	// Service names the program to the collector, unless OTEL_SERVICE_NAME does. Default: "postrider".
	Service, Version string
	// Logger receives the errors of exporters, at most one a minute. Default: slog.Default().
	Logger *slog.Logger
}

// Providers are the providers of a process.
type Providers struct {
	Meter *sdkmetric.MeterProvider
	// Tracer is nil if spans are not sent.
	Tracer trace.TracerProvider
	// Handler answers Prometheus's requests; nil unless Config.Prometheus.
	Handler http.Handler

	shutdown []func(context.Context) error
}

const (
	// maxSpans bounds the spans in memory; when a collector does not take them, new ones are dropped.
	maxSpans = 2048
	// sendTimeout limits a request to the collector.
	sendTimeout = 10 * time.Second
	// scrapes bounds the requests of Prometheus that are answered at a time.
	scrapes       = 10
	scrapeTimeout = 5 * time.Second
)

// Open makes the providers. It does not wait for the collector. Call Shutdown at the end. It sets the error handler of
// OpenTelemetry, which is global.
func Open(ctx context.Context, c Config) (*Providers, error) {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	otel.SetErrorHandler(&limitedLog{logger: c.Logger})
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", cmp.Or(c.Service, "postrider")), attribute.String("service.version", c.Version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("telemetry: describe this process: %w", err)
	}
	p := &Providers{}
	options := []sdkmetric.Option{sdkmetric.WithResource(about)}
	if c.Prometheus {
		reader, err := p.prometheus()
		if err != nil {
			return nil, fmt.Errorf("telemetry: Prometheus: %w", err)
		}
		options = append(options, sdkmetric.WithReader(reader))
	}
	if c.OTLP != "" || given("METRICS") {
		exporter, err := otlpmetrichttp.New(ctx, metricOptions(c.OTLP)...)
		if err != nil {
			return nil, fmt.Errorf("telemetry: OTLP metrics: %w", err)
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithTimeout(sendTimeout))))
	}
	if c.OTLP != "" || given("TRACES") {
		exporter, err := otlptracehttp.New(ctx, traceOptions(c.OTLP)...)
		if err != nil {
			return nil, fmt.Errorf("telemetry: OTLP traces: %w", err)
		}
		tracer := sdktrace.NewTracerProvider(sdktrace.WithResource(about),
			sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(maxSpans), sdktrace.WithExportTimeout(sendTimeout)))
		p.Tracer = tracer
		p.shutdown = append(p.shutdown, tracer.Shutdown)
	}
	p.Meter = sdkmetric.NewMeterProvider(options...)
	p.shutdown = append(p.shutdown, p.Meter.Shutdown)
	return p, nil
}

// Configured says whether the standard variables name a collector.
func Configured() bool { return given("METRICS") || given("TRACES") }

// given says whether a standard variable names a collector for a signal.
func given(signal string) bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

func metricOptions(url string) []otlpmetrichttp.Option {
	options := []otlpmetrichttp.Option{otlpmetrichttp.WithTimeout(sendTimeout)}
	if url != "" {
		options = append(options, otlpmetrichttp.WithEndpointURL(url+"/v1/metrics"))
	}
	return options
}

func traceOptions(url string) []otlptracehttp.Option {
	options := []otlptracehttp.Option{otlptracehttp.WithTimeout(sendTimeout)}
	if url != "" {
		options = append(options, otlptracehttp.WithEndpointURL(url+"/v1/traces"))
	}
	return options
}

// prometheus makes the handler, and the reader that feeds it.
func (p *Providers) prometheus() (sdkmetric.Reader, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.Handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: scrapes, Timeout: scrapeTimeout,
	})
	return otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
}

// Shutdown sends what is left, until ctx ends.
func (p *Providers) Shutdown(ctx context.Context) error {
	var errs []error
	for _, f := range p.shutdown {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// limitedLog logs at most one error a minute, and counts the others.
type limitedLog struct {
	logger *slog.Logger

	mu         sync.Mutex
	last       time.Time
	suppressed int
}

// Handle implements otel.ErrorHandler.
func (l *limitedLog) Handle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last) < time.Minute {
		l.suppressed++
		return
	}
	l.logger.Warn("telemetry could not be exported", "error", err, "suppressed", l.suppressed)
	l.last, l.suppressed = time.Now(), 0
}
