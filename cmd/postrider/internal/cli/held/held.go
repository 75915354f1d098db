// Package held has the command "postrider held", which lists held keys and decides about them.
package held

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("held", "List and inspect held keys, and decide on them",
		`A held key is blocked by a message that failed. That message and the later ones of the key are parked, so that order is
kept, and all other keys flow. Once the blocking message is delivered, the others follow. An operator can retry it at
once, skip it (it becomes a discarded dead letter), or move it, or every message of the key, to the dead letters.`,
		p.heldListCommand(), p.heldShowCommand(), p.heldRetryCommand(), p.heldSkipCommand(), p.heldDeadCommand())
}

func (p commands) heldListCommand() *cobra.Command {
	var name string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List held keys by relay, longest held first",
		Example: `  postrider held list
  postrider held list --relay to-nats --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return program.Usagef("--limit must not be negative, is %d", limit)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.listHeld(cmd.Context(), b, name, limit, asJSON) })
		},
	}
	p.relayFlag(cmd, &name)
	cmd.Flags().IntVar(&limit, "limit", 0, "list at most `n` keys (0: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func (p commands) relayFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "relay", "", "the relay, by its `name`; needed only when several hold such a key")
	p.CompleteFlag(cmd, "relay", program.Relays)
}

func (p commands) listHeld(ctx context.Context, b *backend.Outbox, name string, limit int, asJSON bool) error {
	t := output.NewTableUnless(asJSON, p.Stdout, "KEY", "RELAY", "HELD SINCE", "ATTEMPTS", "NEXT ATTEMPT", "PARKED", "CAUSE")
	n := 0
	for h, err := range held.New(b).ListHeld(ctx, name) {
		if err != nil {
			return err
		}
		if asJSON {
			err = output.Line(p.Stdout, h)
		} else {
			t.Row(h.Key, h.Relay, output.Minute(h.Since), h.Attempts, nextAttempt(h, output.Second), output.Number(h.Parked),
				cmp.Or(causeOf(h), string(h.Reason)))
		}
		if n++; err != nil {
			return err
		}
		if n == limit {
			break
		}
	}
	if n == 0 {
		if name != "" {
			if err := program.KnownRelay(ctx, b, name); err != nil {
				return err
			}
		}
		fmt.Fprintln(p.Stderr, "postrider: no key is held")
		return nil
	}
	if t != nil {
		return t.Flush()
	}
	return nil
}

// causeOf is what went wrong, for a column with little room: without the reason of a dead letter, which comes before it.
func causeOf(h store.HeldInfo) string {
	if _, cause, ok := strings.Cut(h.Cause, ": "); ok && h.Reason == store.ParkDead && cause != "" {
		return cause
	}
	return h.Cause
}

func nextAttempt(h store.HeldInfo, format func(time.Time) string) string {
	if h.NextAttempt.IsZero() {
		return "when decided"
	}
	return format(h.NextAttempt)
}

func (p commands) heldShowCommand() *cobra.Command {
	var name string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show a held key with its parked messages",
		Example: `  postrider held show order/42
  postrider held show order/42 --limit 100 --json`,
		Args: program.ExactArgs("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return program.Usagef("--limit must be 1 or more, is %d", limit)
			}
			return p.onHeld(cmd, name, args[0], func(b *backend.Outbox, name string) error {
				h, parked, err := held.New(b).ShowHeld(cmd.Context(), name, args[0], limit)
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(p.Stdout, struct {
						store.HeldInfo
						Messages []store.ParkedInfo `json:"messages"`
					}{h, parked})
				}
				return p.writeHeld(h, parked)
			})
		},
	}
	p.relayFlag(cmd, &name)
	p.CompleteArgs(cmd, 1, program.HeldKeys(&name))
	cmd.Flags().IntVar(&limit, "limit", 20, "show at most `n` parked messages")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func (p commands) writeHeld(h store.HeldInfo, parked []store.ParkedInfo) error {
	fmt.Fprintf(p.Stdout, "key %s of relay %s, partition %d: held since %s\n", output.Printable(h.Key), output.Printable(h.Relay), h.Partition, output.Moment(h.Since))
	f := output.NewFields(p.Stdout)
	f.Add("reason", string(h.Reason))
	f.Add("cause", h.Cause)
	f.Add("blocked by", h.MessageID)
	f.Add("attempts", output.Number(h.Attempts))
	f.Add("next attempt", nextAttempt(h, output.Moment))
	f.Add("parked", output.Plural(h.Parked, "message"))
	f.Flush()
	fmt.Fprintln(p.Stdout)
	t := output.NewTable(p.Stdout, "SEQUENCE", "ID", "ATTEMPTS", "DUE AT", "REASON", "TYPE")
	for _, m := range parked {
		t.Row(m.Message.Sequence, m.Message.ID, m.Attempts, output.Minute(m.DueAt), m.Reason, m.Message.Type)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(parked) > 0 {
		output.History(p.Stdout, parked[0].History)
	}
	return p.writeDecisions(h)
}

// writeDecisions writes the commands for what can be decided about a held key. They name the message that was shown.
func (p commands) writeDecisions(h store.HeldInfo) error {
	if h.MessageID == "" {
		_, err := fmt.Fprintln(p.Stdout, "\nno message blocks the key any more; it is about to be released")
		return err
	}
	key, message := output.ShellQuote(h.Key), output.ShellQuote(h.MessageID)
	skip := p.Hint("held skip %s --message %s --because \"…\"", key, message)
	if h.NextAttempt.IsZero() {
		_, err := fmt.Fprintf(p.Stdout, "\nits dead letter: %s\nskip it:         %s\n", p.Hint("dead list --relay %s --key %s", output.ShellQuote(h.Relay), key), skip)
		return err
	}
	_, err := fmt.Fprintf(p.Stdout, "\nretry now:       %s\nskip it:         %s\ndead-letter it:  %s  (--all for the whole key)\n",
		p.Hint("held retry %s", key), skip, p.Hint("held dead %s --message %s --because \"…\"", key, message))
	return err
}

// onHeld runs f with the store and the relay that holds the key.
func (p commands) onHeld(cmd *cobra.Command, name, key string, f func(b *backend.Outbox, relay string) error) error {
	return p.WithStore(cmd, func(b *backend.Outbox) error {
		name, err := holderOf(cmd.Context(), b, name, key)
		if err != nil {
			return err
		}
		err = f(b, name)
		if errors.Is(err, store.ErrNotHeld) {
			return notHeld(key, name)
		}
		if err != nil {
			return fmt.Errorf("held key %s of relay %s: %w", output.Printable(key), output.Printable(name), err)
		}
		return nil
	})
}

// holderOf returns the relay that holds a key, unless one is given.
func holderOf(ctx context.Context, b *backend.Outbox, name, key string) (string, error) {
	if name != "" {
		return name, nil
	}
	names, err := program.RelayNames(ctx, b)
	if err != nil {
		return "", err
	}
	var holders []string
	for _, n := range names {
		_, _, err := held.New(b).ShowHeld(ctx, n, key, 0)
		switch {
		case err == nil:
			holders = append(holders, output.Printable(n))
			name = n
		case !errors.Is(err, store.ErrNotHeld):
			return "", err
		}
	}
	switch len(holders) {
	case 0:
		return "", notHeld(key, "")
	case 1:
		return name, nil
	}
	return "", program.Usagef("key %s is held by the relays %s; choose one with --relay", output.Printable(key), strings.Join(holders, " and "))
}

func notHeld(key, name string) error {
	return fmt.Errorf("%w: %s (%s); postrider held list shows those that are",
		store.ErrNotHeld, output.Printable(key), cmp.Or(output.Printable(name), "any relay"))
}
