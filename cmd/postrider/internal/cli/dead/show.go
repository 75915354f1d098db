package dead

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
)

func (p commands) deadShowCommand() *cobra.Command {
	var asJSON, payload bool
	cmd := &cobra.Command{
		Use:   "show NUMBER",
		Short: "Show everything about a dead letter",
		Example: `  postrider dead show 17
  postrider dead show 17 --json
  postrider dead show 17 --payload | jq`,
		Args: program.ExactArgs("the NUMBER of a dead letter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := selection.Numbers(args)
			if err != nil {
				return err
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				l, err := deadletter.New(b).ShowDead(cmd.Context(), n[0])
				if err != nil {
					return err
				}
				if payload {
					_, err = p.Stdout.Write(l.Message.Payload)
					return err
				}
				edits, err := deadletter.New(b).ListEdits(cmd.Context(), n[0])
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(p.Stdout, struct {
						store.ArchivedDead
						Fingerprint string `json:"fingerprint"`
					}{store.ArchivedDead{DeadLetter: l, Before: edits}, store.Fingerprint(l.Cause)})
				}
				p.writeDead(l, edits)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.Flags().BoolVar(&payload, "payload", false, "write only the payload, byte for byte")
	cmd.MarkFlagsMutuallyExclusive("json", "payload")
	p.CompleteArgs(cmd, 1, program.DeadLetters(store.DeadAny))
	return cmd
}

// writeDead writes a dead letter for people.
func (p commands) writeDead(l store.DeadLetter, edits []store.Edited) {
	fmt.Fprintf(p.Stdout, "dead letter %d of %s %s, partition %d: %s\n", l.Number, l.Side, output.Printable(l.Relay), l.Partition, l.State)
	f := output.NewFields(p.Stdout)
	f.Add("died", output.Moment(l.DiedAt))
	f.Add("reason", l.Reason)
	first, rest, lines := strings.Cut(l.Cause, "\n")
	f.Add("cause", first)
	f.Add("fingerprint", store.Fingerprint(l.Cause))
	f.Add("unreadable", l.Unreadable)
	f.Add("came from", cameFrom(l.Message))
	f.Add("attempts", output.Number(l.Attempts))
	f.Add("redrives", output.Number(redrives(l)))
	if l.State != store.DeadOpen {
		f.Add(string(l.State), strings.TrimSpace(fmt.Sprintf("%s by %s %s", output.Moment(l.ResolvedAt), l.ResolvedBy, l.Resolution)))
	}
	if l.Redrive != 0 {
		f.Add("redrive", fmt.Sprintf("%d (%s)", l.Redrive, p.Hint("redrive show %d", l.Redrive)))
	}
	f.Flush()
	if lines {
		fmt.Fprintf(p.Stdout, "\ncause, on\n  %s\n", strings.ReplaceAll(output.PrintableLines(rest), "\n", "\n  "))
	}
	output.Message(p.Stdout, l.Message)
	output.History(p.Stdout, l.History)
	p.writeEdits(l, edits)
	if l.State == store.DeadOpen {
		fmt.Fprintf(p.Stdout, "\nsend it back:  %s\nchange it:     %s\ndiscard it:    %s\n", p.Hint("dead redrive %d", l.Number),
			p.Hint("dead edit %d --because \"…\"", l.Number), p.Hint("dead discard %d --because \"…\"", l.Number))
	}
}

// redrives is how often the message was redriven, from this dead letter too.
func redrives(l store.DeadLetter) int {
	if l.State == store.DeadRedriven {
		return l.Redrives + 1
	}
	return l.Redrives
}

// cameFrom returns the source position of a message that a consumer has dead-lettered, "" if unknown.
func cameFrom(m *postrider.Message) string {
	var at postrider.Position
	if text := m.Headers[inbox.PositionHeader]; json.Unmarshal([]byte(text), &at) != nil {
		return ""
	}
	return fmt.Sprintf("%s, offset %d, incarnation %s", at.Partition, at.Offset, at.Incarnation)
}

// writeEdits writes each edit with its changes.
func (p commands) writeEdits(l store.DeadLetter, edits []store.Edited) {
	for i, e := range edits {
		payload, headers := l.Message.Payload, l.Message.Headers
		if i+1 < len(edits) {
			payload, headers = edits[i+1].Payload, edits[i+1].Headers
		}
		fmt.Fprintf(p.Stdout, "\nedited %s by %s: %s\n", output.Moment(e.At), output.Printable(e.By), output.Printable(e.Why))
		p.writeDiff(diffOf(e.Payload, e.Headers, payload, headers))
	}
}

func (p commands) writeDiff(lines []string) {
	for _, line := range lines {
		fmt.Fprintf(p.Stdout, "  %s\n", output.Printable(line))
	}
}
