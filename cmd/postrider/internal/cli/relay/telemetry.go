package relay

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/export"
)

// exported is the telemetry of the process; nil without any.
type exported struct {
	*telemetry.Telemetry
	providers *export.Providers
	stop      []func()
}

// flushTimeout limits the sending of the last metrics and spans.
const flushTimeout = 5 * time.Second

// storeName is the label of a store; the only one needs no name.
func storeName(s config.Store) string { return cmp.Or(s.Name, "main") }

// targetsOf returns the targets of all relays of a configuration. A process exports those of relays that others run, too: they are known
// when no process of such a relay is left.
func targetsOf(c *config.Config) map[string]time.Duration {
	targets := make(map[string]time.Duration)
	for _, r := range c.Relays {
		if r.DeliveryTarget > 0 {
			targets[r.Name] = r.DeliveryTarget
		}
	}
	return targets
}

// openTelemetry exports what the configuration asks for: the state of each store, and what the relays do.
func openTelemetry(ctx context.Context, c *config.Config, units []*unit, targets map[string]time.Duration, logger *slog.Logger) (*exported, error) {
	if c.Telemetry.Metrics == "" && c.Telemetry.OTLP == "" && !export.Configured() {
		return nil, nil
	}
	version := program.ReadBuild().Version
	providers, err := export.Open(ctx, export.Config{
		Prometheus: c.Telemetry.Metrics != "", OTLP: c.Telemetry.OTLP, Version: version, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	e := &exported{providers: providers}
	e.Telemetry, err = telemetry.New(telemetry.Config{
		Meter: providers.Meter, Tracer: providers.Tracer, Types: c.Telemetry.Types, Version: version, Prefix: c.Telemetry.Prefix,
	})
	if err != nil {
		return e, err
	}
	stores := make(map[*backend.Outbox]telemetry.StoreOf)
	for _, u := range units {
		s, _ := c.StoreOf(u.config)
		system := ""
		if b, err := config.BrokerOf(u.config.Publisher.URL); err == nil {
			system = b.Name
		}
		u.exported, u.observer = e, e.Relay(telemetry.RelayOf{Store: storeName(s), Relay: u.config.Name, System: system})
		if _, known := stores[u.outbox]; !known {
			stores[u.outbox] = telemetry.StoreOf{
				Name: storeName(s), System: u.outbox.System, Store: u.outbox, Every: c.Telemetry.ReadEvery,
				Targets: targets, Path: u.outbox.DataPath,
			}
		}
	}
	for _, s := range stores {
		e.stop = append(e.stop, e.WatchStore(s))
	}
	return e, nil
}

// handler answers Prometheus; nil if it is not asked for.
func (e *exported) handler() http.Handler {
	if e == nil || e.providers.Handler == nil {
		return nil
	}
	return e.providers.Handler
}

// watchRelay exports what a relay uses, until the returned function is called.
func (e *exported) watchRelay(store string, r *relay.Relay) (stop func()) {
	if e == nil {
		return func() {}
	}
	return e.WatchRelay(store, r)
}

// close sends what is left.
func (e *exported) close(logger *slog.Logger) {
	if e == nil {
		return
	}
	for _, stop := range e.stop {
		stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := e.providers.Shutdown(ctx); err != nil {
		logger.Warn("the last metrics or spans could not be sent", "error", err)
	}
}
