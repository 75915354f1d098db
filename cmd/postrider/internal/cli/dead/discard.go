package dead

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

func (p commands) deadDiscardCommand() *cobra.Command {
	s := &selection.Selection{Verb: "discard"}
	var batch int
	cmd := &cobra.Command{
		Use:   "discard [NUMBER...]",
		Short: "Discard dead letters for good, with a reason",
		Long: "Mark dead letters as discarded: they will not be delivered, and stay on record with who decided it and why.\n\n" +
			selection.Long + "\n\nThe work is done in transactions of --batch dead letters, so it can be interrupted and run again.",
		Example: `  postrider dead discard 17 --because 'order was cancelled by phone'
  postrider dead discard --type cart.abandoned --to 720h --because 'too old to matter' --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.Check(args); err != nil {
				return err
			}
			if batch < 1 || batch > 10_000 {
				return program.Usagef("--batch must be 1 to 10000, is %d", batch)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				f, err := s.Filter.Resolve(cmd.Context(), b)
				if err != nil {
					return err
				}
				return p.discard(cmd.Context(), b, s, f, batch)
			})
		},
	}
	s.Flags(p.Program, cmd)
	p.CompleteArgs(cmd, 0, program.DeadLetters(store.DeadOpen))
	cmd.Flags().IntVar(&batch, "batch", 1000, "decide on `n` dead letters per transaction")
	program.BecauseFlag(cmd, &s.Because)
	return cmd
}

// discardSome discards up to limit dead letters in one transaction, which also puts it on record.
func (p commands) discardSome(ctx context.Context, b *backend.Outbox, s *selection.Selection, f store.DeadFilter, limit int) (n int, err error) {
	err = p.Act(ctx, b, s.By, s.Change("DiscardDead", f), func(db held.Database) (err error) {
		n, err = deadletter.New(db).DiscardDead(ctx, f, s.By, s.Because, limit)
		return err
	})
	return n, err
}

// discard works until none of the dead letters that existed when it began, on the database's clock, are left. It leaves
// later ones alone, including those of messages redriven meanwhile.
func (p commands) discard(ctx context.Context, b *backend.Outbox, s *selection.Selection, f store.DeadFilter, batch int) error {
	if len(f.Numbers) > 0 && !s.DryRun { // all or none
		n, err := p.discardSome(ctx, b, s, f, len(f.Numbers))
		if err != nil {
			return fmt.Errorf("%w; nothing was done", err)
		}
		fmt.Fprintf(p.Stdout, "discarded %s\n", output.Plural(n, "dead letter"))
		return nil
	}
	status, err := b.Status(ctx)
	if err != nil {
		return err
	}
	if f.To.IsZero() || f.To.After(status.Now) {
		f.To = status.Now
	}
	total, err := s.Confirm(ctx, p.Program, b, f)
	if err != nil || total == 0 {
		return err
	}
	began, done := time.Now(), int64(0)
	bar := p.Progress(total, s.Verb)
	defer bar.End()
	for done < total {
		n, err := p.discardSome(ctx, b, s, f, int(min(total-done, int64(batch))))
		if err != nil {
			return fmt.Errorf("%w; %s of %s are discarded, run it again for the rest", err, output.Number(done), output.Number(total))
		}
		if n == 0 {
			break
		}
		done += int64(n)
		bar.Add(n)
	}
	bar.End()
	fmt.Fprintf(p.Stdout, "discarded %s in %s\n", output.Plural(done, "dead letter"), output.Ago(time.Since(began)))
	return nil
}
