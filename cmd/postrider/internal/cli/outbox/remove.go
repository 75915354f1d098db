package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

func (p commands) outboxRemoveCommand() *cobra.Command {
	var o removal
	cmd := &cobra.Command{
		Use:   "remove RELAY",
		Short: "Remove a relay or consumer that is gone for good",
		Long: `Remove a relay or consumer that is gone for good. As long as the outbox knows a relay, it keeps every message that this
relay has not delivered, so the log grows without end if the relay no longer runs. What a removed relay has not delivered
it never will; other relays are not affected.

The step refuses while one of its processes is alive, and while it has held keys, parked messages or open dead letters:
decide about these first (postrider held, postrider dead), or give --discard, which records all of them as discarded dead
letters. A relay started later under this name starts over: it delivers again what the log still has.

What was processed stays on record: dead letters, attempts, and of a consumer the IDs of its messages and its positions.
With --everything, that is removed too, permanently; export dead letters first if you need them. A consumer that returns
under this name then processes whatever it receives. The records of what operators did stay: redrives, replays, the audit.`,
		Example: `  postrider outbox remove to-old-broker --because 'switched off'
  postrider outbox remove to-old-broker --discard --because 'switched off' --yes
  postrider outbox remove old-view --discard --everything --because 'rebuilt'`,
		Args: program.ExactArgs("a RELAY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				return p.removeRelay(cmd, b, args[0], o)
			})
		},
	}
	p.CompleteArgs(cmd, 1, program.Relays)
	cmd.Flags().BoolVar(&o.discard, "discard", false, "discard its held keys, parked messages and open dead letters, on the record")
	cmd.Flags().BoolVar(&o.everything, "everything", false, "also remove what it has processed, permanently")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what it would be")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	program.ByFlag(cmd, &o.by, p.Operator())
	program.BecauseFlag(cmd, &o.because)
	return cmd
}

// removal are the options of a removal.
type removal struct {
	discard, everything, dryRun, yes bool
	by, because                      string
}

func (p commands) removeRelay(cmd *cobra.Command, b *backend.Outbox, name string, o removal) error {
	ctx := cmd.Context()
	question, err := p.removalQuestion(ctx, b, name, o)
	if err != nil {
		return err
	}
	if o.dryRun {
		_, err := fmt.Fprintf(p.Stdout, "%s\nnothing was done\n", question)
		return err
	}
	if err := p.Confirm(o.yes, question); err != nil {
		return err
	}
	n, err := held.New(b).RemoveRelay(ctx, name, o.by, o.because, o.discard)
	switch {
	case errors.Is(err, store.ErrUnknownRelay) && o.everything: // it was removed before
	case errors.Is(err, store.ErrParked):
		return fmt.Errorf("%w: see %s and %s, or give --discard; nothing has changed",
			err, p.Hint("held list --relay %s", output.ShellQuote(name)), p.Hint("dead list --relay %s", output.ShellQuote(name)))
	case err != nil:
		return fmt.Errorf("%s: %w; nothing has changed", b.Shown, err)
	default:
		fmt.Fprintf(p.Stdout, "relay %s is removed; %s discarded\n", output.Printable(name), output.Plural(n, "message"))
	}
	if !o.everything {
		return nil
	}
	if err := held.New(b).RemoveKept(ctx, name); err != nil {
		return fmt.Errorf("%s: remove what was processed: %w; run it again for the rest", b.Shown, err)
	}
	_, err = fmt.Fprintf(p.Stdout, "what %s has processed is removed\n", output.Printable(name))
	return err
}

// removalQuestion says what a removal would do.
func (p commands) removalQuestion(ctx context.Context, b *backend.Outbox, name string, o removal) (string, error) {
	s, err := b.Status(ctx)
	if err != nil {
		return "", err
	}
	kept, err := held.New(b).CountKept(ctx, name)
	if err != nil {
		return "", err
	}
	also := ""
	if o.everything {
		also = fmt.Sprintf(" It also removes %s in any state, %s, %s of what it has processed and %s, permanently.",
			output.Plural(kept.DeadLetters, "dead letter"), output.Plural(kept.Attempts, "attempt"), output.Plural(kept.Processed, "record"),
			output.Plural(kept.Positions, "position"))
	}
	relays, err := program.ChosenRelays(s.Relays, name)
	switch {
	case err != nil && (kept.DeadLetters > 0 || o.everything && kept.Total() > 0): // e.g. dead letters were imported for it
		return fmt.Sprintf("Remove relay %s, which has not run here, and discard what was imported for it and is not decided?", output.Printable(name)) + also, nil
	case err != nil:
		return "", err
	}
	r := &relays[0]
	discards := ""
	if o.discard {
		discards = fmt.Sprintf(" and discard %s parked messages and %s dead letters", output.Count(r.Parked), output.Count(r.Dead))
	}
	return fmt.Sprintf("Remove relay %s (%s undelivered, which it will never deliver)%s?", output.Printable(name), output.Count(r.Backlog), discards) + also, nil
}
