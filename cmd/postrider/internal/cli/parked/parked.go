// Package parked has the command "postrider parked", which lists parked messages that wait by themselves and decides about
// them.
package parked

import (
	"cmp"
	"context"
	"fmt"
	"slices"

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
	return program.Group("parked", "List and inspect parked messages, and decide on them",
		`A parked message that waits by itself has a due time of its own: it has no key and failed, its delivery time has not come,
its handler put it off, no handler takes its type, or it was redriven. Other messages flow meanwhile. An operator can retry
it at once, skip it (it becomes a discarded dead letter), or move it to the dead letters. Messages that are queued in a held
key are not listed here: see postrider held.`,
		p.listCommand(), p.showCommand(), p.countCommand(), p.retryCommand(), p.skipCommand(), p.deadCommand())
}

func (p commands) relayFlag(cmd *cobra.Command, name *string, usage string) {
	cmd.Flags().StringVar(name, "relay", "", usage)
	p.CompleteFlag(cmd, "relay", program.Relays)
}

// onlyOne is the usage of --relay where a message is named.
const onlyOne = "the relay or consumer, by its `name`; needed only when several have parked the message"

func (p commands) listCommand() *cobra.Command {
	var name string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List parked messages that wait by themselves, first due first",
		Example: `  postrider parked list
  postrider parked list --relay to-nats --limit 20 --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return program.Usagef("--limit must not be negative, is %d", limit)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.list(cmd.Context(), b, name, limit, asJSON) })
		},
	}
	p.relayFlag(cmd, &name, "only those of the relay or consumer with this `name`")
	cmd.Flags().IntVar(&limit, "limit", 0, "show at most `n` messages (0: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func (p commands) list(ctx context.Context, b *backend.Outbox, name string, limit int, asJSON bool) error {
	t := output.NewTableUnless(asJSON, p.Stdout, "ID", "RELAY", "REASON", "NEXT ATTEMPT", "CAUSE")
	n := 0
	for m, err := range held.New(b).ListParked(ctx, name) {
		if err != nil {
			return err
		}
		if asJSON {
			err = output.Line(p.Stdout, forPrograms(m))
		} else {
			t.Row(m.Message.ID, m.Relay, m.Reason, output.Second(m.DueAt), cmp.Or(m.Cause(), "-"))
		}
		if n++; err != nil || n == limit {
			break
		}
	}
	if n == 0 {
		return p.nothing(ctx, b, name)
	}
	if t != nil {
		return t.Flush()
	}
	return nil
}

// nothing says that no message is parked, or that there is no such relay.
func (p commands) nothing(ctx context.Context, b *backend.Outbox, name string) error {
	if name != "" {
		if err := program.KnownRelay(ctx, b, name); err != nil {
			return err
		}
	}
	fmt.Fprintln(p.Stderr, "postrider: no parked message waits by itself")
	return nil
}

func (p commands) countCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "count",
		Short: "Count parked messages that wait by themselves, by relay or consumer and reason",
		Example: `  postrider parked count
  postrider parked count --relay to-nats --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.count(cmd.Context(), b, name, asJSON) })
		},
	}
	p.relayFlag(cmd, &name, "only those of the relay or consumer with this `name`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func (p commands) count(ctx context.Context, b *backend.Outbox, name string, asJSON bool) error {
	counts, err := held.New(b).CountParked(ctx, name)
	if err != nil {
		return err
	}
	if len(counts) == 0 {
		return p.nothing(ctx, b, name)
	}
	t := output.NewTableUnless(asJSON, p.Stdout, "COUNT", "RELAY", "PARKED SINCE", "REASON")
	for _, c := range counts {
		if asJSON {
			if err := output.Line(p.Stdout, c); err != nil {
				return err
			}
			continue
		}
		t.Row(output.Number(c.Count), c.Relay, output.Minute(c.Oldest), c.Reason)
	}
	if t != nil {
		return t.Flush()
	}
	return nil
}

func (p commands) showCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a parked message with its cause and attempts",
		Example: `  postrider parked show 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a
  postrider parked show 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a --relay to-nats --json`,
		Args: program.ExactArgs("an ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				m, err := find(cmd.Context(), b, name, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(p.Stdout, forPrograms(m))
				}
				return p.write(m)
			})
		},
	}
	p.relayFlag(cmd, &name, onlyOne)
	p.CompleteArgs(cmd, 1, program.ParkedMessages(&name))
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// withCause is a parked message with its cause, which is part of its history.
type withCause struct {
	store.ParkedInfo
	Cause string `json:"cause,omitempty"`
}

func forPrograms(m store.ParkedInfo) withCause { return withCause{m, m.Cause()} }

func (p commands) write(m store.ParkedInfo) error {
	fmt.Fprintf(p.Stdout, "message %s of relay %s, partition %d: parked since %s\n", output.Printable(m.Message.ID),
		output.Printable(m.Relay), m.Partition, output.Moment(m.ParkedAt))
	f := output.NewFields(p.Stdout)
	f.Add("reason", string(m.Reason))
	f.Add("cause", m.Cause())
	f.Add("attempts", output.Number(m.Attempts))
	f.Add("next attempt", output.Moment(m.DueAt))
	f.Flush()
	output.History(p.Stdout, m.History)
	output.Message(p.Stdout, m.Message)
	id := output.ShellQuote(m.Message.ID)
	_, err := fmt.Fprintf(p.Stdout, "\nretry now:       %s\nskip it:         %s\ndead-letter it:  %s\n",
		p.Hint("parked retry %s", id), p.Hint("parked skip %s --because \"…\"", id), p.Hint("parked dead %s --because \"…\"", id))
	return err
}

// find returns the parked message with an ID that waits by itself, of the only relay that has it unless one is given.
func find(ctx context.Context, b *backend.Outbox, name, id string) (m store.ParkedInfo, err error) {
	names := []string{name}
	if name == "" {
		if names, err = program.RelayNames(ctx, b); err != nil {
			return m, err
		}
	}
	var queued, alone []store.ParkedInfo
	for _, n := range names {
		found, err := held.New(b).FindParked(ctx, n, id)
		if err != nil {
			return m, err
		}
		for _, p := range found {
			if p.DueAt.IsZero() {
				queued = append(queued, p)
			} else {
				alone = append(alone, p)
			}
		}
	}
	shown := output.Printable(id)
	switch {
	case len(alone) == 1:
		return alone[0], nil
	case len(alone) > 0 && slices.ContainsFunc(alone, func(p store.ParkedInfo) bool { return p.Relay != alone[0].Relay }):
		return m, program.Usagef("message %s is parked by %s; choose one with --relay", shown, parkers(alone))
	case len(alone) > 0:
		return m, fmt.Errorf("relay %s has parked %d messages with the ID %s", output.Printable(alone[0].Relay), len(alone), shown)
	case len(queued) > 0:
		return m, fmt.Errorf("message %s is queued in the held key %s of relay %s; see: postrider held show", shown,
			output.Printable(queued[0].Message.Key), output.Printable(queued[0].Relay))
	}
	return m, fmt.Errorf("%w: %s (%s); postrider explain shows where a message is", store.ErrNoParked, shown,
		cmp.Or(output.Printable(name), "any relay"))
}

// parkers names the relays that have parked a message.
func parkers(all []store.ParkedInfo) string {
	text := ""
	for i, p := range all {
		if i > 0 {
			text += " and "
		}
		text += output.Printable(p.Relay)
	}
	return text
}
