package main

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/config"
)

const rootLong = `Postrider moves messages from a transactional outbox to a broker: in order per key, at least once, through crashes.
A message that your service wrote in its own database transaction reaches the broker; one that was rolled back never does.

Begin with  postrider demo  to watch it work, with  postrider migrate up  to create the outbox in your database, and with
postrider relay  to move messages.

Settings come from flags, from environment variables (POSTRIDER_STORE_URL, …) and from a YAML file (--config), in this
order of precedence. --store takes a URL, or the name of a store in the file:

  sqlite:shop.db, sqlite:///var/lib/shop/shop.db
  postgres://user@host:5432/shop?sslmode=verify-full&schema=public&prefix=postrider_
  mysql://user@host:3306/shop?tls=true&prefix=postrider_ (MySQL 8 or MariaDB)

--publisher takes the URL of a broker, with its options; docs/configuration.md lists them:

  nats://127.0.0.1:4222?stream=ORDERS
  https://partner.example/hooks/orders#secret_file=orders.secret

Exit codes:
  0    done
  1    failed; the message says at what, and what to do next
  2    not understood: a flag, an argument or the configuration is wrong; nothing was done
  3    the answer is no: a promise broke in the demo, a limit of status is exceeded, a schema is old, a topic has no relay
  4    partly done: publish --continue-on-error wrote messages to the rejects, a redrive refused messages
  130  ended at once by a second interrupt`

// rootCommand builds the command tree.
func (p *Program) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "postrider",
		Short: "Reliable messages from your database to your broker",
		Long:  rootLong,
		Example: `  postrider demo
  postrider migrate up --store sqlite:shop.db
  postrider relay --store sqlite:shop.db --publisher 'nats://127.0.0.1:4222?stream=ORDERS'
  postrider status --store sqlite:shop.db --watch`,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	flags := root.PersistentFlags()
	flags.StringVarP(&p.configFile, "config", "c", p.env(config.Prefix+"CONFIG"), "configuration `file` (YAML); also POSTRIDER_CONFIG")
	flags.StringVar(&p.storeFlag, "store", "", "`URL` of the database with the outbox, or the name of a store in the configuration")
	flags.Var(choice(&p.logLevel), "log-level", "least important `level` to log: debug, info, warn or error (default info)")
	flags.Var(choice(&p.logFormat), "log-format", "`format` of log lines: text or json (default text)")
	completeChoices(root, "log-level", config.Level("").Allowed())
	completeChoices(root, "log-format", config.Format("").Allowed())

	root.AddCommand(p.demoCommand(), p.relayCommand(), p.migrateCommand(), p.statusCommand(), p.deadCommand(), p.redriveCommand(), p.heldCommand(), p.inboxCommand(),
		p.routeCommand(), p.publishCommand(), p.tailCommand(), p.explainCommand(), p.attemptsCommand(), p.outboxCommand(), p.versionCommand())
	helpOrRefuse(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		unknown, ok := errors.AsType[interface {
			error
			GetSpecifiedShortnames() string
		}](err)
		if ok && strings.IndexFunc(unknown.GetSpecifiedShortnames(), unicode.IsDigit) == 0 {
			return usagef("-%s is no flag, and no argument here is a negative number", unknown.GetSpecifiedShortnames())
		}
		return err
	})
	p.noteBegin(root)
	return root
}

// helpOrRefuse makes help for an unknown command an error.
func helpOrRefuse(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() == "help" {
			help.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return usagef("there is no command %q to explain", strings.Join(args, " "))
				}
				return nil
			}
		}
	}
}

// noteBegin makes every command record that it begins: errors before that are usage errors.
func (p *Program) noteBegin(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			p.begun = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		p.noteBegin(sub)
	}
}

// group returns a command that only contains subcommands.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short, Long: long,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s needs a subcommand: %s", cmd.CommandPath(), names(cmd))
			}
			return usagef("%s has no subcommand %q; it has %s", cmd.CommandPath(), args[0], names(cmd))
		},
		Args: cobra.ArbitraryArgs,
	}
	g.AddCommand(commands...)
	return g
}

func names(cmd *cobra.Command) string {
	var out []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			out = append(out, c.Name())
		}
	}
	return strings.Join(out, ", ")
}

// choiceFlag is a flag with a fixed set of values.
type choiceFlag[T interface {
	~string
	Allowed() []string
}] struct{ value *T }

func choice[T interface {
	~string
	Allowed() []string
}](value *T) *choiceFlag[T] {
	return &choiceFlag[T]{value}
}

func (c *choiceFlag[T]) String() string {
	if c.value == nil {
		return ""
	}
	return string(*c.value)
}

func (c *choiceFlag[T]) Type() string { return strings.ToLower(reflect.TypeFor[T]().Name()) }

func (c *choiceFlag[T]) Set(text string) error {
	if slices.Contains((*c.value).Allowed(), text) {
		*c.value = T(text)
		return nil
	}
	return errors.New("allowed: " + strings.Join((*c.value).Allowed(), ", "))
}

// completeChoices adds shell completion for a flag's values.
func completeChoices(cmd *cobra.Command, flag string, values []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic("postrider: completion of a flag that does not exist: " + flag)
	}
}

// load reads the configuration and applies the common flags.
func (p *Program) load() (*config.Config, *slog.Logger, error) {
	c, warnings, err := config.Load(p.configFile, p.Environ, p.storeFlag != "")
	if err != nil {
		return nil, nil, err
	}
	if p.logLevel != "" {
		c.Log.Level = p.logLevel
	}
	if p.logFormat != "" {
		c.Log.Format = p.logFormat
	}
	logger := p.logger(c.Log)
	backend.LogLibraries(logger)
	for _, w := range warnings {
		logger.Warn(w)
	}
	return c, logger, nil
}

func (p *Program) logger(l config.Log) *slog.Logger {
	options := &slog.HandlerOptions{Level: map[config.Level]slog.Level{
		"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[l.Level]}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(p.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(p.Stderr, options))
}

// selectStore returns the one store that an operator's command works on.
func (p *Program) selectStore(c *config.Config) (config.Store, error) {
	stores := c.AllStores()
	if p.storeFlag == "" {
		switch len(stores) {
		case 1:
			return stores[0], nil
		case 0:
			return config.Store{}, usagef("no store is given; use --store sqlite:FILE, postgres://… or mysql://…, POSTRIDER_STORE_URL or store.url in --config")
		}
		return config.Store{}, usagef("the configuration has several stores; choose one with --store: %s", storeNames(stores))
	}
	for _, s := range stores {
		if s.Name != "" && s.Name == p.storeFlag {
			return s, nil
		}
	}
	if !strings.Contains(p.storeFlag, ":") {
		return config.Store{}, usagef("--store %s is neither a URL nor the name of a store in the configuration (%s)", p.storeFlag, storeNames(stores))
	}
	if len(stores) == 1 { // the flag replaces the URL; the other settings of the store stay
		stores[0].URL = p.storeFlag
		return stores[0], nil
	}
	return config.Store{URL: p.storeFlag}, nil
}

func storeNames(stores []config.Store) string {
	var out []string
	for _, s := range stores {
		if s.Name != "" {
			out = append(out, s.Name)
		}
	}
	if len(out) == 0 {
		return "none there"
	}
	return strings.Join(out, ", ")
}

// withStore opens the store that flags, environment and configuration select, and runs f on it.
func (p *Program) withStore(cmd *cobra.Command, f func(*backend.Outbox) error) error {
	c, logger, err := p.load()
	if err != nil {
		return err
	}
	s, err := p.selectStore(c)
	if err != nil {
		return err
	}
	o, err := backend.Open(cmd.Context(), s, logger)
	if err != nil {
		return err
	}
	defer o.Close()
	return f(o)
}
