package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
)

// selection says which dead letters a command applies to.
type selection struct {
	filter           deadFilter
	all, yes, dryRun bool
	by               string
	verb             string // "redrive"
}

const selectionLong = `Choose dead letters by number, by filters (together they narrow the choice), or all with --all. Anything but single
numbers asks first; without a terminal, give --yes. Two operators who decide at the same time never decide twice about the
same dead letter.`

func (p *Program) selectionFlags(cmd *cobra.Command, s *selection) {
	s.filter.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&s.all, "all", false, "choose all open dead letters of all relays and consumers")
	flags.BoolVarP(&s.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&s.dryRun, "dry-run", false, "only say how many it would be")
	byFlag(cmd, &s.by, p.operator())
}

// check validates the options before anything is opened.
func (s *selection) check(args []string) error {
	if err := s.filter.check(args); err != nil {
		return err
	}
	if err := s.filter.given(); err != nil {
		return err
	}
	switch {
	case s.all && s.filter.chosen(args):
		return usagef("give --all, or numbers or filters, not both")
	case !s.all && !s.filter.chosen(args):
		return usagef("choose dead letters by number, by filters, or all with --all")
	}
	return nil
}

// ask counts the dead letters and asks for confirmation; 0 means that there is nothing to do.
func (p *Program) ask(ctx context.Context, b *backend.Outbox, s *selection, f deadletter.Filter) (int64, error) {
	total, err := b.CountDead(ctx, f)
	if err != nil {
		return 0, err
	}
	if total == 0 {
		if err := mistyped(ctx, b, f); err != nil {
			return 0, err
		}
	}
	if total == 0 || s.dryRun {
		fmt.Fprintf(p.Stdout, "%s match; nothing was done\n", plural(total, "open dead letter"))
		return 0, nil
	}
	if len(f.Numbers) > 0 {
		return total, nil
	}
	return total, p.confirm(s.yes, fmt.Sprintf("%s %s?", capital(s.verb), plural(total, "dead letter")))
}

func (p *Program) deadDiscardCommand() *cobra.Command {
	s := &selection{verb: "discard"}
	var because string
	var batch int
	cmd := &cobra.Command{
		Use:   "discard [NUMBER...]",
		Short: "Give dead letters up for good, with a reason",
		Long: "Mark dead letters as discarded: they will not be delivered, and stay on record with who decided it and why.\n\n" +
			selectionLong + "\n\nThe work is done in transactions of --batch dead letters, so it can be interrupted and run again.",
		Example: `  postrider dead discard 17 --because 'order was cancelled by phone'
  postrider dead discard --type cart.abandoned --to 720h --because 'too old to matter' --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.check(args); err != nil {
				return err
			}
			if batch < 1 || batch > 10_000 {
				return usagef("--batch must be 1 to 10000, is %d", batch)
			}
			return p.withStore(cmd, func(b *backend.Outbox) error {
				f, err := s.filter.filter(cmd.Context(), b)
				if err != nil {
					return err
				}
				return p.discard(cmd.Context(), b, s, f, because, batch)
			})
		},
	}
	p.selectionFlags(cmd, s)
	cmd.Flags().IntVar(&batch, "batch", 1000, "decide on `n` dead letters per transaction")
	becauseFlag(cmd, &because)
	return cmd
}

// discard works until none of the dead letters that existed when it began, on the database's clock, are left. It leaves
// later ones alone, including those of messages redriven meanwhile.
func (p *Program) discard(ctx context.Context, b *backend.Outbox, s *selection, f deadletter.Filter, because string, batch int) error {
	if len(f.Numbers) > 0 && !s.dryRun { // all or none
		n, err := b.DiscardDead(ctx, f, s.by, because, len(f.Numbers))
		if err != nil {
			return fmt.Errorf("%w; nothing was done", err)
		}
		fmt.Fprintf(p.Stdout, "discarded %s\n", plural(n, "dead letter"))
		return nil
	}
	status, err := b.Status(ctx)
	if err != nil {
		return err
	}
	if f.To.IsZero() || f.To.After(status.Now) {
		f.To = status.Now
	}
	total, err := p.ask(ctx, b, s, f)
	if err != nil || total == 0 {
		return err
	}
	began, done := time.Now(), int64(0)
	bar := p.progress(total, s.verb)
	defer bar.end()
	for done < total {
		n, err := b.DiscardDead(ctx, f, s.by, because, int(min(total-done, int64(batch))))
		if err != nil {
			return fmt.Errorf("%w; %s of %s are discarded, run it again for the rest", err, number(done), number(total))
		}
		if n == 0 {
			break
		}
		done += int64(n)
		bar.add(n)
	}
	bar.end()
	fmt.Fprintf(p.Stdout, "discarded %s in %s\n", plural(done, "dead letter"), ago(time.Since(began)))
	return nil
}

// byFlag adds the flag that names who decides, by default the operator.
func byFlag(cmd *cobra.Command, by *string, operator string) {
	cmd.Flags().StringVar(by, "by", operator, "who decides, as a `name` for the record")
	cmd.Flags().Lookup("by").DefValue = "$USER"
}

// becauseFlag adds the flag for the reason, which stays on record.
func becauseFlag(cmd *cobra.Command, because *string) {
	cmd.Flags().Var((*recordText)(because), "because", "why, as a `text` for the record (required)")
	if err := cmd.MarkFlagRequired("because"); err != nil {
		panic("postrider: " + err.Error())
	}
}

// recordText is the value of a flag that stays on record, and so must not be empty.
type recordText string

func (r *recordText) String() string { return string(*r) }

// Type implements the interface of flags.
func (*recordText) Type() string { return "string" }

// Set implements the interface of flags.
func (r *recordText) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("it is empty, and stays on record: say why")
	}
	*r = recordText(text)
	return nil
}

func capital(word string) string { return string(word[0]-'a'+'A') + word[1:] }
