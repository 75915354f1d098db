package parked

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// howApplied says when a decision takes effect, and when it is refused.
const howApplied = `While a process works on the message, the decision waits for the end of the attempt. If the message was
delivered meanwhile, the decision is refused.`

func (p commands) retryCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Retry a parked message now",
		Long:  "Make a parked message due at once, whatever it waits for.\n" + howApplied,
		Example: `  postrider parked retry 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a
  postrider parked retry 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a --relay to-nats`,
		Args: program.ExactArgs("an ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := store.Decision{Relay: name, MessageID: args[0], Verb: store.VerbRetry, By: p.Operator()}
			return p.decide(cmd, d, "message %s of relay %s is due at once\n")
		},
	}
	p.relayFlag(cmd, &name, onlyOne)
	p.CompleteArgs(cmd, 1, program.ParkedMessages(&name))
	return cmd
}

func (p commands) skipCommand() *cobra.Command {
	return p.deadLetterCommand(store.VerbSkip, &cobra.Command{
		Use:   "skip ID",
		Short: "Skip a parked message",
		Long: `Skip a parked message: it becomes a discarded dead letter, with who decided it and why, and is not delivered.
` + howApplied,
		Example: `  postrider parked skip 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a --because 'payload is broken, agreed with billing'`,
	}, "skipped message %s of relay %s\n")
}

func (p commands) deadCommand() *cobra.Command {
	return p.deadLetterCommand(store.VerbDead, &cobra.Command{
		Use:   "dead ID",
		Short: "Move a parked message to the dead letters",
		Long: `Move a parked message to the dead letters, from where it can be edited and redriven.
` + howApplied,
		Example: `  postrider parked dead 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a --because 'receiver does not know this type yet'`,
	}, "sent message %s of relay %s to the dead letters\n")
}

// deadLetterCommand completes a command that moves a parked message to the dead letters.
func (p commands) deadLetterCommand(verb store.Verb, cmd *cobra.Command, done string) *cobra.Command {
	var name, by, because string
	cmd.Args = program.ExactArgs("an ID")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.decide(cmd, store.Decision{Relay: name, MessageID: args[0], Verb: verb, By: by, Reason: because}, done)
	}
	p.relayFlag(cmd, &name, onlyOne)
	p.CompleteArgs(cmd, 1, program.ParkedMessages(&name))
	program.ByFlag(cmd, &by, p.Operator())
	program.BecauseFlag(cmd, &because)
	return cmd
}

// decide makes a decision about a parked message and says that it is done, with the message and the relay.
func (p commands) decide(cmd *cobra.Command, d store.Decision, done string) error {
	return p.WithStore(cmd, func(b *backend.Outbox) error {
		m, err := find(cmd.Context(), b, d.Relay, d.MessageID)
		if err != nil {
			return err
		}
		d.Relay, d.Sequence = m.Relay, m.Message.Sequence
		id, name := output.Printable(d.MessageID), output.Printable(d.Relay)
		if _, err := p.Decide(cmd.Context(), b, d); err != nil {
			return fmt.Errorf("parked message %s of relay %s: %w", id, name, err)
		}
		_, err = fmt.Fprintf(p.Stdout, done, id, name)
		return err
	})
}
