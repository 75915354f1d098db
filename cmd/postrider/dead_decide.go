package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
)

// decision is what redrive and discard have in common.
type decision struct {
	filter           deadFilter
	all, yes, dryRun bool
	batch            int
	by, because      string

	verb, done string // "redrive", "redriven"
	// apply decides on up to limit letters and returns on how many it did.
	apply func(ctx context.Context, b *backend.Outbox, f deadletter.Filter, limit int) (int, error)
}

const decideLong = `Choose dead letters by number, by filters (together they narrow the choice), or all with --all. More than single numbers
are asked about first; without a terminal, --yes must be given. The work is done in transactions of --batch letters, so it
can be interrupted and run again; two operators at once never decide on the same letter twice.`

func (p *Program) deadRedriveCommand() *cobra.Command {
	d := &decision{verb: "redrive", done: "redriven"}
	d.apply = func(ctx context.Context, b *backend.Outbox, f deadletter.Filter, limit int) (int, error) {
		return b.RedriveDead(ctx, f, d.by, limit)
	}
	return p.decisionCommand(d, &cobra.Command{
		Use:   "redrive [NUMBER...]",
		Short: "Send dead letters back to their relays",
		Long: "Send dead letters back to their relays: they are due at once, with attempts from 1 again. A key that was held for\n" +
			"its dead head goes on.\n\n" + decideLong,
		Example: `  postrider dead redrive 17 18
  postrider dead redrive --relay to-nats --reason 'attempts exhausted' --from 24h
  postrider dead redrive --all --dry-run
  postrider dead redrive --all --yes`,
	})
}

func (p *Program) deadDiscardCommand() *cobra.Command {
	d := &decision{verb: "discard", done: "discarded"}
	d.apply = func(ctx context.Context, b *backend.Outbox, f deadletter.Filter, limit int) (int, error) {
		return b.DiscardDead(ctx, f, d.by, d.because, limit)
	}
	cmd := p.decisionCommand(d, &cobra.Command{
		Use:   "discard [NUMBER...]",
		Short: "Give dead letters up for good, with a reason",
		Long: "Mark dead letters as discarded: they will not be delivered, and stay on record with who decided it and why.\n\n" +
			decideLong,
		Example: `  postrider dead discard 17 --because 'order was cancelled by phone'
  postrider dead discard --type cart.abandoned --to 720h --because 'too old to matter' --yes`,
	})
	becauseFlag(cmd, &d.because)
	return cmd
}

// decisionCommand completes a command that decides on dead letters.
func (p *Program) decisionCommand(d *decision, cmd *cobra.Command) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := d.filter.check(args); err != nil {
			return err
		}
		switch {
		case d.all && d.filter.chosen(args):
			return usagef("give --all, or numbers or filters, not both")
		case !d.all && !d.filter.chosen(args):
			return usagef("choose dead letters by number, by filters, or all with --all")
		case d.batch < 1 || d.batch > 10_000:
			return usagef("--batch must be 1 to 10000, is %d", d.batch)
		}
		return p.withStore(cmd, func(b *backend.Outbox) error {
			f, err := d.filter.filter(cmd.Context(), b)
			if err != nil {
				return err
			}
			return p.decide(cmd.Context(), b, d, f)
		})
	}
	d.filter.flags(cmd)
	s := cmd.Flags()
	s.BoolVar(&d.all, "all", false, "choose all open dead letters of all relays")
	s.BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	s.BoolVar(&d.dryRun, "dry-run", false, "only say how many it would be")
	s.IntVar(&d.batch, "batch", 1000, "decide on `n` letters per transaction")
	byFlag(cmd, &d.by, p.operator())
	return cmd
}

// decide asks, works in batches and says what was done.
func (p *Program) decide(ctx context.Context, b *backend.Outbox, d *decision, f deadletter.Filter) error {
	if len(f.Numbers) > 0 && !d.dryRun {
		n, err := d.apply(ctx, b, f, len(f.Numbers))
		if err != nil {
			return fmt.Errorf("%w; nothing was done", err)
		}
		fmt.Fprintf(p.Stdout, "%s %s\n", d.done, plural(n, "dead letter"))
		return nil
	}
	total, err := b.CountDead(ctx, f)
	if err != nil {
		return err
	}
	if total == 0 || d.dryRun {
		fmt.Fprintf(p.Stdout, "%s match; nothing was done\n", plural(total, "open dead letter"))
		return nil
	}
	if err := p.confirm(d.yes, fmt.Sprintf("%s %s?", capital(d.verb), plural(total, "dead letter"))); err != nil {
		return err
	}
	return p.decideAll(ctx, b, d, f, total)
}

// decideAll works until none is left of those that stood there when it began: letters that die meanwhile, perhaps the
// same messages once more, are left alone.
func (p *Program) decideAll(ctx context.Context, b *backend.Outbox, d *decision, f deadletter.Filter, total int64) error {
	began, done := time.Now(), int64(0)
	bar := p.progress(total, d.verb)
	defer bar.end()
	for done < total {
		n, err := d.apply(ctx, b, f, int(min(total-done, int64(d.batch))))
		if err != nil {
			return fmt.Errorf("%w; %s of %s are %s, run it again for the rest", err, number(done), number(total), d.done)
		}
		if n == 0 {
			break
		}
		done += int64(n)
		bar.add(n)
	}
	bar.end()
	fmt.Fprintf(p.Stdout, "%s %s in %s\n", d.done, plural(done, "dead letter"), ago(time.Since(began)))
	return nil
}

// byFlag adds the flag that says who decides, by default the operator.
func byFlag(cmd *cobra.Command, by *string, operator string) {
	cmd.Flags().StringVar(by, "by", operator, "who decides, as a `name` for the record")
	cmd.Flags().Lookup("by").DefValue = "$USER"
}

// becauseFlag adds the flag that says why something is given up, which stays on record.
func becauseFlag(cmd *cobra.Command, because *string) {
	cmd.Flags().StringVar(because, "because", "", "why, as a `text` for the record (required)")
	if err := cmd.MarkFlagRequired("because"); err != nil {
		panic("postrider: " + err.Error())
	}
}

func capital(word string) string { return string(word[0]-'a'+'A') + word[1:] }
