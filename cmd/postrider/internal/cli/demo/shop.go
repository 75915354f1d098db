package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/shopdemo"
	"github.com/postrider/postrider/saga"
)

// shopFlags are the flags of "demo shop".
type shopFlags struct {
	shopdemo.Config
	scenario           int
	service, stream    string
	listen             string
	compensate         string
	plain, printConfig bool
}

func (p commands) shopCommand() *cobra.Command {
	var f shopFlags
	cmd := &cobra.Command{
		Use:   "shop",
		Short: "Watch four services fulfil orders as sagas, and break them on purpose",
		Long: `Run a shop of four services: orders, inventory, payments and shipping. Each has a database, an outbox, a relay and a
consumer of its own. A saga takes each order from stock to parcel, or undoes what was done. The code, for reading, is in
examples/shop.

By default it runs on SQLite files and a JetStream server in this process, with a load of orders, until it is interrupted or
--for has passed. The services listen on ports 8081 to 8084. A ledger compares what they have recorded, all the time:
charges less refunds are the value of shipped orders, goods are free, reserved or sold, and no order waits without a saga.

--scenario runs one scenario and prints what is done, what is expected and what is found:

` + scenarioList() + `
--processes runs each service as a process, so that it can be killed. Exit code 3 says that a promise broke.`,
		Example: `  postrider demo shop
  postrider demo shop --scenario 5
  postrider demo shop --scenario 10 --for 30s
  postrider demo shop --processes --load 100 --for 10m
  postrider demo shop --store postgres://postgres@127.0.0.1/postgres --publisher nats://127.0.0.1:4222
  postrider demo shop --dir /tmp/shop --for 1m && postrider saga list --store sqlite:/tmp/shop/orders.db`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.printConfig {
				p.printFlags(cmd.LocalNonPersistentFlags())
				return nil
			}
			for _, name := range limitFlags {
				if flag := cmd.Flags().Lookup(name); !flag.Changed {
					_ = flag.Value.Set("0")
				}
			}
			return p.shop(cmd.Context(), f)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// scenarioList lists the scenarios, for the help.
func scenarioList() string {
	var b strings.Builder
	for _, s := range shopdemo.Scenarios {
		fmt.Fprintf(&b, "  %2d  %s.\n", s.Number, s.Title)
	}
	return b.String()
}

func (f *shopFlags) register(flags *pflag.FlagSet) {
	flags.IntVar(&f.scenario, "scenario", 0, "run the scenario of this `number`")
	flags.DurationVar(&f.For, "for", 0, "close the shop after this `duration` (default: when it is interrupted)")
	flags.StringVar(&f.Load, "load", "ambient", "none, booth (3 requests/s), ambient (30) or a `number` of them a second")
	flags.Uint64Var(&f.Seed, "seed", 0, "`number` from which prices and requests are drawn (default: a random one)")
	flags.BoolVar(&f.Processes, "processes", false, "run each service as a process")
	flags.BoolVar(&f.Faults, "faults", false, "let handlers fail on demand: POST /faults?type=card.charge&fail=true")
	flags.StringVar(&f.compensate, "compensate", "request", "`who` starts undos: request (tracker), observe (services)")
	flags.StringVar(&f.Publisher, "publisher", "", "`URL` of a NATS, Kafka, RabbitMQ or Redis server (default: a NATS server in this process)")
	flags.StringVar(&f.Dir, "dir", "", "`folder` for databases and logs, which stay (default: a temporary one)")
	flags.IntVar(&f.Port, "port", 8081, "`port` of orders; the other services have the following ones; 0 for free ports")
	flags.DurationVar(&f.Limits.StepTimeout, "step-timeout", 15*time.Second, "`time` that a step of a saga has for its answer")
	flags.DurationVar(&f.Limits.Deadline, "deadline", time.Minute, "`time` that an order has until its parcel leaves")
	flags.DurationVar(&f.Limits.UndoTimeout, "undo-timeout", 30*time.Second, "`time` that an undo has for its answer")
	flags.IntVar(&f.Limits.UndoAttempts, "undo-attempts", 20, "`number` of times that an undo is sent before its saga is stuck")
	flags.DurationVar(&f.Limits.LeaseTTL, "lease-ttl", 15*time.Second, "`time` after which the work of a killed process is taken over")
	flags.DurationVar(&f.Limits.Keep, "keep", 24*time.Hour, "`time` that delivered messages, their IDs and ended sagas are kept")
	flags.DurationVar(&f.Limits.Replenish, "replenish", 10*time.Second, "`time` between two looks for goods that are nearly sold out")
	flags.IntVar(&f.Limits.Version, "saga-version", 1, "`version` of the sagas; 2 has a review of expensive orders, and points")
	flags.Int64Var(&f.Limits.ReviewAbove, "review-above", 5_000_00, "total in `cents` above which version 2 asks a person")
	flags.BoolVar(&f.plain, "plain", false, "write plain lines also on a terminal")
	flags.BoolVar(&f.printConfig, "print-config", false, "print all settings and their values, and do nothing")
	flags.StringVar(&f.service, "service", "", "run only the service of this `name`")
	flags.StringVar(&f.listen, "listen", "", "`address` of that service")
	flags.StringVar(&f.stream, "stream", "", "`name` of the stream for that service")
	for _, name := range []string{"service", "listen", "stream"} { // for the processes that --processes starts
		_ = flags.MarkHidden(name)
	}
}

// limitFlags are the flags for which a scenario can have its own default.
var limitFlags = []string{"step-timeout", "deadline", "undo-timeout", "undo-attempts", "lease-ttl", "keep", "replenish"}

// printFlags prints every setting with its value.
func (p commands) printFlags(flags *pflag.FlagSet) {
	fmt.Fprintf(p.Stdout, "store: %s\n", p.StoreFlag)
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "print-config" && f.Name != "help" {
			fmt.Fprintf(p.Stdout, "%s: %s\n", f.Name, f.Value)
		}
	})
}

func (p commands) shop(ctx context.Context, f shopFlags) (err error) {
	switch f.compensate {
	case "request":
	case "observe":
		f.Compensate = saga.Observe
	default:
		return program.Usagef("--compensate must be request or observe, is %q", f.compensate)
	}
	if f.service != "" {
		return p.service(ctx, f)
	}
	if f.For < 0 || f.Port < 0 || f.Port > 65_532 {
		return program.Usagef("--for must not be negative, and --port must be at most 65532")
	}
	if _, err := shopdemo.RateOf(f.Load); err != nil {
		return program.Usagef("--load: %v", err)
	}
	if f.Publisher != "" {
		if err := shopdemo.CheckPublisher(f.Publisher); err != nil {
			return program.Usagef("--publisher: %v", err)
		}
	}
	c := f.Config
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "postrider-shop-"); err != nil {
			return fmt.Errorf("make a temporary directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.Dir)) }()
	} else if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	if c.Seed == 0 {
		n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
		if err != nil {
			return err
		}
		c.Seed = n.Uint64() + 1
	}
	c.Store, c.Out, c.Command = p.StoreFlag, p.Stdout, serviceCommand
	c.ShownStore, c.ShownPublisher = "SQLite", "JetStream in this process"
	if c.Store != "" {
		c.ShownStore = backend.ShownPublisher(c.Store)
	}
	if c.Publisher != "" {
		c.ShownPublisher = backend.ShownPublisher(c.Publisher)
	}
	if c.Name = "SHOP"; c.Store+c.Publisher != "" { // nothing of others is touched
		c.Name = "shop_" + strings.ToLower(rand.Text()[:8])
	}
	c.Width, c.Color = p.terminal(f.plain)
	return p.runShop(ctx, c, f.scenario)
}

// service runs one service for the process that started it, and ends with it. Ctrl+C reaches all processes of a terminal: the one that
// started the others ends them, after their orders.
func (p commands) service(ctx context.Context, f shopFlags) error {
	signal.Ignore(os.Interrupt)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // reads until the other process has ended
		_, _ = io.Copy(io.Discard, p.Stdin)
		cancel(errStarterEnded)
	}()
	err := shopdemo.RunService(ctx, shopdemo.Settings{
		Service: f.service, Store: p.StoreFlag, Publisher: f.Publisher, Stream: f.stream, Listen: f.listen, Seed: f.Seed, Faults: f.Faults,
		Compensate: f.Compensate, Limits: f.Limits,
	}, slog.New(slog.NewTextHandler(p.Stderr, nil)))
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errStarterEnded) {
		return errStarterEnded
	}
	return err
}

// errStarterEnded says why a service ends before it runs.
var errStarterEnded = errors.New("the process that started this service has ended, or closed the service's standard input")

// runShop runs the shop or a scenario.
func (p commands) runShop(ctx context.Context, c shopdemo.Config, scenario int) (err error) {
	if scenario > 0 {
		err = shopdemo.RunScenario(ctx, c, scenario)
	} else {
		err = shopdemo.Run(ctx, c)
	}
	if _, broken := errors.AsType[*shopdemo.BrokenError](err); broken {
		return &program.ExitError{Code: program.ExitNo, Err: err}
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if errors.Is(err, shopdemo.ErrNoScenario) {
		return program.Usagef("--scenario: %v; see --help", err)
	}
	return err
}

// serviceCommand is the command line of the process for a service.
func serviceCommand(s shopdemo.Settings) (name string, args []string) {
	if name, err := os.Executable(); err == nil {
		return name, serviceArgs(s)
	}
	return os.Args[0], serviceArgs(s)
}

func serviceArgs(s shopdemo.Settings) []string {
	args := []string{"demo", "shop"}
	l := s.Limits
	for _, flag := range []struct {
		name  string
		value any
	}{
		{"service", s.Service}, {"store", s.Store}, {"publisher", s.Publisher}, {"stream", s.Stream}, {"listen", s.Listen}, {"seed", s.Seed},
		{"faults", s.Faults}, {"compensate", cmp.Or(string(s.Compensate), "request")}, {"step-timeout", l.StepTimeout}, {"deadline", l.Deadline}, {"undo-timeout", l.UndoTimeout},
		{"undo-attempts", l.UndoAttempts}, {"lease-ttl", l.LeaseTTL}, {"keep", l.Keep}, {"replenish", l.Replenish},
		{"saga-version", l.Version}, {"review-above", l.ReviewAbove},
	} {
		args = append(args, fmt.Sprintf("--%s=%v", flag.name, flag.value))
	}
	return args
}
