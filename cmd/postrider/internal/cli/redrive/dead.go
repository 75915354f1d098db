package redrive

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
)

// DeadCommand returns "postrider dead redrive", which sends single dead letters back at once and starts a redrive for others.
func DeadCommand(p *program.Program) *cobra.Command { return commands{p}.deadCommand() }

func (p commands) deadCommand() *cobra.Command {
	o := &redriveOptions{}
	cmd := &cobra.Command{
		Use:   "redrive [NUMBER...]",
		Short: "Send dead letters back to their relays and consumers",
		Long: `Send dead-lettered messages back to their relays and consumers: they are due at once, and attempts count from 1 again.
A key that was held for the message is released. Numbers are sent back at once, all or none; anything else becomes a
redrive, which can be watched and cancelled from elsewhere (see postrider redrive).

` + selection.Long,
		Example: `  postrider dead redrive 17 18
  postrider dead redrive --relay to-nats --reason 'attempts exhausted' --from 24h
  postrider dead redrive --all --dry-run
  postrider dead redrive --all --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				f, err := o.Filter.Resolve(cmd.Context(), b)
				if err != nil {
					return err
				}
				if len(f.Numbers) == 0 || o.DryRun {
					return p.startRedrive(cmd.Context(), b, o, f)
				}
				n := 0
				err = p.Act(cmd.Context(), b, o.By, o.Change("RedriveDead", f), func(db held.Database) (err error) {
					n, err = deadletter.New(db).RedriveDead(cmd.Context(), f, o.By, len(f.Numbers))
					return err
				})
				if err != nil {
					return fmt.Errorf("%w; nothing was done", err)
				}
				fmt.Fprintf(p.Stdout, "redriven %s\n", output.Plural(n, "dead letter"))
				return nil
			})
		},
	}
	p.redriveFlags(cmd, o)
	return cmd
}
