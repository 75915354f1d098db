package main

import (
	"context"
	"errors"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/export"
)

// observedEntry is the first entry with the metrics of package telemetry, for the ratio between both.
func (b *bundle) observedEntry(s store.Relay) entry {
	return entry{name: "Postrider, 10,000 keys, with telemetry", role: report.Ours, limit: oursKeyed, run: func(ctx context.Context) (report.Figures, error) {
		providers, err := export.Open(ctx, export.Config{Prometheus: true})
		if err != nil {
			return nil, err
		}
		t, err := telemetry.New(telemetry.Config{Meter: providers.Meter})
		if err == nil {
			err = b.drain(ctx, s, relay.Config{Publisher: &counter{}, Observer: t.Relay(telemetry.RelayOf{Store: "bench", Relay: "observed"})}, b.n)
		}
		return nil, errors.Join(err, providers.Shutdown(ctx))
	}}
}
