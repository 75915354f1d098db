package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
)

// redriveState is the value of --state.
type redriveState string

// Allowed lists the values.
func (redriveState) Allowed() []string { return []string{"running", "finished", "cancelled", "failed"} }

func (p *Program) redriveListCommand() *cobra.Command {
	var state redriveState
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List redrives, the latest first",
		Example: `  postrider redrive list
  postrider redrive list --state running --json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit must not be negative, is %d", limit)
			}
			return p.withStore(cmd, func(b *backend.Outbox) error {
				return p.listRedrives(cmd.Context(), b, deadletter.RedriveState(state), limit, asJSON)
			})
		},
	}
	cmd.Flags().Var(choice(&state), "state", "only in this `state`: running, finished, cancelled or failed")
	completeChoices(cmd, "state", state.Allowed())
	cmd.Flags().IntVar(&limit, "limit", 20, "list at most `n`, 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func (p *Program) listRedrives(ctx context.Context, b *backend.Outbox, state deadletter.RedriveState, limit int, asJSON bool) error {
	t := newTableUnless(asJSON, p.Stdout, "ID", "STATE", "STARTED AT", "BY", "SELECTED", "DONE", "REFUSED", "SKIPPED", "RATE")
	n := 0
	for r, err := range b.ListRedrives(ctx, state) {
		if err != nil {
			return err
		}
		if n++; limit > 0 && n > limit {
			break
		}
		if asJSON {
			if err := printLine(p.Stdout, r); err != nil {
				return err
			}
			continue
		}
		t.row(r.ID, r.State, moment(r.StartedAt), r.By, number(r.Selected), number(r.Done), number(r.Refused), number(r.Skipped),
			rate(r.Rate))
	}
	if n == 0 {
		fmt.Fprintln(p.Stderr, "postrider: no redrives")
		return nil
	}
	if t != nil {
		return t.flush()
	}
	return nil
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "-"
	}
	return fmt.Sprintf("%g/s", perSecond)
}

func (p *Program) redriveShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a redrive and what became of its messages",
		Example: `  postrider redrive show 3
  postrider redrive show 3 --json`,
		Args: exactArgs("the ID of a redrive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := redriveID(args[0])
			if err != nil {
				return err
			}
			return p.withStore(cmd, func(b *backend.Outbox) error {
				r, err := b.ShowRedrive(cmd.Context(), id)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(p.Stdout, r)
				}
				return p.writeRedrive(r)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func redriveID(arg string) (int64, error) {
	id, err := parseInt(arg)
	if err != nil || id < 1 {
		return 0, usagef("%q is not the ID of a redrive; postrider redrive list shows them", arg)
	}
	return id, nil
}

func (p *Program) writeRedrive(r deadletter.Redrive) error {
	filter, err := json.Marshal(r.Filter)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Stdout, "redrive %d: %s\n", r.ID, r.State)
	f := newFields(p.Stdout)
	f.add("started", moment(r.StartedAt)+" by "+r.By)
	if r.State != deadletter.RedriveRunning {
		f.add("ended", moment(r.EndedAt)+leftOut(r))
	}
	f.add("filter", string(filter))
	f.add("rate", rate(r.Rate))
	f.add("selected", number(r.Selected))
	f.add("sent back", number(r.Done))
	f.add("refused", number(r.Refused))
	f.add("skipped", number(r.Skipped))
	if r.Failures > 0 {
		f.add("failures", number(int64(r.Failures))+" in a row, the last: "+printable(r.Cause))
	}
	if r.Failures > 0 && r.State == deadletter.RedriveRunning {
		f.add("next attempt", moment(r.NextAt))
	}
	f.flush()
	fmt.Fprintln(p.Stdout, "\nof those sent back")
	f = newFields(p.Stdout)
	f.add("delivered", number(r.Outcome.Delivered))
	f.add("waiting", number(r.Outcome.Waiting))
	f.add("died again", number(r.Outcome.Failed))
	f.flush()
	if r.State == deadletter.RedriveRunning {
		fmt.Fprintf(p.Stdout, "\ndrive it from here:  postrider redrive run %d\nend it:              postrider redrive cancel %d\n", r.ID, r.ID)
	}
	return nil
}

func (p *Program) redriveRunCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run ID",
		Short: "Drive a redrive that was left off, to its end",
		Example: `  postrider redrive run 3
  postrider redrive run 3 --json`,
		Args: exactArgs("the ID of a redrive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := redriveID(args[0])
			if err != nil {
				return err
			}
			return p.withStore(cmd, func(b *backend.Outbox) error {
				r, err := b.ShowRedrive(cmd.Context(), id)
				if err != nil {
					return err
				}
				return p.drive(cmd.Context(), b, r, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the redrive as JSON at its end")
	return cmd
}

func (p *Program) redriveCancelCommand() *cobra.Command {
	var by string
	cmd := &cobra.Command{
		Use:     "cancel ID",
		Short:   "End a running redrive; what it has sent back stays so",
		Example: `  postrider redrive cancel 3`,
		Args:    exactArgs("the ID of a redrive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := redriveID(args[0])
			if err != nil {
				return err
			}
			return p.withStore(cmd, func(b *backend.Outbox) error {
				r, err := b.CancelRedrive(cmd.Context(), id, by)
				if err != nil {
					return err
				}
				fmt.Fprintf(p.Stdout, "redrive %d is cancelled; %s of %s were sent back\n", id, number(r.Done), plural(r.Selected, "letter"))
				return nil
			})
		},
	}
	byFlag(cmd, &by, p.operator())
	return cmd
}
