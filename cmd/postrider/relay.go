package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/config"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

// relayFlags are the flags of relay, which override the configuration.
type relayFlags struct {
	publisher, name string
	topics, only    []string
	concurrency     int
	listen          string
	stopTimeout     time.Duration
}

func (p *Program) relayCommand() *cobra.Command {
	var f relayFlags
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Move messages from outboxes to brokers until interrupted",
		Long: `Run the relays of the configuration, or one that the flags describe. A relay has one destination and a cursor of its own
in the outbox, so that a dead broker stops only its own relay; processes that run a relay of the same name share its work.

On SIGTERM or SIGINT it takes no new messages, waits for those under way (stop_timeout), records what became of them, gives
its partitions to others and ends with exit code 0. A second signal ends it at once: nothing is lost, some messages may be
delivered again. A broker that is down at the start is waited for.

With --listen it answers over HTTP: /livez while the process lives, /readyz when every relay works and its store answers.
The outbox must exist; create it with postrider migrate up. The broker's options stand in the URL or under
publisher.options, see docs/configuration.md.`,
		Example: `  postrider relay --store sqlite:shop.db --publisher 'nats://127.0.0.1:4222?stream=ORDERS'
  postrider relay --store postgres://relay@db/shop --publisher 'nats://nats:4222?stream=ORDERS' --topics 'order.*,payment.*'
  postrider relay --config /etc/postrider.yaml --listen :8080
  postrider relay --config /etc/postrider.yaml --only to-nats`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			c, logger, err := p.load()
			if err != nil {
				return err
			}
			if err := p.overrideRelays(cmd, c, f); err != nil {
				return err
			}
			return p.runRelays(cmd.Context(), c, logger)
		},
	}
	s := cmd.Flags()
	s.StringVar(&f.publisher, "publisher", "", "`URL` of the broker, e.g. nats://127.0.0.1:4222?stream=ORDERS; also POSTRIDER_PUBLISHER")
	s.StringVar(&f.name, "name", "", "`name` of the relay, which names its cursor (default by the publisher: to-nats, …)")
	s.StringSliceVar(&f.topics, "topics", nil, "only these topics, as `patterns` in which * stands for any text (default all)")
	s.IntVar(&f.concurrency, "concurrency", 0, "`n` calls to the broker under way at once (default 4)")
	s.StringSliceVar(&f.only, "only", nil, "run only these relays of the configuration, by `names`")
	s.StringVar(&f.listen, "listen", "", "`address` for /livez and /readyz, e.g. :8080 (default none)")
	s.DurationVar(&f.stopTimeout, "stop-timeout", 0, "wait at most this `duration` for messages under way when ending (default 30s)")
	return cmd
}

// check refuses flags with an empty value, which would otherwise count as not set: a shell variable may be unset, and no
// topics means all topics.
func (f *relayFlags) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	for _, list := range []struct {
		name   string
		values []string
		all    string
	}{{"topics", f.topics, "for all topics"}, {"only", f.only, "for all relays"}} {
		if changed(list.name) && (len(list.values) == 0 || slices.ContainsFunc(list.values, blank)) {
			return usagef("--%s %q: there is an empty one; leave --%[1]s away %[3]s", list.name, strings.Join(list.values, ","), list.all)
		}
	}
	for name, value := range map[string]string{"name": f.name, "publisher": f.publisher} {
		if changed(name) && blank(value) {
			return usagef("--%s is empty; leave it away, or give one", name)
		}
	}
	if changed("concurrency") && f.concurrency < 1 {
		return usagef("--concurrency must be 1 or more, is %d", f.concurrency)
	}
	if changed("stop-timeout") && f.stopTimeout <= 0 {
		return usagef("--stop-timeout must be positive, is %s", f.stopTimeout)
	}
	if f.listen != "" {
		if err := config.CheckListen(f.listen); err != nil {
			return usagef("--listen: %v", err)
		}
	}
	return nil
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

// overrideRelays applies the flags to the configuration.
func (p *Program) overrideRelays(cmd *cobra.Command, c *config.Config, f relayFlags) error {
	c.HTTP.Listen = cmp.Or(f.listen, c.HTTP.Listen)
	c.StopTimeout = cmp.Or(f.stopTimeout, c.StopTimeout)
	if p.storeFlag != "" || len(c.Relays) == 0 || len(c.AllStores()) == 0 {
		s, err := p.selectStore(c)
		if err != nil {
			return err
		}
		if err := useStore(c, s); err != nil {
			return err
		}
	}
	if err := chooseRelays(c, f.only); err != nil {
		return err
	}
	return p.describeRelay(cmd, c, f)
}

// describeRelay applies the flags that describe a relay to the configured relay, or to a new one.
func (p *Program) describeRelay(cmd *cobra.Command, c *config.Config, f relayFlags) error {
	changed := cmd.Flags().Changed
	switch len(c.Relays) {
	case 0:
		f.publisher = cmp.Or(f.publisher, p.env(config.Prefix+"PUBLISHER"))
		if f.publisher == "" {
			return usagef("no relay is described; give --publisher, POSTRIDER_PUBLISHER, or relays in --config")
		}
		b, err := config.BrokerOf(f.publisher)
		if err != nil {
			return usagef("publisher: %v", err)
		}
		c.Relays = []config.Relay{{Name: "to-" + b.Name}}
	case 1:
	default:
		if changed("publisher") || changed("name") || changed("topics") || changed("concurrency") {
			return usagef("--publisher, --name, --topics and --concurrency describe one relay; the configuration has %d, choose one with --only", len(c.Relays))
		}
		return nil
	}
	r := &c.Relays[0]
	r.Name = cmp.Or(f.name, r.Name)
	if f.publisher != "" {
		r.Publisher = config.Publisher{URL: f.publisher}
	}
	if f.topics != nil {
		r.Topics = f.topics
	}
	r.Concurrency = cmp.Or(f.concurrency, r.Concurrency)
	return nil
}

// useStore makes s, the store that --store names, the store of every relay.
func useStore(c *config.Config, s config.Store) error {
	if s.Name != "" { // a store of the configuration: only its own relays
		c.Relays = slices.DeleteFunc(c.Relays, func(r config.Relay) bool {
			of, _ := c.StoreOf(r)
			return of.Name != s.Name
		})
	} else if len(c.Stores) > 1 {
		return usagef("the configuration has several stores; --store takes one of their names: %s", storeNames(c.Stores))
	}
	c.Store, c.Stores = s, nil
	for i := range c.Relays {
		c.Relays[i].Store = ""
	}
	return nil
}

// chooseRelays keeps the relays that --only names.
func chooseRelays(c *config.Config, only []string) error {
	for _, name := range only {
		if !slices.ContainsFunc(c.Relays, func(r config.Relay) bool { return r.Name == name }) {
			var known []string
			for _, r := range c.Relays {
				known = append(known, r.Name)
			}
			return usagef("--only %s: there is no such relay in the configuration; it has %s", name, cmp.Or(strings.Join(known, ", "), "none"))
		}
	}
	if len(only) > 0 {
		c.Relays = slices.DeleteFunc(c.Relays, func(r config.Relay) bool { return !slices.Contains(only, r.Name) })
	}
	return nil
}

// unit is one relay of the process with its dependencies.
type unit struct {
	config config.Relay
	outbox *backend.Outbox

	mu    sync.Mutex
	relay *relay.Relay // nil until the publisher is connected
}

// runRelays runs the relays of a configuration until ctx ends or one of them fails for good.
func (p *Program) runRelays(ctx context.Context, c *config.Config, logger *slog.Logger) error {
	for _, r := range c.Relays {
		if err := backend.CheckPublisher(r.Publisher); err != nil {
			return fmt.Errorf("relay %s: %w", r.Name, err)
		}
	}
	units, closeAll, err := openUnits(ctx, c, logger)
	defer closeAll()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	server, err := p.serveHealth(ctx, c.HTTP.Listen, units, logger)
	if err != nil {
		return err
	}
	defer server.close()

	errs := make([]error, len(units))
	var running sync.WaitGroup
	for i, u := range units {
		running.Go(func() {
			if errs[i] = u.run(ctx, c, logger); errs[i] != nil {
				stop(errs[i])
			}
		})
	}
	redrives := driveRedrives(ctx, units, logger)
	running.Wait()
	stop(nil)
	redrives.Wait()
	return errors.Join(errs...)
}

// driveRedrives drives the redrives of each store, started by any process, until ctx ends.
func driveRedrives(ctx context.Context, units []*unit, logger *slog.Logger) *sync.WaitGroup {
	var driving sync.WaitGroup
	begun := map[*backend.Outbox]bool{}
	for _, u := range units {
		if !begun[u.outbox] {
			begun[u.outbox] = true
			driving.Go(func() { deadletter.Run(ctx, u.outbox, logger) })
		}
	}
	return &driving
}

// openUnits opens each store once for all its relays.
func openUnits(ctx context.Context, c *config.Config, logger *slog.Logger) (units []*unit, closeAll func(), err error) {
	opened := map[string]*backend.Outbox{}
	closeAll = func() {
		for _, o := range opened {
			o.Close()
		}
	}
	for _, r := range c.Relays {
		s, _ := c.StoreOf(r)
		o, ok := opened[s.Name]
		if !ok {
			if o, err = backend.Open(ctx, s, logger); err != nil {
				return nil, closeAll, fmt.Errorf("relay %s: %w", r.Name, err)
			}
			opened[s.Name] = o
		}
		units = append(units, &unit{config: r, outbox: o})
	}
	return units, closeAll, nil
}

// brokerPatience is how long a broker may be unavailable at the start before this is logged.
const brokerPatience = 5 * time.Second

// run connects the publisher and runs the relay until ctx ends.
func (u *unit) run(ctx context.Context, c *config.Config, logger *slog.Logger) error {
	engine := logger // the relay adds its name to its log itself
	logger = logger.With("relay", u.config.Name)
	logger.Info("connecting to the broker", "publisher", backend.ShownPublisher(u.config.Publisher.URL))
	waiting := time.AfterFunc(brokerPatience, func() {
		logger.Warn("the broker does not answer; trying until it does")
	})
	publisher, closePublisher, err := backend.OpenPublisher(ctx, u.config.Publisher, backend.Uses{
		Relay: u.config.Name, Attempts: u.outbox, Logger: logger,
	})
	waiting.Stop()
	if err != nil {
		if ctx.Err() != nil {
			return nil // interrupted before anything began
		}
		return fmt.Errorf("relay %s: %w", u.config.Name, err)
	}
	defer closePublisher()
	store, _ := c.StoreOf(u.config)
	r, err := relay.New(u.outbox.Store, relayConfig(u.config, store, c.StopTimeout, publisher, engine))
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("relay %s: %w", u.config.Name, err)}
	}
	u.mu.Lock()
	u.relay = r
	u.mu.Unlock()
	logger.Info("relay works", "store", u.outbox.Shown, "owner", r.Owner().ID, "topics", cmp.Or(strings.Join(u.config.Topics, " "), "all"))
	err = r.Run(ctx)
	logger.Info("relay has ended")
	return err
}

// relayConfig translates the configuration; zero values keep the defaults of the package relay.
func relayConfig(r config.Relay, s config.Store, stopTimeout time.Duration, publisher postrider.Publisher, logger *slog.Logger) relay.Config {
	c := relay.Config{
		Name: r.Name, Publisher: publisher, Topics: r.Topics, AcceptUnordered: r.AcceptUnordered,
		RequireDedupe: r.RequireDedupe, RequireMessageBytes: int(r.RequireMessageBytes),
		Concurrency: r.Concurrency, MaxBatch: r.MaxBatch, MaxInFlight: r.MaxInFlight, MaxInFlightBytes: int(r.MaxInFlightBytes),
		MaxHeldKeys: r.MaxHeldKeys, MaxAttempts: r.MaxAttempts, BackoffBase: r.BackoffBase, BackoffMax: r.BackoffMax,
		ParkAfter: r.ParkAfter, AttemptTimeout: r.AttemptTimeout, LeaseTTL: r.LeaseTTL, PollMin: r.PollMin, PollMax: r.PollMax,
		SettleInterval: r.SettleInterval, SettleBatch: r.SettleBatch, StopTimeout: stopTimeout,
		MaxLogBytes: int64(s.MaxLogBytes), KeepRedrives: s.KeepRedrives, Logger: logger, Version: readBuild().Version,
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

// ready reports whether the relay works and its store responds.
func (u *unit) ready(ctx context.Context) error {
	u.mu.Lock()
	r := u.relay
	u.mu.Unlock()
	if r == nil {
		return fmt.Errorf("relay %s: waiting for the broker", u.config.Name)
	}
	if err := r.Ready(); err != nil {
		return err
	}
	if err := u.outbox.Ping(ctx); err != nil {
		return fmt.Errorf("relay %s: the store does not answer: %w", u.config.Name, err)
	}
	return nil
}
