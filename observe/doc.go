// Package observe has what outboxes, relays, consumers and saga engines tell those who watch them, for metrics and traces.
// telemetry.Telemetry makes observers for OpenTelemetry and Prometheus; use this package to write your own:
//
//	cfg := relay.Config{Name: "shop", Observer: &observe.Relay{
//		LeasesChanged: func(change observe.LeaseChange, n int) { leases.Add(string(change), n) },
//	}}
//
// Each observer is a struct of functions, of which any may be nil. They are called from the goroutines of what they observe,
// several at a time, and must return at once, since their callers wait for them. They must not change what they are given, and
// must not call what they observe.
package observe
