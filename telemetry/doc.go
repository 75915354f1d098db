// Package telemetry exports metrics and traces of outboxes, relays and consumers through OpenTelemetry.
//
//	t, err := telemetry.New(telemetry.Config{Meter: meterProvider, Tracer: tracerProvider})
//	...
//	o, err := outbox.New(store, outbox.Config{Source: "shop", Observer: t.Outbox("main"), Propagator: t.Propagator()})
//	r, err := relay.New(store, relay.Config{Name: "to-nats", Publisher: p, Observer: t.Relay(telemetry.RelayOf{Store: "main", Relay: "to-nats", System: "nats"})})
//	defer t.WatchRelay("main", r)()
//	defer t.WatchStore(telemetry.StoreOf{Name: "main", Store: store})()
//
// A saga.Config has Observer: t.Saga("main"), and an admin.Config has AuditFailed: t.AuditFailed("main").
//
// There are two kinds of metrics. The state of an outbox (backlog, age of the oldest undelivered message, held keys, dead
// letters, processes) is read from its database, whoever did the work; any process can export it, and several that do export
// the same numbers (take their maximum). The rest counts what this process does. Metrics lists all of them; the package export
// makes providers for Prometheus and OTLP.
//
// No label has a value that users or messages determine: types of messages are labels only if Config.Types lists them.
package telemetry
