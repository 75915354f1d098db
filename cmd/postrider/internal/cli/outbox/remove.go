package outbox

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

func (p commands) outboxRemoveCommand() *cobra.Command {
	var yes, discard bool
	var by, because string
	cmd := &cobra.Command{
		Use:   "remove RELAY",
		Short: "Remove a relay or consumer that is gone for good",
		Long: `Remove a relay or consumer that is gone for good. As long as the outbox knows a relay, it keeps every message that this
relay has not delivered, so the log grows without end if the relay no longer runs. What a removed relay has not delivered
it never will; other relays are not affected.

The step refuses while one of its processes is alive, and while it has held keys, parked messages or open dead letters:
decide about these first (postrider held, postrider dead), or give --discard, which records all of them as discarded dead
letters. A relay started later under this name starts over: it delivers again what the log still has.`,
		Example: `  postrider outbox remove to-old-broker --because 'switched off'
  postrider outbox remove to-old-broker --discard --because 'switched off' --yes`,
		Args: program.ExactArgs("a RELAY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				return p.removeRelay(cmd, b, args[0], decisionRecord{by, because}, discard, yes)
			})
		},
	}
	p.CompleteArgs(cmd, 1, program.Relays)
	cmd.Flags().BoolVar(&discard, "discard", false, "discard its held keys, parked messages and open dead letters, on the record")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	program.ByFlag(cmd, &by, p.Operator())
	program.BecauseFlag(cmd, &because)
	return cmd
}

// decisionRecord records who made a decision, and why.
type decisionRecord struct{ by, because string }

func (p commands) removeRelay(cmd *cobra.Command, b *backend.Outbox, name string, d decisionRecord, discard, yes bool) error {
	s, err := b.Status(cmd.Context())
	if err != nil {
		return err
	}
	var r store.RelayStatus
	relays, err := program.ChosenRelays(s.Relays, name)
	if err == nil {
		r = relays[0]
	} else if n, countErr := deadletter.New(b).CountDead(cmd.Context(), store.DeadFilter{Relay: name, State: store.DeadAny}); n == 0 || countErr != nil {
		return errors.Join(err, countErr) // otherwise dead letters were imported for it
	}
	question := fmt.Sprintf("Remove relay %s (%s undelivered, which it will never deliver)?", output.Printable(name), output.Count(r.Backlog))
	if discard {
		question = fmt.Sprintf("Remove relay %s (%s undelivered, which it will never deliver) and discard %s parked messages and %s dead letters?",
			output.Printable(name), output.Count(r.Backlog), output.Count(r.Parked), output.Count(r.Dead))
	}
	if len(relays) == 0 {
		question = fmt.Sprintf("Remove relay %s, which has not run here, and discard what was imported for it and is not decided?", output.Printable(name))
	}
	if err := p.Confirm(yes, question); err != nil {
		return err
	}
	n, err := held.New(b).RemoveRelay(cmd.Context(), name, d.by, d.because, discard)
	if errors.Is(err, store.ErrParked) {
		return fmt.Errorf("%w: see %s and %s, or give --discard; nothing has changed",
			err, p.Hint("held list --relay %s", output.ShellQuote(name)), p.Hint("dead list --relay %s", output.ShellQuote(name)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w; nothing has changed", b.Shown, err)
	}
	_, err = fmt.Fprintf(p.Stdout, "relay %s is removed; %s discarded\n", output.Printable(name), output.Plural(n, "message"))
	return err
}
