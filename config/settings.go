package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

// Relay returns the settings of a relay, without what a file cannot say: Publisher, Gate, interceptors, Observer, Propagator, Logger and
// Version. Retention is that of its store. It returns an error if the configuration has no relay of this name.
func (c *Config) Relay(name string) (relay.Config, error) {
	i := slices.IndexFunc(c.Relays, func(r Relay) bool { return r.Name == name })
	if i < 0 {
		return relay.Config{}, c.unknown("relay", name, len(c.Relays), func(i int) string { return c.Relays[i].Name })
	}
	s, _ := c.StoreOf(c.Relays[i])
	return c.Relays[i].Settings(s, c.StopTimeout), nil
}

// Consumer returns the settings of a consumer, without what a file cannot say: Gate, Versions, Context, Interceptors, Observer, Propagator,
// Logger and Version. It returns an error if the configuration has no consumer of this name.
func (c *Config) Consumer(name string) (inbox.ConsumerConfig, error) {
	i := slices.IndexFunc(c.Consumers, func(r Consumer) bool { return r.Name == name })
	if i < 0 {
		return inbox.ConsumerConfig{}, c.unknown("consumer", name, len(c.Consumers), func(i int) string { return c.Consumers[i].Name })
	}
	return c.Consumers[i].settings(c.StopTimeout), nil
}

// unknown is the error for a relay or consumer that the configuration does not have.
func (c *Config) unknown(what, name string, n int, nameOf func(i int) string) error {
	names := make([]string, n)
	for i := range names {
		names[i] = nameOf(i)
	}
	return fmt.Errorf("the configuration has no %s %q; it has %s", what, name, cmp.Or(strings.Join(names, ", "), "none"))
}

// Settings are those of a relay whose outbox is in a store; zero values keep the defaults of package relay.
func (r Relay) Settings(s Store, stopTimeout time.Duration) relay.Config {
	out := relay.Config{
		Name: r.Name, Disabled: r.Disabled, Topics: r.Topics, AcceptUnordered: r.AcceptUnordered,
		RequireDedupe: r.RequireDedupe, RequireMessageBytes: int(r.RequireMessageBytes),
		Concurrency: r.Concurrency, MaxSlowCalls: r.MaxSlowCalls, MaxBatch: r.MaxBatch, TxBatch: r.TxBatch,
		MaxInFlight: r.MaxInFlight, MaxInFlightBytes: int(r.MaxInFlightBytes), MaxHeldKeys: r.MaxHeldKeys,
		MaxRate: r.MaxRate.PerSecond(), Burst: r.Burst,
		MaxAttempts: r.MaxAttempts, BackoffBase: r.BackoffBase, BackoffMax: r.BackoffMax, Policies: policies(r.Policies, r.BackoffBase, r.BackoffMax),
		OnDead: r.OnDead.choice(), UnhandledFor: r.UnhandledFor, UnavailableWait: r.UnavailableWait,
		ParkAfter: r.ParkAfter, AttemptTimeout: r.AttemptTimeout, LeaseTTL: r.LeaseTTL, PollMin: r.PollMin, PollMax: r.PollMax,
		SettleInterval: r.SettleInterval, SettleBatch: r.SettleBatch, StopTimeout: stopTimeout,
		KeepTopics: s.Kept(), MaxLogBytes: int64(s.MaxLogBytes), KeepRedrives: s.KeepRedrives,
	}
	if r.Start == "now" {
		out.Start = relay.FromNow
	}
	if s.KeepDelivered != nil {
		out.KeepDelivered = cmp.Or(*s.KeepDelivered, -1) // 0 means do not keep here, but the default in relay.Config
	}
	return out
}

// settings translates the configuration of a consumer; zero values keep the defaults of package inbox.
func (c Consumer) settings(stopTimeout time.Duration) inbox.ConsumerConfig {
	out := inbox.ConsumerConfig{
		Name: c.Name, Disabled: c.Disabled, KeepIDs: c.KeepIDs, ReplayWindow: c.ReplayWindow, RequireOrder: c.RequireOrder,
		Concurrency: c.Concurrency, RetryConcurrency: c.RetryConcurrency, Batch: c.Batch,
		MaxInFlight: c.MaxInFlight, MaxInFlightBytes: int(c.MaxInFlightBytes),
		MaxAttempts: c.MaxAttempts, LocalAttempts: c.LocalAttempts, LocalFor: c.LocalFor, ParkAfter: c.ParkAfter,
		BackoffBase: c.BackoffBase, BackoffMax: c.BackoffMax, Policies: policies(c.Policies, c.BackoffBase, c.BackoffMax),
		OnDead: c.OnDead.choice(), UnhandledFor: c.UnhandledFor, UnavailableWait: c.UnavailableWait, AttemptTimeout: c.AttemptTimeout,
		LeaseTTL: c.LeaseTTL, StopTimeout: stopTimeout,
	}
	if c.Unhandled == "skip" {
		out.Unhandled = inbox.SkipUnhandled
	}
	if c.Replays == "all" {
		out.Replays = inbox.HandleReplays
	}
	return out
}

// choice translates the value.
func (d OnDead) choice() relay.OnDead {
	if d == "hold" {
		return relay.HoldKey
	}
	return relay.ContinueKey
}

// policies translates policies; base and limit are the bounds of the wait for all types.
func policies(all []Policy, base, limit time.Duration) (out []relay.Policy) {
	for _, p := range all {
		out = append(out, p.settings(base, limit))
	}
	return out
}

func (p Policy) settings(base, limit time.Duration) relay.Policy {
	out := relay.Policy{Types: p.Types, MaxAttempts: p.MaxAttempts}
	switch {
	case p.Backoff == "fixed":
		out.Wait = relay.Fixed(p.BackoffBase)
	case p.BackoffBase > 0 || p.BackoffMax > 0:
		out.Wait = relay.Exponential(
			cmp.Or(p.BackoffBase, base, relay.DefaultBackoffBase), cmp.Or(p.BackoffMax, limit, relay.DefaultBackoffMax))
	}
	if len(p.DiscardErrors) > 0 {
		out.Discard = func(err error) bool {
			text := err.Error()
			return slices.ContainsFunc(p.DiscardErrors, func(part string) bool { return strings.Contains(text, part) })
		}
	}
	return out
}
