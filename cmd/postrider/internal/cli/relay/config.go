package relay

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/config"
	"github.com/postrider/postrider/relay"
)

// ConfigOf translates the configuration; zero values keep the defaults of the package relay.
func ConfigOf(r config.Relay, s config.Store, stopTimeout time.Duration, publisher postrider.Publisher, logger *slog.Logger) relay.Config {
	c := relay.Config{
		Name: r.Name, Publisher: publisher, Topics: r.Topics, AcceptUnordered: r.AcceptUnordered,
		RequireDedupe: r.RequireDedupe, RequireMessageBytes: int(r.RequireMessageBytes),
		Concurrency: r.Concurrency, MaxBatch: r.MaxBatch, MaxInFlight: r.MaxInFlight, MaxInFlightBytes: int(r.MaxInFlightBytes),
		MaxHeldKeys: r.MaxHeldKeys, MaxAttempts: r.MaxAttempts, BackoffBase: r.BackoffBase, BackoffMax: r.BackoffMax,
		ParkAfter: r.ParkAfter, AttemptTimeout: r.AttemptTimeout, LeaseTTL: r.LeaseTTL, PollMin: r.PollMin, PollMax: r.PollMax,
		SettleInterval: r.SettleInterval, SettleBatch: r.SettleBatch, StopTimeout: stopTimeout,
		KeepTopics: s.Kept(), MaxLogBytes: int64(s.MaxLogBytes), KeepRedrives: s.KeepRedrives, Logger: logger, Version: program.ReadBuild().Version,
	}
	c.MaxRate, c.Burst = r.MaxRate.PerSecond(), r.Burst
	for _, p := range r.Policies {
		c.Policies = append(c.Policies, policyOf(p, r))
	}
	if r.Start == "now" {
		c.Start = relay.FromNow
	}
	if r.OnDead == "hold" {
		c.OnDead = relay.HoldKey
	}
	if s.KeepDelivered != nil {
		c.KeepDelivered = cmp.Or(*s.KeepDelivered, -1) // 0 means do not keep here, but the default in relay.Config
	}
	return c
}

// policyOf translates a policy of a relay.
func policyOf(p config.Policy, r config.Relay) relay.Policy {
	out := relay.Policy{Types: p.Types, MaxAttempts: p.MaxAttempts}
	switch {
	case p.Backoff == "fixed":
		out.Wait = relay.Fixed(p.BackoffBase)
	case p.BackoffBase > 0 || p.BackoffMax > 0:
		out.Wait = relay.Exponential(
			cmp.Or(p.BackoffBase, r.BackoffBase, relay.DefaultBackoffBase), cmp.Or(p.BackoffMax, r.BackoffMax, relay.DefaultBackoffMax))
	}
	if len(p.DiscardErrors) > 0 {
		out.Discard = func(err error) bool {
			text := err.Error()
			return slices.ContainsFunc(p.DiscardErrors, func(part string) bool { return strings.Contains(text, part) })
		}
	}
	return out
}
