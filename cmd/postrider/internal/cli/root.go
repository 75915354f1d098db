// Package cli has the commands of the binary, one package for each noun.
package cli

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/audit"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/dead"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/demo"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/doctor"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/erase"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/explain"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/health"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/held"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/inbox"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/legalhold"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/maintain"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/mcp"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/migrate"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/outbox"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/parked"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/publish"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/purge"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/redrive"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/relay"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/replay"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/route"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/saga"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/serve"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/starter"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/status"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/tail"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/token"
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
  3    the answer is no: a promise broke in the demo, a limit of status is exceeded, a schema is old, doctor found a fault
  4    partly done: publish --continue-on-error wrote rejects, a redrive refused messages, or it or a replay was stopped
  130  ended at once by a second interrupt`

// Run runs the program with its arguments (without the program's name) and returns its exit code.
func Run(ctx context.Context, p *program.Program, args []string) int {
	return p.Run(ctx, command(p), args)
}

// command builds the command tree.
func command(p *program.Program) *cobra.Command {
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
	p.AddFlags(root)
	root.AddCommand(starter.Command(p), demo.Command(p), relay.Command(p), health.Command(p), serve.Command(p), mcp.Command(p), token.Command(p), migrate.Command(p), status.Command(p), doctor.Command(p),
		dead.Command(p), redrive.Command(p), replay.Command(p), purge.Command(p), erase.Command(p), legalhold.Command(p), maintain.Command(p), held.Command(p), parked.Command(p),
		inbox.Command(p), saga.Command(p), route.Command(p), publish.Command(p), tail.Command(p), explain.Command(p), explain.AttemptsCommand(p), audit.Command(p), outbox.Command(p),
		versionCommand(p))
	helpOrRefuse(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		unknown, ok := errors.AsType[interface {
			error
			GetSpecifiedShortnames() string
		}](err)
		if ok && strings.IndexFunc(unknown.GetSpecifiedShortnames(), unicode.IsDigit) == 0 {
			return program.Usagef("-%s is no flag, and no argument here is a negative number", unknown.GetSpecifiedShortnames())
		}
		return err
	})
	return root
}

// helpOrRefuse makes help for an unknown command an error.
func helpOrRefuse(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() == "help" {
			help.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return program.Usagef("there is no command %q to explain", strings.Join(args, " "))
				}
				return nil
			}
		}
	}
}
