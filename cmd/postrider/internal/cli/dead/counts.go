package dead

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

func (p commands) deadCountsCommand() *cobra.Command {
	var f selection.Filter
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "counts",
		Short: "Count open dead letters by relay or consumer, type and cause",
		Long: `Count open dead letters by relay or consumer, type and cause, most frequent first. Causes that differ only in numbers and
identifiers are one; their fingerprint chooses them in the other commands. Of more than 50,000, the newest
50,000 are counted, and the command says so.`,
		Example: `  postrider dead counts
  postrider dead counts --side consumer --from 24h
  postrider dead redrive --fingerprint 5bd1e9956a0c77d2`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.Check(nil); err != nil {
				return err
			}
			if limit < 1 {
				return program.Usagef("--limit must be 1 or more, is %d", limit)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				filter, err := f.Resolve(cmd.Context(), b)
				if err != nil {
					return err
				}
				return p.countDead(cmd.Context(), b, filter, limit, asJSON)
			})
		},
	}
	f.Flags(p.Program, cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "show at most `n` groups")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func (p commands) countDead(ctx context.Context, b *backend.Outbox, f store.DeadFilter, limit int, asJSON bool) error {
	found, err := deadletter.New(b).CountCauses(ctx, f, limit+1)
	if err != nil {
		return err
	}
	p.incomplete(found.Extent)
	counts := found.Causes
	if len(counts) == 0 {
		if err := selection.Mistyped(ctx, b, f); err != nil {
			return err
		}
		fmt.Fprintln(p.Stderr, "postrider: no dead letters match")
		return nil
	}
	t := output.NewTableUnless(asJSON, p.Stdout, "COUNT", "RELAY", "TYPE", "FIRST DIED", "LAST DIED", "FINGERPRINT", "CAUSE")
	for _, c := range counts[:min(len(counts), limit)] {
		if asJSON {
			if err := output.Line(p.Stdout, c); err != nil {
				return err
			}
			continue
		}
		t.Row(output.Count(c.Count()), c.Relay, c.Type, c.Oldest.UTC().Format(time.DateOnly), c.Newest.UTC().Format(time.DateOnly),
			c.Fingerprint, output.CauseOf(c.Cause, c.Reason))
	}
	if len(counts) > limit {
		fmt.Fprintf(p.Stderr, "postrider: there are more; see them with a larger --limit\n")
	}
	if t != nil {
		return t.Flush()
	}
	return nil
}
