// Package demo has the command "postrider demo", which runs the demo.
package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/demo"
	"github.com/postrider/postrider/cmd/postrider/internal/serving"
	"github.com/postrider/postrider/config"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	var length time.Duration
	var publisher string
	var plain bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch Postrider keep its promises through an outage, a bad deployment and a crash",
		Long: `Open a small shop whose orders are database transactions that publish messages, move the messages to a broker, and check
what a consumer receives against what was committed. On the way the broker is taken away, a bad
deployment makes 3% of the orders fail until it is fixed and they are redriven, and the relay crashes. Some orders are
rolled back: their messages must never appear.

Nothing needs to be installed: by default it runs on SQLite in a temporary directory and on a JetStream server in this
process; with --publisher webhook: on a webhook whose receiver is in this process. With --store and --publisher it runs on
real servers, in a schema and a stream, topic or queue of its own, which it removes at the end; a SQLite file that you name
must not exist, and stays. A server of yours is taken away by cutting the connection of the relay to it.

On a terminal it also serves the web UI of its outbox, prints a link, and lasts 90 seconds unless --for says otherwise.

The figures are not the relay's own: committed comes from the database, delivered and every fault from the consumer, and the
result from comparing both message by message. Exit code 3 says that a promise broke.`,
		Example: `  postrider demo
  postrider demo --for 1m
  postrider demo --publisher webhook:
  postrider demo --store postgres://postgres@127.0.0.1/postgres --publisher nats://127.0.0.1:4222
  postrider demo --publisher amqp://guest:guest@127.0.0.1:5672/`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, terminal := p.Width(p.Stderr); terminal && !cmd.Flags().Changed("for") {
				length = withUI
			}
			if length < demo.MinFor || length > 24*time.Hour {
				return program.Usagef("--for must be %s to 24h, is %s", demo.MinFor, length)
			}
			return p.demo(cmd.Context(), demo.Config{For: length, Publisher: publisher}, plain)
		},
	}
	cmd.Flags().DurationVar(&length, "for", 20*time.Second, "how long the shop is open, as a `duration`")
	cmd.Flags().StringVar(&publisher, "publisher", "", "`URL` of a broker, or webhook: (default: a JetStream server in this process)")
	cmd.Flags().BoolVar(&plain, "plain", false, "write plain lines also on a terminal")
	cmd.AddCommand(p.shopCommand())
	return cmd
}

// withUI is how long the shop is open when its web UI is served: long enough to look at it.
const withUI = 90 * time.Second

// demo creates a temporary store for the demo, runs it and removes the store.
func (p commands) demo(ctx context.Context, c demo.Config, plain bool) (err error) {
	dir, err := os.MkdirTemp("", "postrider-demo-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	backend.LogLibraries(slog.New(slog.DiscardHandler)) // the demo says itself what the broker does
	name := "postrider_demo_" + strings.ToLower(rand.Text()[:8])
	s := config.Store{URL: cmp.Or(p.StoreFlag, "sqlite:"+filepath.Join(dir, "shop.db"))}
	place, err := backend.OpenTemporary(ctx, s, name, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.Remove()) }()

	c.Store, c.Transactions, c.DB, c.TablePrefix = place.Store, place.Transactions, place.DB, place.TablePrefix
	c.QuestionMarks = place.QuestionMarks
	c.Dir, c.Name, c.Out = filepath.Join(dir, "jetstream"), name, p.Stdout
	c.Shown = cmp.Or(map[bool]string{true: "SQLite in a temporary file"}[p.StoreFlag == ""], place.Shown)
	switch c.Publisher {
	case "":
		c.ShownPublisher = "JetStream in this process"
	case demo.InProcess:
		c.ShownPublisher = "a webhook in this process"
	default:
		c.ShownPublisher = backend.ShownPublisher(c.Publisher)
	}
	c.Width, c.Color = p.terminal(plain)
	site, err := p.serveAdmin(ctx, place.Store, c.Name)
	if err != nil {
		return err
	}
	defer site()
	findings, err := demo.Run(ctx, c)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if !findings.Held() {
		return &program.ExitError{Code: program.ExitNo}
	}
	if p.StoreFlag == "" {
		_, err = fmt.Fprint(p.Stdout, next)
	}
	return err
}

// next is printed after a demo without a database of the user's.
const next = `
With your own database and broker:
  postrider migrate up --store postgres://localhost/shop
  postrider relay --store postgres://localhost/shop \
    --publisher 'nats://localhost:4222?stream=SHOP'
`

// terminal returns the width of standard output, and whether to use colors; nil if it is not a terminal.
func (p commands) terminal(plain bool) (width func() int, color bool) {
	if _, ok := p.Width(p.Stdout); !ok || plain || p.Env("TERM") == "dumb" {
		return nil, false
	}
	return func() int {
		width, _ := p.Width(p.Stdout)
		return width
	}, p.Env("NO_COLOR") == ""
}

// serveAdmin serves the web UI of the demo's outbox on a terminal, with everything in its messages: they are made up.
func (p commands) serveAdmin(ctx context.Context, store backend.Store, name string) (closeIt func(), err error) {
	if _, terminal := p.Width(p.Stderr); !terminal {
		return func() {}, nil
	}
	server, err := serving.Start(ctx, store, serving.Options{
		Admin: config.Admin{Listen: "127.0.0.1:0", Environment: "Demo", Show: []config.Show{{Type: "*", All: true, Headers: []string{"*"}, Causes: true, Keys: "viewer"}}},
		Name:  name, Principal: admin.Principal{Subject: p.Operator(), Role: admin.Admin}, PrintTo: p.Stderr,
		Version: program.ReadBuild().Version,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return server.Close, nil
}
