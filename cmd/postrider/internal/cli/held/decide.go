package held

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

func (p commands) heldRetryCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "retry KEY",
		Short: "Retry the blocking message of a held key now",
		Example: `  postrider held retry order/42
  postrider held retry order/42 --relay to-nats`,
		Args: program.ExactArgs("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.onHeld(cmd, name, args[0], func(b *backend.Outbox, name string) error {
				d := store.Decision{Relay: name, Key: args[0], Verb: store.VerbRetry, By: p.Operator()}
				if _, err := p.Decide(cmd.Context(), b, d); err != nil {
					return err
				}
				_, err := fmt.Fprintf(p.Stdout, "key %s of relay %s is due at once\n", output.Printable(args[0]), output.Printable(name))
				return err
			})
		},
	}
	p.relayFlag(cmd, &name)
	p.CompleteArgs(cmd, 1, program.HeldKeys(&name))
	return cmd
}

func (p commands) heldSkipCommand() *cobra.Command {
	var name, by, because, message string
	cmd := &cobra.Command{
		Use:   "skip KEY",
		Short: "Skip the blocking message of a held key and release the queued messages",
		Long: `Skip the blocking message of a held key and release the messages queued after it. The message becomes a discarded dead
letter, with who decided it and why, and is not delivered. While a process works on the message, the decision waits for
the end of the attempt; if the message was delivered, the decision is refused. The output names the message. The decision
is also refused if another message blocks the key when it is applied than the one that --message names or, without
--message, the one that blocked the key when the command began.`,
		Example: `  postrider held skip order/42 --because 'payload is broken, agreed with billing'
  postrider held skip order/42 --message 0190f3c2-8d7e-7cc1-9c3e-3f3a1d1f0a77 --because 'duplicate of 0190f3c2-…'`,
		Args: program.ExactArgs("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.onHeld(cmd, name, args[0], func(b *backend.Outbox, name string) error {
				d := store.Decision{Relay: name, Key: args[0], Verb: store.VerbSkip, MessageID: message, By: by, Reason: because}
				d, _, err := p.decide(cmd.Context(), b, d)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(p.Stdout, "skipped the blocking message of key %s of relay %s, %s; the queued messages follow\n",
					output.Printable(d.Key), output.Printable(name), output.Printable(d.MessageID))
				return err
			})
		},
	}
	p.relayFlag(cmd, &name)
	p.CompleteArgs(cmd, 1, program.HeldKeys(&name))
	program.ByFlag(cmd, &by, p.Operator())
	program.BecauseFlag(cmd, &because)
	cmd.Flags().StringVar(&message, "message", "", "ID of the message that is expected to block the key (default the one that blocks it now)")
	return cmd
}

func (p commands) heldDeadCommand() *cobra.Command {
	var name, by, because, message string
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "dead KEY",
		Short: "Move the blocking message of a held key, or the whole key, to the dead letters",
		Long: `Move the blocking message of a held key to the dead letters and release the messages queued after it; with --all, move
every parked message of the key. They can be redriven later. Without --all it is refused if the key waits for a decision
about a dead letter, because the queued messages would be delivered past it. While a process works on a message of the
key, the decision waits for the end of the attempt.`,
		Example: `  postrider held dead order/42 --because 'receiver does not know this type yet'
  postrider held dead order/42 --all --because 'customer was erased' --yes`,
		Args: program.ExactArgs("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.onHeld(cmd, name, args[0], func(b *backend.Outbox, name string) error {
				if all {
					question := fmt.Sprintf("Send every parked message of key %s to the dead letters?", output.Printable(args[0]))
					if err := p.Confirm(yes, question); err != nil {
						return err
					}
				}
				verb := store.VerbDead
				if all {
					verb = store.VerbDeadAll
				}
				d := store.Decision{Relay: name, Key: args[0], Verb: verb, MessageID: message, By: by, Reason: because}
				d, n, err := p.decide(cmd.Context(), b, d)
				if err != nil {
					return err
				}
				which := ""
				if !all {
					which = ", " + output.Printable(d.MessageID)
				}
				_, err = fmt.Fprintf(p.Stdout, "sent %s of key %s of relay %s to the dead letters%s\n", output.Plural(n, "message"),
					output.Printable(d.Key), output.Printable(name), which)
				return err
			})
		},
	}
	p.relayFlag(cmd, &name)
	p.CompleteArgs(cmd, 1, program.HeldKeys(&name))
	cmd.Flags().BoolVar(&all, "all", false, "every parked message of the key")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	program.ByFlag(cmd, &by, p.Operator())
	program.BecauseFlag(cmd, &because)
	cmd.Flags().StringVar(&message, "message", "", "ID of the message that is expected to block the key (default the one that blocks it now)")
	return cmd
}

// decide makes a decision about a key while the message blocks it that does now, or that d names. It returns the decision with that
// message and how many messages it concerned.
func (p commands) decide(ctx context.Context, b *backend.Outbox, d store.Decision) (store.Decision, int, error) {
	if d.MessageID == "" {
		h, _, err := held.New(b).ShowHeld(ctx, d.Relay, d.Key, 0)
		if err != nil {
			return d, 0, err
		}
		d.MessageID = h.MessageID
	}
	n, err := p.Decide(ctx, b, d)
	return d, n, err
}
