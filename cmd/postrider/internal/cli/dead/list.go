package dead

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

func (p commands) deadListCommand() *cobra.Command {
	var f selection.Filter
	var after int64
	var limit int
	var asJSON bool
	state := deadState("open")
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, oldest first",
		Example: `  postrider dead list
  postrider dead list --relay to-nats --topic orders --from 24h
  postrider dead list --side consumer --cause 'unique constraint'
  postrider dead list --state any --key order/42
  postrider dead list --limit 0 --json > dead.ndjson`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.Check(nil); err != nil {
				return err
			}
			if limit < 0 {
				return program.Usagef("--limit must not be negative, is %d", limit)
			}
			f.State = store.DeadState(state)
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				filter, err := f.Resolve(cmd.Context(), b)
				if err != nil {
					return err
				}
				return p.listDead(cmd.Context(), b, filter, after, limit, asJSON)
			})
		},
	}
	f.Flags(p.Program, cmd)
	cmd.Flags().Var(program.Choice(&state), "state", "only in this `state`: open, redriven, discarded or any")
	program.CompleteChoices(cmd, "state", state.Allowed())
	cmd.Flags().Int64Var(&f.Redrive, "redrive", 0, "only what the redrive with this `ID` has sent back, with --state any")
	p.CompleteFlag(cmd, "redrive", program.Redrives(""))
	cmd.Flags().Int64Var(&after, "after", 0, "continue after this `number`")
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most `n`, 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

// deadState is the value of --state.
type deadState string

// Allowed lists the values.
func (deadState) Allowed() []string { return []string{"open", "redriven", "discarded", "any"} }

func (p commands) listDead(ctx context.Context, b *backend.Outbox, f store.DeadFilter, after int64, limit int, asJSON bool) error {
	columns := []string{"NUMBER", "DIED AT", "RELAY", "TYPE", "KEY", "CAUSE"}
	withState := f.State != "" && f.State != store.DeadOpen
	if withState {
		columns = slices.Insert(columns, 1, "STATE")
	}
	t := output.NewTableUnless(asJSON, p.Stdout, columns...)
	n, last := 0, int64(0)
	more := false
	write := func(l store.DeadLetter) error {
		if limit > 0 && n == limit {
			more = true
			return nil
		}
		n, last = n+1, l.Number
		if asJSON {
			return output.Line(p.Stdout, l)
		}
		row := []any{l.Number, output.Minute(l.DiedAt), l.Relay, l.Message.Type, l.Message.Key, output.CauseOf(l.Cause, l.Reason)}
		if withState {
			row = slices.Insert(row, 1, any(l.State))
		}
		t.Row(row...)
		return nil
	}
	found, err := readDead(ctx, b, f, after, limit, write)
	if err != nil {
		return err
	}
	if t != nil && n > 0 {
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if found.Next == 0 { // all were listed, if not counted
		found.Incomplete = slices.DeleteFunc(found.Incomplete, func(g store.SearchGap) bool { return g.Reason != store.GapCauses })
	}
	switch {
	case !more && len(found.Incomplete) > 0:
		p.incomplete(found.Extent)
		if found.Next > 0 {
			fmt.Fprintf(p.Stderr, "postrider: go on with --after %d, or --limit 0 to look at all\n", found.Next)
		}
	case more:
		fmt.Fprintf(p.Stderr, "postrider: there are more; go on with --after %d, or --limit 0 for all\n", last)
	case n == 0:
		if err := selection.Mistyped(ctx, b, f); err != nil {
			return err
		}
		fmt.Fprintln(p.Stderr, "postrider: no dead letters match")
	}
	return nil
}

// readDead reads one dead letter more than the limit, to know whether there are more, within the bounds of a search; without a limit, it
// reads all.
func readDead(ctx context.Context, b *backend.Outbox, f store.DeadFilter, after int64, limit int, write func(store.DeadLetter) error) (store.FoundDead, error) {
	if limit > 0 {
		var failed error
		found, err := deadletter.New(b).FindDead(ctx, f, after, limit+1, func(l store.DeadLetter) {
			if failed == nil {
				failed = write(l)
			}
		})
		return found, cmp.Or(err, failed)
	}
	for l, err := range deadletter.New(b).ListDead(ctx, f, after, 0) {
		if err == nil {
			err = write(l)
		}
		if err != nil {
			return store.FoundDead{}, err
		}
	}
	return store.FoundDead{Extent: store.Extent{Complete: true}}, nil
}

// incomplete says what a search has left out.
func (p commands) incomplete(of store.Extent) {
	for _, gap := range of.Incomplete {
		fmt.Fprintln(p.Stderr, "postrider: "+gap.Text)
	}
}
