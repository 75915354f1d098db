package held

import (
	"context"
	"fmt"
	"time"

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
				if _, err := p.decide(cmd, b, store.Decision{Relay: name, Key: args[0], Verb: store.VerbRetry, By: p.Operator()}); err != nil {
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
the end of the attempt; if the message was delivered, the decision is refused. It is also refused if --message names
another message than the one that blocks the key now.`,
		Example: `  postrider held skip order/42 --because 'payload is broken, agreed with billing'
  postrider held skip order/42 --message 0190f3c2-8d7e-7cc1-9c3e-3f3a1d1f0a77 --because 'duplicate of 0190f3c2-…'`,
		Args: program.ExactArgs("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.onHeld(cmd, name, args[0], func(b *backend.Outbox, name string) error {
				if _, err := p.decide(cmd, b, store.Decision{Relay: name, Key: args[0], Verb: store.VerbSkip, MessageID: message, By: by, Reason: because}); err != nil {
					return err
				}
				_, err := fmt.Fprintf(p.Stdout, "skipped the blocking message of key %s of relay %s; the queued messages follow\n", output.Printable(args[0]), output.Printable(name))
				return err
			})
		},
	}
	p.relayFlag(cmd, &name)
	p.CompleteArgs(cmd, 1, program.HeldKeys(&name))
	program.ByFlag(cmd, &by, p.Operator())
	program.BecauseFlag(cmd, &because)
	cmd.Flags().StringVar(&message, "message", "", "ID of the message that is expected to block the key (default any)")
	return cmd
}

func (p commands) heldDeadCommand() *cobra.Command {
	var name, by, because, message string
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "dead KEY",
		Short: "Move the blocking message of a held key, or the whole key, to the dead letters",
		Long: `Move the blocking message of a held key to the dead letters and release the messages queued after it; with --all, move
every parked message of the key. They can be redriven later. While a process works on a message of the key, the decision
waits for the end of the attempt.`,
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
				n, err := p.decide(cmd, b, store.Decision{Relay: name, Key: args[0], Verb: verb, MessageID: message, By: by, Reason: because})
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(p.Stdout, "sent %s of key %s of relay %s to the dead letters\n", output.Plural(n, "message"), output.Printable(args[0]), output.Printable(name))
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
	cmd.Flags().StringVar(&message, "message", "", "ID of the message that is expected to block the key (default any)")
	return cmd
}

// decide records a decision about a held key and waits until it is applied.
func (p commands) decide(cmd *cobra.Command, b *backend.Outbox, d store.Decision) (count int, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), decisionWait)
	defer cancel()
	d, err = held.Decide(ctx, b, d)
	return d.Count, err
}

// decisionWait is how long a command waits for a decision to be applied.
const decisionWait = time.Minute
