// Package outbox has the command "postrider outbox", which changes an outbox as a whole.
package outbox

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("outbox", "Change an outbox as a whole",
		"Steps that concern an outbox as a whole. Each is one transaction: it is done, or nothing has changed.",
		p.outboxPartitionsCommand(), p.outboxRemoveCommand())
}

func (p commands) outboxPartitionsCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "partitions N",
		Short: "Change the number of partitions, keeping the order of every key",
		Long: `Change the number of partitions of an outbox, 1 to 1024, keeping the order of every key.

First let every relay deliver what there is while nothing is published (postrider status shows a backlog of 0), then stop
all relays and consumers. The step refuses as long as one of their processes is alive or a relay has undelivered
messages. Held keys, parked messages and dead letters may stay; they move along. Publishers need not be stopped: they wait
meanwhile, about a second for every 50,000 messages that the log still keeps, and then write for the new number. On
PostgreSQL run it as the role that ran postrider migrate up.

Afterwards start the relays and consumers again, and set partitions in the configuration, if it stands there, to N.`,
		Example: `  postrider outbox partitions 32 --store postgres://owner@db/shop
  postrider outbox partitions 32 --yes`,
		Args: program.ExactArgs("a number N"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil || n < 1 || n > store.MaxPartitions {
				return program.Usagef("N must be a number from 1 to %d, is %q", store.MaxPartitions, args[0])
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.repartition(cmd, b, n, yes) })
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (p commands) repartition(cmd *cobra.Command, b *backend.Outbox, n int, yes bool) error {
	old, err := b.Partitions(cmd.Context())
	if err != nil {
		return err
	}
	if old == n {
		_, err := fmt.Fprintf(p.Stdout, "%s has %s already; nothing was done\n", b.Shown, output.Plural(n, "partition"))
		return err
	}
	question := fmt.Sprintf("Change %s from %s to %d? Publishers wait meanwhile.", b.Shown, output.Plural(old, "partition"), n)
	if err := p.Confirm(yes, question); err != nil {
		return err
	}
	if err := b.Repartition(cmd.Context(), n); err != nil {
		return fmt.Errorf("%s: %w\nnothing has changed", b.Shown, err)
	}
	_, err = fmt.Fprintf(p.Stdout, "%s has %s now, before %d; start the relays and consumers again\n", b.Shown, output.Plural(n, "partition"), old)
	return err
}
