package redrive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// redriveState is the value of --state.
type redriveState string

// Allowed lists the values.
func (redriveState) Allowed() []string { return []string{"running", "finished", "cancelled", "failed"} }

func (p commands) redriveListCommand() *cobra.Command {
	var state redriveState
	cmd := p.ListCommand("redrives", `  postrider redrive list
  postrider redrive list --state running --json`, func(ctx context.Context, b *backend.Outbox, limit int, asJSON bool) error {
		return program.Listing[store.Redrive]{
			Of: "redrives", Items: deadletter.New(b).ListRedrives(ctx, store.RedriveState(state)),
			Columns: []string{"ID", "STATE", "STARTED AT", "SELECTED", "DONE", "REFUSED", "SKIPPED", "RATE", "BY"},
			Row: func(r store.Redrive) []any {
				shown := string(r.State)
				if r.Stopped() != "" {
					shown = "stopped"
				}
				return []any{
					r.ID, shown, output.Minute(r.StartedAt), output.Number(r.Selected), output.Number(r.Done), output.Number(r.Refused),
					output.Number(r.Skipped), rate(r.Rate), r.By,
				}
			},
		}.Write(p.Program, limit, asJSON)
	})
	cmd.Flags().Var(program.Choice(&state), "state", "only in this `state`: running, finished, cancelled or failed")
	program.CompleteChoices(cmd, "state", state.Allowed())
	return cmd
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "-"
	}
	return fmt.Sprintf("%g/s", perSecond)
}

func (p commands) redriveShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a redrive and what became of its messages",
		Example: `  postrider redrive show 3
  postrider redrive show 3 --json`,
		Args: program.ExactArgs("the ID of a redrive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withRedrive(cmd, args[0], func(_ *backend.Outbox, r store.Redrive) error {
				if asJSON {
					return output.JSON(p.Stdout, r)
				}
				return p.writeRedrive(r)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	p.CompleteArgs(cmd, 1, program.Redrives(""))
	return cmd
}

// withRedrive calls f with the store and the redrive of an ID.
func (p commands) withRedrive(cmd *cobra.Command, arg string, f func(b *backend.Outbox, r store.Redrive) error) error {
	id, err := redriveID(arg)
	if err != nil {
		return err
	}
	return p.WithStore(cmd, func(b *backend.Outbox) error {
		r, err := deadletter.New(b).ShowRedrive(cmd.Context(), id)
		if errors.Is(err, store.ErrNoRedrive) {
			return fmt.Errorf("redrive %d: %w; %s shows those that there are", id, store.ErrNoRedrive, p.Hint("redrive list"))
		}
		if err != nil {
			return err
		}
		return f(b, r)
	})
}

func redriveID(arg string) (int64, error) {
	id, err := program.ParseInt(arg)
	if err != nil || id < 1 {
		return 0, program.Usagef("%q is not the ID of a redrive; postrider redrive list shows them", arg)
	}
	return id, nil
}

// filterOf describes which dead letters were selected.
func filterOf(r store.Redrive) (string, error) {
	limit := r.Filter.MaxRedrives
	r.Filter.MaxRedrives = 0
	text, err := json.Marshal(r.Filter)
	filter := string(text)
	if filter == "{}" {
		filter = "all open dead letters"
	}
	if limit > 0 {
		filter += fmt.Sprintf(", if sent back fewer than %d times before", limit)
	}
	return filter, err
}

func (p commands) writeRedrive(r store.Redrive) error {
	filter, err := filterOf(r)
	if err != nil {
		return err
	}
	state := string(r.State)
	if r.Stopped() != "" {
		state = "stopped: " + deadletter.WhyStopped(r)
	}
	fmt.Fprintf(p.Stdout, "redrive %d: %s\n", r.ID, state)
	f := output.NewFields(p.Stdout)
	f.Add("started", output.Moment(r.StartedAt)+" by "+r.By)
	if r.State != store.RedriveRunning {
		f.Add("ended", output.Moment(r.EndedAt)+leftOut(r))
	}
	f.Add("filter", filter)
	f.Add("rate", rate(r.Rate))
	f.Add("selected", output.Number(r.Selected))
	f.Add("sent back", output.Number(r.Done))
	f.Add("refused", output.Number(r.Refused))
	f.Add("skipped", output.Number(r.Skipped))
	if r.Failures > 0 {
		f.Add("failures", output.Number(int64(r.Failures))+" in a row, the last: "+output.Printable(r.Cause))
	}
	if r.Failures > 0 && r.State == store.RedriveRunning {
		f.Add("next attempt", output.Moment(r.NextAt))
	}
	f.Flush()
	fmt.Fprintln(p.Stdout, "\nof those sent back")
	f = output.NewFields(p.Stdout)
	f.Add("delivered", output.Number(r.Outcome.Delivered))
	f.Add("waiting", output.Number(r.Outcome.Waiting))
	f.Add("failing", output.Number(r.Outcome.Failing)+" of those that wait")
	f.Add("died again", output.Number(r.Outcome.Failed))
	if r.Outcome.Unknown > 0 {
		f.Add("unknown", output.Number(r.Outcome.Unknown)+", of messages that were erased, or of a relay that was removed")
	}
	f.Flush()
	if r.Stopped() != "" {
		fmt.Fprintf(p.Stdout, "\nlet it go on:        %s", p.Hint("redrive continue %d", r.ID))
	}
	if r.State == store.RedriveRunning {
		fmt.Fprintf(p.Stdout, "\ndrive it from here:  %s\nend it:              %s\n", p.Hint("redrive run %d", r.ID), p.Hint("redrive cancel %d", r.ID))
	}
	return nil
}

func (p commands) redriveRunCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run ID",
		Short: "Drive a redrive that was left off, to its end",
		Example: `  postrider redrive run 3
  postrider redrive run 3 --json`,
		Args: program.ExactArgs("the ID of a redrive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withRedrive(cmd, args[0], func(b *backend.Outbox, r store.Redrive) error {
				return p.drive(cmd.Context(), b, r, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the redrive as JSON at its end")
	p.CompleteArgs(cmd, 1, program.Redrives(store.RedriveRunning))
	return cmd
}

func (p commands) redriveContinueCommand() *cobra.Command {
	return p.decideCommand(&cobra.Command{
		Use:   "continue ID",
		Short: "Let a redrive go on that has stopped",
		Long: `Let a redrive go on that has stopped, because its first message was not delivered (--first), or because too many attempts
failed (--stop-at). The others follow, and the share of failed attempts is counted from then on.`,
		Example: `  postrider redrive continue 3 --because 'the receiver accepts them now'`,
	}, "ContinueRedrive", deadletter.Store.ContinueRedrive, "redrive %d goes on; %s of %s were sent back\n")
}

func (p commands) redriveCancelCommand() *cobra.Command {
	return p.decideCommand(&cobra.Command{
		Use:     "cancel ID",
		Short:   "End a running redrive; what it has sent back stays so",
		Example: `  postrider redrive cancel 3`,
	}, "CancelRedrive", deadletter.Store.CancelRedrive, "redrive %d is cancelled; %s of %s were sent back\n")
}

// decideCommand completes a command that decides about a running redrive.
func (p commands) decideCommand(cmd *cobra.Command, a admin.Action, do func(deadletter.Store, context.Context, int64, string) (store.Redrive, error), done string) *cobra.Command {
	var by, because string
	cmd.Args = program.ExactArgs("the ID of a redrive")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := redriveID(args[0])
		if err != nil {
			return err
		}
		return p.WithStore(cmd, func(b *backend.Outbox) error {
			var r store.Redrive
			c := admin.Change{Action: a, On: fmt.Sprintf("redrive %d", id), Path: fmt.Sprintf("/redrives/%d", id), Reason: because}
			err := p.Act(cmd.Context(), b, by, c, func(db held.Database) (err error) {
				r, err = do(deadletter.New(db), cmd.Context(), id, by)
				return err
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, done, id, output.Number(r.Done), output.Plural(r.Selected, "dead letter"))
			return err
		})
	}
	program.ByFlag(cmd, &by, p.Operator())
	program.WhyFlag(cmd, &because)
	p.CompleteArgs(cmd, 1, program.Redrives(store.RedriveRunning))
	return cmd
}
