// Package legalhold has the command "postrider legal-hold", which keeps everything while something must not be removed.
package legalhold

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/legalhold"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("legal-hold", "Keep everything while something must not be removed",
		`While a legal hold is active, retention drops no message of the log, and purge and erase refuse. A hold is on the whole
outbox, and the log grows as fast as messages are published. Watch the disk.`,
		p.placeCommand(), p.releaseCommand(), p.listCommand())
}

// record is what a command puts on record.
type record struct{ by, because string }

func (p commands) placeCommand() *cobra.Command {
	var r record
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "place",
		Short:   "Place a legal hold",
		Example: `  postrider legal-hold place --because 'case 17'`,
		Args:    program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				var h legalhold.Hold
				c := admin.Change{Action: "PlaceHold", On: "a legal hold", Reason: r.because}
				err := p.Act(cmd.Context(), b, r.by, c, func(db held.Database) (err error) {
					h, err = legalhold.New(db).Place(cmd.Context(), r.by, r.because)
					return err
				})
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(p.Stdout, h)
				}
				_, err = fmt.Fprintf(p.Stdout, "legal hold %s is active; nothing is dropped until you release it: %s\n", h.ID,
					p.Hint("legal-hold release %s", h.ID))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the hold as JSON")
	program.ByFlag(cmd, &r.by, p.Operator())
	program.BecauseFlag(cmd, &r.because)
	return cmd
}

func (p commands) releaseCommand() *cobra.Command {
	var r record
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:     "release ID",
		Short:   "Release a legal hold; what is past retention is dropped from then on",
		Example: `  postrider legal-hold release 0190f3c2-8a4e-7d05-9d2b-0c5d1f6a7b88 --because 'case 17 is closed'`,
		Args:    program.ExactArgs("the ID of a legal hold"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				if err := p.Confirm(yes, fmt.Sprintf("Release legal hold %s?", output.Printable(args[0]))); err != nil {
					return err
				}
				var h legalhold.Hold
				c := admin.Change{Action: "ReleaseHold", On: "legal hold " + args[0], Reason: r.because}
				err := p.Act(cmd.Context(), b, r.by, c, func(db held.Database) (err error) {
					h, err = legalhold.New(db).Release(cmd.Context(), args[0], r.by, r.because)
					return err
				})
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(p.Stdout, h)
				}
				_, err = fmt.Fprintf(p.Stdout, "legal hold %s is released\n", h.ID)
				return err
			})
		},
	}
	p.CompleteArgs(cmd, 1, active)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the hold as JSON")
	program.ByFlag(cmd, &r.by, p.Operator())
	program.BecauseFlag(cmd, &r.because)
	return cmd
}

// active lists the IDs of holds that are active.
func active(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
	var out []cobra.Completion
	for h, err := range legalhold.New(b).List(ctx) {
		if err != nil && h.ID == "" {
			return nil, err
		}
		if h.ReleasedAt.IsZero() {
			out = append(out, cobra.CompletionWithDesc(h.ID, output.Printable(h.Reason)))
		}
	}
	return out, nil
}

func (p commands) listCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List legal holds: active ones, then those that are released, the latest first",
		Example: `  postrider legal-hold list
  postrider legal-hold list --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.list(cmd.Context(), b, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func (p commands) list(ctx context.Context, b *backend.Outbox, asJSON bool) error {
	t := output.NewTableUnless(asJSON, p.Stdout, "ID", "PLACED AT", "BY", "BECAUSE", "RELEASED AT", "BY", "BECAUSE")
	n := 0
	for h, err := range legalhold.New(b).List(ctx) {
		if err != nil && h.ID == "" {
			return err
		}
		if n++; err != nil {
			fmt.Fprintf(p.Stderr, "postrider: %v\n", err)
			continue
		}
		if asJSON {
			if err := output.Line(p.Stdout, h); err != nil {
				return err
			}
			continue
		}
		released := "(active)"
		if !h.ReleasedAt.IsZero() {
			released = output.Minute(h.ReleasedAt)
		}
		t.Row(h.ID, output.Minute(h.PlacedAt), h.By, h.Reason, released, h.ReleasedBy, h.ReleaseReason)
	}
	if n == 0 {
		fmt.Fprintln(p.Stderr, "postrider: no legal holds")
		return nil
	}
	if t != nil {
		return t.Flush()
	}
	return nil
}
