package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
)

func (p *Program) deadShowCommand() *cobra.Command {
	var asJSON, payload bool
	cmd := &cobra.Command{
		Use:   "show NUMBER",
		Short: "Show everything about a dead letter",
		Example: `  postrider dead show 17
  postrider dead show 17 --json
  postrider dead show 17 --payload | jq`,
		Args: exactArgs("the NUMBER of a dead letter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := numbers(args)
			if err != nil {
				return err
			}
			return p.withStore(cmd, func(b *backend.Outbox) error {
				l, err := b.ShowDead(cmd.Context(), n[0])
				if err != nil {
					return err
				}
				if payload {
					_, err = p.Stdout.Write(l.Message.Payload)
					return err
				}
				edits, err := b.ListEdits(cmd.Context(), n[0])
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(p.Stdout, struct {
						deadletter.Archived
						Fingerprint string `json:"fingerprint"`
					}{deadletter.Archived{Record: l, Before: edits}, deadletter.Fingerprint(l.Cause)})
				}
				p.writeLetter(l, edits)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.Flags().BoolVar(&payload, "payload", false, "write only the payload, byte for byte")
	cmd.MarkFlagsMutuallyExclusive("json", "payload")
	return cmd
}

// writeLetter writes a dead letter for people.
func (p *Program) writeLetter(l deadletter.Record, edits []deadletter.Edited) {
	fmt.Fprintf(p.Stdout, "dead letter %d of %s %s, partition %d: %s\n", l.Number, l.Side, printable(l.Relay), l.Partition, l.State)
	f := newFields(p.Stdout)
	f.add("died", moment(l.DiedAt))
	f.add("reason", l.Reason)
	first, rest, lines := strings.Cut(l.Cause, "\n")
	f.add("cause", first)
	f.add("fingerprint", deadletter.Fingerprint(l.Cause))
	f.add("unreadable", l.Unreadable)
	f.add("came from", cameFrom(l.Message))
	f.add("attempts", number(l.Attempts))
	f.add("redrives", number(l.Redrives))
	if l.State != deadletter.Open {
		f.add(string(l.State), strings.TrimSpace(fmt.Sprintf("%s by %s %s", moment(l.ResolvedAt), l.ResolvedBy, l.Resolution)))
	}
	if l.Redrive != 0 {
		f.add("redrive", fmt.Sprintf("%d (postrider redrive show %d)", l.Redrive, l.Redrive))
	}
	f.flush()
	if lines {
		fmt.Fprintf(p.Stdout, "\ncause, on\n  %s\n", strings.ReplaceAll(printableLines(rest), "\n", "\n  "))
	}
	writeMessage(p.Stdout, l.Message)
	writeHistory(p.Stdout, l.History)
	p.writeEdits(l, edits)
	if l.State == deadletter.Open {
		fmt.Fprintf(p.Stdout, "\nsend it back:  postrider dead redrive %d\nchange it:     postrider dead edit %d --because \"…\"\n"+
			"give it up:    postrider dead discard %d --because \"…\"\n", l.Number, l.Number, l.Number)
	}
}

// cameFrom returns the source position of a message that a consumer has dead-lettered, "" if unknown.
func cameFrom(m *postrider.Message) string {
	var at postrider.Position
	if text := m.Headers[inbox.PositionHeader]; json.Unmarshal([]byte(text), &at) != nil {
		return ""
	}
	return fmt.Sprintf("%s, offset %d, epoch %s", at.Partition, at.Offset, at.Epoch)
}

// writeEdits writes each edit with its changes.
func (p *Program) writeEdits(l deadletter.Record, edits []deadletter.Edited) {
	for i, e := range edits {
		payload, headers := l.Message.Payload, l.Message.Headers
		if i+1 < len(edits) {
			payload, headers = edits[i+1].Payload, edits[i+1].Headers
		}
		fmt.Fprintf(p.Stdout, "\nedited %s by %s: %s\n", moment(e.At), printable(e.By), printable(e.Why))
		p.writeDiff(deadletter.Diff(e.Payload, e.Headers, payload, headers))
	}
}

func (p *Program) writeDiff(lines []string) {
	for _, line := range lines {
		fmt.Fprintf(p.Stdout, "  %s\n", printable(line))
	}
}

func (p *Program) deadCountsCommand() *cobra.Command {
	var f deadFilter
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "counts",
		Short: "Count open dead letters by relay or consumer, type and cause",
		Long: `Count open dead letters by relay or consumer, type and cause, most frequent first. Causes that differ only in numbers and
identifiers are one; their fingerprint chooses them in the other commands.`,
		Example: `  postrider dead counts
  postrider dead counts --side consumer --from 24h
  postrider dead redrive --fingerprint 5bd1e9956a0c77d2`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(nil); err != nil {
				return err
			}
			if limit < 1 {
				return usagef("--limit must be 1 or more, is %d", limit)
			}
			return p.withStore(cmd, func(b *backend.Outbox) error {
				filter, err := f.filter(cmd.Context(), b)
				if err != nil {
					return err
				}
				return p.countDead(cmd.Context(), b, filter, limit, asJSON)
			})
		},
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "show at most `n` groups")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func (p *Program) countDead(ctx context.Context, b *backend.Outbox, f deadletter.Filter, limit int, asJSON bool) error {
	counts, err := b.CountCauses(ctx, f, limit+1)
	if err != nil {
		return err
	}
	if len(counts) == 0 {
		if err := mistyped(ctx, b, f); err != nil {
			return err
		}
		fmt.Fprintln(p.Stderr, "postrider: no dead letters match")
		return nil
	}
	t := newTableUnless(asJSON, p.Stdout, "LETTERS", "OF", "TYPE", "OLDEST", "NEWEST", "FINGERPRINT", "REASON", "CAUSE")
	for _, c := range counts[:min(len(counts), limit)] {
		if asJSON {
			if err := printLine(p.Stdout, c); err != nil {
				return err
			}
			continue
		}
		t.row(number(c.DeadLetters), c.Relay, c.Type, c.Oldest.UTC().Format(time.DateTime), c.Newest.UTC().Format(time.DateTime),
			c.Fingerprint, c.Reason, shorten(c.Cause, 60))
	}
	if len(counts) > limit {
		fmt.Fprintf(p.Stderr, "postrider: there are more; see them with a larger --limit\n")
	}
	if t != nil {
		return t.flush()
	}
	return nil
}
