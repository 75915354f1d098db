// Package relay has the command "postrider relay", which runs relays.
package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replay"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	var f Flags
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Move messages from outboxes to brokers until interrupted",
		Long: `Run the relays of the configuration, or one that the flags describe. A relay has one destination and a cursor of its own
in the outbox, so that a dead broker stops only its own relay; processes that run a relay of the same name share its work.

On SIGTERM or SIGINT it takes no new messages, waits for those under way (stop_timeout), records what became of them, gives
its partitions to others and ends with exit code 0. A second signal ends it at once: nothing is lost, some messages may be
delivered again. A broker that is down at the start is waited for. A relay that cannot continue, because its broker refuses
the password for example, does not affect the others of the process: /readyz and the log report it, and the exit code is 1
once the process ends. It is tried again when the process starts.

A relay of a new name begins with the oldest message that the log still has. With start: now in the configuration, it begins
with what is published after its first start.

With --listen it answers over HTTP: /livez while the process lives, /readyz when every relay works and its store answers.
With --metrics it answers Prometheus at /metrics, at the address of --listen or another one. Metrics and traces are sent to
an OTLP collector if telemetry.otlp or OTEL_EXPORTER_OTLP_ENDPOINT names one.
The outbox must exist; create it with postrider migrate up. The broker's options stand in the URL or under
publisher.options, see docs/configuration.md.`,
		Example: `  postrider relay --store sqlite:shop.db --publisher 'nats://127.0.0.1:4222?stream=ORDERS'
  postrider relay --store postgres://relay@db/shop --publisher 'nats://nats:4222?stream=ORDERS' --topics 'order.*,payment.*'
  postrider relay --config /etc/postrider.yaml --listen :8080 --metrics :8080
  postrider relay --config /etc/postrider.yaml --only to-nats`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.Check(cmd); err != nil {
				return err
			}
			c, logger, err := p.Load()
			if err != nil {
				return err
			}
			targets := targetsOf(c)
			if err := p.overrideRelays(cmd, c, f); err != nil {
				return err
			}
			return p.runRelays(cmd.Context(), c, targets, logger)
		},
	}
	s := cmd.Flags()
	s.StringVar(&f.Publisher, "publisher", "", "`URL` of the broker, e.g. nats://127.0.0.1:4222?stream=ORDERS; also POSTRIDER_PUBLISHER")
	s.StringVar(&f.Name, "name", "", "`name` of the relay, which names its cursor (default by the publisher: to-nats, …)")
	s.StringSliceVar(&f.Topics, "topics", nil, "only these topics, as `patterns` in which * stands for any text (default all)")
	s.IntVar(&f.concurrency, "concurrency", 0, "`n` calls to the broker under way at once (default 4)")
	s.StringSliceVar(&f.Only, "only", nil, "run only these relays of the configuration, by `names`")
	s.StringVar(&f.listen, "listen", "", "`address` for /livez and /readyz, e.g. :8080 (default none)")
	s.StringVar(&f.metrics, "metrics", "", "`address` for Prometheus at /metrics, e.g. :9464 (default none)")
	s.StringVar(&f.admin, "admin", "", "`address` for the web UI and the HTTP API, e.g. :8686 (default none; see postrider serve)")
	s.DurationVar(&f.stopTimeout, "stop-timeout", 0, "wait at most this `duration` for messages under way when ending (default 30s)")
	cmd.AddCommand(p.pauseCommand(), p.resumeCommand())
	return cmd
}

// unit is one relay of the process with its dependencies.
type unit struct {
	config   config.Relay
	outbox   *backend.Outbox
	exported *exported
	observer *observe.Relay // nil without telemetry

	mu     sync.Mutex
	relay  *relay.Relay // nil until the publisher is connected
	failed error        // why the relay cannot continue
}

// runRelays runs the relays of a configuration until ctx ends or none of them can continue.
func (p commands) runRelays(ctx context.Context, c *config.Config, targets map[string]time.Duration, logger *slog.Logger) error {
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
	exported, err := openTelemetry(ctx, c, units, targets, logger)
	if err != nil {
		return err
	}
	defer exported.close(logger)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	closeServers, err := p.serve(ctx, c, units, exported.handler(), logger)
	defer closeServers()
	if err != nil {
		return err
	}
	site, err := p.serveAdmin(ctx, c, units, exported, logger)
	if err != nil {
		return err
	}
	defer site()

	errs := make([]error, len(units))
	var running sync.WaitGroup
	for i, u := range units {
		running.Go(func() {
			if errs[i] = u.run(ctx, c, logger); errs[i] != nil && ctx.Err() == nil && len(units) > 1 {
				u.fail(errs[i])
				logger.Error("relay cannot continue; the other relays of this process are not affected", "relay", u.config.Name, "error", errs[i])
			}
		})
	}
	operations := driveOperations(ctx, units, logger)
	running.Wait()
	stop()
	operations.Wait()
	return errors.Join(errs...)
}

// driveOperations drives the redrives and replays of each store, started by any process, until ctx ends.
func driveOperations(ctx context.Context, units []*unit, logger *slog.Logger) *sync.WaitGroup {
	var driving sync.WaitGroup
	begun := map[*backend.Outbox]bool{}
	for _, u := range units {
		driving.Go(func() { limitRedrives(ctx, u, logger) })
		if !begun[u.outbox] {
			begun[u.outbox] = true
			driving.Go(func() { deadletter.New(u.outbox).Run(ctx, logger) })
			driving.Go(func() { replay.New(u.outbox).Run(ctx, logger) })
		}
	}
	return &driving
}

// limitRedrives records how fast the redrives of a relay may be; it tries until that has succeeded, or ctx ends. Meanwhile, the
// limit of before applies.
func limitRedrives(ctx context.Context, u *unit, logger *slog.Logger) {
	for {
		err := deadletter.New(u.outbox).LimitRate(ctx, u.config.Name, u.config.RedriveRate.PerSecond())
		if err == nil || ctx.Err() != nil {
			return
		}
		logger.Warn("the rate of redrives is not recorded yet", "relay", u.config.Name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(limitRetry):
		}
	}
}

// limitRetry is the wait after a failure to record the rate of redrives.
const limitRetry = 5 * time.Second

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

// connect connects the publisher. A relay that is switched off needs none.
func (u *unit) connect(ctx context.Context, logger *slog.Logger) (publisher postrider.Publisher, closeIt func(), err error) {
	if u.config.Disabled {
		return nil, func() {}, nil
	}
	logger.Info("connecting to the broker", "publisher", backend.ShownPublisher(u.config.Publisher.URL))
	return backend.OpenPublisher(ctx, u.config.Publisher, backend.Uses{Relay: u.config.Name, Attempts: u.outbox, Logger: logger})
}

// run connects the publisher and runs the relay until ctx ends.
func (u *unit) run(ctx context.Context, c *config.Config, logger *slog.Logger) error {
	engine := logger // the relay adds its name to its log itself
	logger = logger.With("relay", u.config.Name)
	publisher, closePublisher, err := u.connect(ctx, logger)
	if err != nil {
		if ctx.Err() != nil {
			return nil // interrupted before anything began
		}
		return fmt.Errorf("relay %s: %w", u.config.Name, err)
	}
	defer closePublisher()
	store, _ := c.StoreOf(u.config)
	cfg := u.config.Settings(store, c.StopTimeout)
	cfg.Publisher, cfg.Logger, cfg.Version, cfg.Observer = publisher, engine, program.ReadBuild().Version, u.observer
	r, err := relay.New(u.outbox.Store, cfg)
	if err != nil {
		return program.Exit(program.ExitUsage, fmt.Errorf("relay %s: %w", u.config.Name, err))
	}
	defer u.exported.watchRelay(storeName(store), r)()
	u.mu.Lock()
	u.relay = r
	u.mu.Unlock()
	announced, announce := context.WithCancel(ctx)
	var announcing sync.WaitGroup
	if !u.config.Disabled {
		announcing.Go(func() { u.announce(announced, r, logger) })
	}
	err = r.Run(ctx)
	announce()
	announcing.Wait()
	logger.Info("relay has ended")
	return err
}

// announce logs that the relay works once the store has accepted it.
func (u *unit) announce(ctx context.Context, r *relay.Relay, logger *slog.Logger) {
	for r.Ready() != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(announceEvery):
		}
	}
	logger.Info("relay works", "store", u.outbox.Shown, "owner", r.Owner().ID, "topics", cmp.Or(strings.Join(u.config.Topics, " "), "all"))
}

// announceEvery is how often a relay that begins is asked whether it works.
const announceEvery = 20 * time.Millisecond

// fail records why the relay cannot continue.
func (u *unit) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failed = err
}

// ready reports whether the relay works and its store responds.
func (u *unit) ready(ctx context.Context) error {
	u.mu.Lock()
	r, failed := u.relay, u.failed
	u.mu.Unlock()
	if failed != nil {
		return failed
	}
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
