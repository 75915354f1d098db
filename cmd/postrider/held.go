package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
)

func (p *Program) heldCommand() *cobra.Command {
	return group("held", "List and inspect held keys, and decide on them",
		`A held key is blocked by a message that failed. That message and the later ones of the key are parked, so that order is
kept, and all other keys flow. Once the blocking message is delivered, the others follow. An operator can retry it at
once, skip it (it becomes a discarded dead letter), or move it, or every message of the key, to the dead letters.`,
		p.heldListCommand(), p.heldShowCommand(), p.heldRetryCommand(), p.heldSkipCommand(), p.heldDeadCommand())
}

func (p *Program) heldListCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List held keys, longest held first",
		Example: `  postrider held list
  postrider held list --relay to-nats --json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStore(cmd, func(b *backend.Outbox) error { return p.listHeld(cmd.Context(), b, name, asJSON) })
		},
	}
	relayFlag(cmd, &name)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func relayFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "relay", "", "the relay, by its `name`; needed only when several hold such a key")
}

func (p *Program) listHeld(ctx context.Context, b *backend.Outbox, name string, asJSON bool) error {
	t := newTableUnless(asJSON, p.Stdout, "KEY", "RELAY", "SINCE", "REASON", "ATTEMPTS", "NEXT ATTEMPT", "PARKED", "CAUSE")
	n := 0
	for h, err := range b.ListHeld(ctx, name) {
		if err != nil {
			return err
		}
		n++
		if asJSON {
			if err := printLine(p.Stdout, h); err != nil {
				return err
			}
			continue
		}
		t.row(h.Key, h.Relay, moment(h.Since), h.Reason, h.Attempts, nextAttempt(h), number(h.Parked), shorten(h.Cause, 60))
	}
	if n == 0 {
		if name != "" {
			if err := knownRelay(ctx, b, name); err != nil {
				return err
			}
		}
		fmt.Fprintln(p.Stderr, "postrider: no key is held")
		return nil
	}
	if t != nil {
		return t.flush()
	}
	return nil
}

func nextAttempt(h relay.HeldInfo) string {
	if h.NextAttempt.IsZero() {
		return "when decided"
	}
	return moment(h.NextAttempt)
}

func (p *Program) heldShowCommand() *cobra.Command {
	var name string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show a held key with its parked messages",
		Example: `  postrider held show order/42
  postrider held show order/42 --limit 100 --json`,
		Args: exactArgs("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usagef("--limit must be 1 or more, is %d", limit)
			}
			return p.onHeld(cmd, name, args[0], func(b *backend.Outbox, name string) error {
				h, parked, err := b.ShowHeld(cmd.Context(), name, args[0], limit)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(p.Stdout, struct {
						relay.HeldInfo
						Messages []relay.ParkedInfo `json:"messages"`
					}{h, parked})
				}
				return p.writeHeld(h, parked)
			})
		},
	}
	relayFlag(cmd, &name)
	cmd.Flags().IntVar(&limit, "limit", 20, "show at most `n` parked messages")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func (p *Program) writeHeld(h relay.HeldInfo, parked []relay.ParkedInfo) error {
	fmt.Fprintf(p.Stdout, "key %s of relay %s, partition %d: held since %s\n", printable(h.Key), printable(h.Relay), h.Partition, moment(h.Since))
	f := newFields(p.Stdout)
	f.add("reason", string(h.Reason))
	f.add("cause", h.Cause)
	f.add("attempts", number(h.Attempts))
	f.add("next attempt", nextAttempt(h))
	f.add("parked", plural(h.Parked, "message"))
	f.flush()
	fmt.Fprintln(p.Stdout)
	t := newTable(p.Stdout, "SEQUENCE", "ID", "TYPE", "REASON", "ATTEMPTS", "PARKED AT", "DUE AT")
	for _, m := range parked {
		t.row(m.Message.Sequence, m.Message.ID, m.Message.Type, m.Reason, m.Attempts, moment(m.ParkedAt), moment(m.DueAt))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(parked) > 0 {
		writeHistory(p.Stdout, parked[0].History)
	}
	key := shellQuote(h.Key)
	_, err := fmt.Fprintf(p.Stdout, "\nretry now:       postrider held retry %s\nskip it:         postrider held skip %s --because \"…\"\n"+
		"dead-letter it:  postrider held dead %s --because \"…\"  (--all for the whole key)\n", key, key, key)
	return err
}

// shellQuote quotes a text so that a shell reads it as one word.
func shellQuote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._:@%+=,-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(printable(text), "'", `'\''`) + "'"
}

func (p *Program) heldRetryCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "retry KEY",
		Short: "Retry the blocking message of a held key now",
		Example: `  postrider held retry order/42
  postrider held retry order/42 --relay to-nats`,
		Args: exactArgs("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.onHeld(cmd, name, args[0], func(b *backend.Outbox, name string) error {
				if _, err := p.decide(cmd, b, relay.Decision{Relay: name, Key: args[0], Verb: relay.VerbRetry, By: p.operator()}); err != nil {
					return err
				}
				_, err := fmt.Fprintf(p.Stdout, "key %s of relay %s is due at once\n", printable(args[0]), printable(name))
				return err
			})
		},
	}
	relayFlag(cmd, &name)
	return cmd
}

func (p *Program) heldSkipCommand() *cobra.Command {
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
		Args: exactArgs("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.onHeld(cmd, name, args[0], func(b *backend.Outbox, name string) error {
				if _, err := p.decide(cmd, b, relay.Decision{Relay: name, Key: args[0], Verb: relay.VerbSkip, MessageID: message, By: by, Reason: because}); err != nil {
					return err
				}
				_, err := fmt.Fprintf(p.Stdout, "skipped the blocking message of key %s of relay %s; the queued messages follow\n", printable(args[0]), printable(name))
				return err
			})
		},
	}
	relayFlag(cmd, &name)
	byFlag(cmd, &by, p.operator())
	becauseFlag(cmd, &because)
	cmd.Flags().StringVar(&message, "message", "", "ID of the message that is expected to block the key (default any)")
	return cmd
}

func (p *Program) heldDeadCommand() *cobra.Command {
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
		Args: exactArgs("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.onHeld(cmd, name, args[0], func(b *backend.Outbox, name string) error {
				if all {
					question := fmt.Sprintf("Send every parked message of key %s to the dead letters?", printable(args[0]))
					if err := p.confirm(yes, question); err != nil {
						return err
					}
				}
				verb := relay.VerbDead
				if all {
					verb = relay.VerbDeadAll
				}
				n, err := p.decide(cmd, b, relay.Decision{Relay: name, Key: args[0], Verb: verb, MessageID: message, By: by, Reason: because})
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(p.Stdout, "sent %s of key %s of relay %s to the dead letters\n", plural(n, "message"), printable(args[0]), printable(name))
				return err
			})
		},
	}
	relayFlag(cmd, &name)
	cmd.Flags().BoolVar(&all, "all", false, "every parked message of the key")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	byFlag(cmd, &by, p.operator())
	becauseFlag(cmd, &because)
	cmd.Flags().StringVar(&message, "message", "", "ID of the message that is expected to block the key (default any)")
	return cmd
}

// decide records a decision about a held key and waits until it is applied.
func (p *Program) decide(cmd *cobra.Command, b *backend.Outbox, d relay.Decision) (count int, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), decisionWait)
	defer cancel()
	d, err = held.Decide(ctx, b, d)
	return d.Count, err
}

// decisionWait is how long a command waits for a decision to be applied.
const decisionWait = time.Minute

// onHeld runs f with the store and the relay that holds the key.
func (p *Program) onHeld(cmd *cobra.Command, name, key string, f func(b *backend.Outbox, relay string) error) error {
	return p.withStore(cmd, func(b *backend.Outbox) error {
		name, err := holderOf(cmd.Context(), b, name, key)
		if err != nil {
			return err
		}
		err = f(b, name)
		if errors.Is(err, relay.ErrNotHeld) {
			return notHeld(key, name)
		}
		if err != nil {
			return fmt.Errorf("held key %s of relay %s: %w", printable(key), printable(name), err)
		}
		return nil
	})
}

// holderOf returns the relay that holds a key, unless one is given.
func holderOf(ctx context.Context, b *backend.Outbox, name, key string) (string, error) {
	if name != "" {
		return name, nil
	}
	holder := ""
	for h, err := range b.ListHeld(ctx, "") {
		if err != nil {
			return "", err
		}
		if h.Key != key {
			continue
		}
		if holder != "" {
			return "", usagef("key %s is held by the relays %s and %s; choose one with --relay", printable(key), holder, h.Relay)
		}
		holder = h.Relay
	}
	if holder == "" {
		return "", notHeld(key, "")
	}
	return holder, nil
}

func notHeld(key, name string) error {
	return fmt.Errorf("%w: %s (%s); postrider held list shows those that are",
		relay.ErrNotHeld, printable(key), cmp.Or(printable(name), "any relay"))
}
