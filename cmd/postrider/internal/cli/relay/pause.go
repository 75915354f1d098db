package relay

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/pause"
)

func (p commands) pauseCommand() *cobra.Command {
	var q pause.Request
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Pause a relay or consumer, in all its processes",
		Long: `Pause a relay or consumer. Its processes see it with their next heartbeat (a third of lease_ttl, 5s by default), keep their
partitions, finish what is in progress and start nothing more. Messages wait in order; other relays go on. A pause is in
the database: it holds for processes that start later, until it ends or postrider relay resume ends it. Its alerts stay
silent meanwhile.`,
		Example: `  postrider relay pause to-nats --for 30m --because 'maintenance of the broker'
  postrider relay pause billing --because 'wrong prices, see ticket 4711'`,
		Args: program.ExactArgs("the NAME of a relay or consumer"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("for") && q.For <= 0 {
				return program.Usagef("--for must be positive, is %s; for no end leave it out", q.For)
			}
			q.Relay = args[0]
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				paused, err := p.Pause(cmd.Context(), b, q)
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(p.Stdout, paused)
				}
				end := ""
				if !paused.Until.IsZero() {
					end = " until " + output.Moment(paused.Until)
				}
				_, err = fmt.Fprintf(p.Stdout, "%s is paused%s; resume it with: %s\n", output.Printable(q.Relay), end,
					p.Hint("relay resume %s", output.ShellQuote(q.Relay)))
				return err
			})
		},
	}
	p.CompleteArgs(cmd, 1, program.Relays)
	cmd.Flags().DurationVar(&q.For, "for", 0, "end it after this `duration` (default none: until it is resumed)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the pause as JSON")
	program.ByFlag(cmd, &q.By, p.Operator())
	program.BecauseFlag(cmd, &q.Reason)
	return cmd
}

func (p commands) resumeCommand() *cobra.Command {
	var by, reason string
	cmd := &cobra.Command{
		Use:     "resume NAME",
		Short:   "Resume a paused relay or consumer",
		Example: `  postrider relay resume to-nats`,
		Args:    program.ExactArgs("the NAME of a relay or consumer"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				ended, err := p.Resume(cmd.Context(), b, by, args[0], reason)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(p.Stdout, "%s is resumed; it was paused by %s at %s: %s\n", output.Printable(args[0]),
					output.Printable(ended.By), output.Moment(ended.At), output.Printable(ended.Reason))
				return err
			})
		},
	}
	p.CompleteArgs(cmd, 1, paused)
	program.ByFlag(cmd, &by, p.Operator())
	program.WhyFlag(cmd, &reason)
	return cmd
}

// paused lists the relays and consumers that are paused.
func paused(ctx context.Context, b *backend.Outbox) (out []cobra.Completion, err error) {
	status, err := b.Status(ctx)
	for _, r := range status.Relays {
		if r.Paused != nil {
			out = append(out, cobra.CompletionWithDesc(r.Name, output.Printable(r.Paused.Reason)))
		}
	}
	return out, err
}
