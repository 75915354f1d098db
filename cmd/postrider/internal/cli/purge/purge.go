// Package purge has the command "postrider purge", which removes records permanently.
package purge

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("purge", "Remove resolved dead letters permanently, on the record",
		"Dead letters stay after they were redriven or discarded. A purge removes them, and records who removed how many, when and\nwhy.",
		p.deadCommand(), p.listCommand())
}

// options are those of a purge.
type options struct {
	deadletter.PurgePlan
	yes, dryRun, asJSON bool
}

func (p commands) deadCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Remove dead letters that were redriven or discarded long ago",
		Long: `Remove dead letters that were redriven or discarded long ago, with their edits, in transactions of up to 1,000. Open dead
letters are always kept. So is a dead letter of a relay whose message the log still has: it says that the message is not to
be delivered from there. And so is one whose message a redrive on record has sent back: the redrive counts by it what was
delivered. Ended redrives stay on record for keep_redrives, see postrider maintain. Interrupted, the purge keeps a record of
what it has removed; run it again for the rest.

Export dead letters first if you need them: postrider dead export --state any.`,
		Example: `  postrider purge dead --resolved-for 2160h --dry-run
  postrider purge dead --resolved-for 2160h --relay to-nats --because 'kept for 90 days' --yes`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.ResolvedFor < deadletter.MinResolvedFor {
				return program.Usagef("--resolved-for must be %s or longer, is %s", deadletter.MinResolvedFor, o.ResolvedFor)
			}
			if cmd.Flags().Changed("relay") && o.Relay == "" {
				return program.Usagef("--relay is empty; leave it away to choose dead letters of any relay")
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.purge(cmd.Context(), b, o) })
		},
	}
	s := cmd.Flags()
	s.DurationVar(&o.ResolvedFor, "resolved-for", 0, "only those that were resolved at least this `duration` ago, e.g. 720h")
	s.StringVar(&o.Relay, "relay", "", "only of this relay or consumer, by its `name`")
	p.CompleteFlag(cmd, "relay", program.Relays)
	s.BoolVar(&o.dryRun, "dry-run", false, "only say how many it would be")
	s.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	s.BoolVar(&o.asJSON, "json", false, "write the purge as JSON; the count with --dry-run, or if none match")
	program.ByFlag(cmd, &o.By, p.Operator())
	program.BecauseFlag(cmd, &o.Reason)
	return cmd
}

func (p commands) purge(ctx context.Context, b *backend.Outbox, o *options) error {
	dead := deadletter.New(b)
	n, err := dead.CountPurge(ctx, o.PurgePlan)
	if err == nil && n == 0 && o.Relay != "" {
		err = program.KnownRelay(ctx, b, o.Relay)
	}
	if err != nil {
		return err
	}
	if n == 0 || o.dryRun {
		if o.asJSON {
			return output.JSON(p.Stdout, map[string]int64{"dead_letters": n})
		}
		_, err := fmt.Fprintf(p.Stdout, "%s match; nothing was done\n", output.Plural(n, "resolved dead letter"))
		return err
	}
	if err := p.Confirm(o.yes, fmt.Sprintf("Remove %s permanently?", output.Plural(n, "resolved dead letter"))); err != nil {
		return err
	}
	bar, told := p.Progress(n, "purge"), int64(0)
	defer bar.End()
	var done deadletter.Purge
	c := admin.Change{Action: "PurgeDead", On: fmt.Sprintf("dead letters of %s that were resolved %s ago", all(o.Relay), o.ResolvedFor), Reason: o.Reason}
	err = p.Act(ctx, b, o.By, c, func(db held.Database) (err error) {
		done, err = deadletter.New(db).Purge(ctx, o.PurgePlan, func(d deadletter.Purge) {
			bar.Add(int(d.Removed + d.Kept - told))
			told = d.Removed + d.Kept
		})
		return err
	})
	bar.End()
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if err != nil {
		return fmt.Errorf("%w; %s were removed; run it again for the rest", err, output.Plural(done.Removed, "dead letter"))
	}
	if o.asJSON {
		return output.JSON(p.Stdout, done)
	}
	kept := ""
	if done.Kept > 0 {
		kept = fmt.Sprintf("; %s kept: the log still has their messages, or their redrives are on record", output.Number(done.Kept))
	}
	_, err = fmt.Fprintf(p.Stdout, "removed %s%s\n", output.Plural(done.Removed, "dead letter"), kept)
	return err
}

func (p commands) listCommand() *cobra.Command {
	return p.ListCommand("purges", `  postrider purge list
  postrider purge list --json`, func(ctx context.Context, b *backend.Outbox, limit int, asJSON bool) error {
		return program.Listing[deadletter.Purge]{
			Of: "purges", Items: deadletter.New(b).ListPurges(ctx),
			Columns: []string{"STARTED AT", "RELAY", "RESOLVED BEFORE", "REMOVED", "KEPT", "BY", "BECAUSE"},
			Row: func(d deadletter.Purge) []any {
				return []any{output.Minute(d.StartedAt), all(d.Relay), output.Minute(d.ResolvedBefore), output.Number(d.Removed), output.Number(d.Kept), d.By, d.Reason}
			},
		}.Write(p.Program, limit, asJSON)
	})
}

func all(name string) string {
	if name == "" {
		return "(all)"
	}
	return name
}
