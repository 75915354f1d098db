package program

import (
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
)

// Listing is what a list command writes, as a table or as one JSON object per line.
type Listing[T any] struct {
	Of      string // what the items are, in the plural
	Columns []string
	Items   iter.Seq2[T, error]
	Row     func(T) []any
}

// Write writes up to limit items, 0 for all.
func (l Listing[T]) Write(p *Program, limit int, asJSON bool) error {
	t := output.NewTableUnless(asJSON, p.Stdout, l.Columns...)
	n := 0
	for item, err := range l.Items {
		if err != nil {
			return err
		}
		if n++; limit > 0 && n > limit {
			break
		}
		if !asJSON {
			t.Row(l.Row(item)...)
		} else if err := output.Line(p.Stdout, item); err != nil {
			return err
		}
	}
	if n == 0 {
		fmt.Fprintf(p.Stderr, "postrider: no %s\n", l.Of)
		return nil
	}
	if t != nil {
		return t.Flush()
	}
	return nil
}

// ListCommand returns the command that lists records of what operators did, such as "purges": list writes up to limit of them.
func (p *Program) ListCommand(
	of, example string, list func(ctx context.Context, b *backend.Outbox, limit int, asJSON bool) error,
) *cobra.Command {
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List " + of + ", the latest first",
		Example: example,
		Args:    ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return Usagef("--limit must not be negative, is %d", limit)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return list(cmd.Context(), b, limit, asJSON) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "list at most `n`, 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}
