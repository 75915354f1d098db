package replay

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/replay"
)

func (p commands) listCommand() *cobra.Command {
	return p.ListCommand("replays", `  postrider replay list
  postrider replay list --json`, func(ctx context.Context, b *backend.Outbox, limit int, asJSON bool) error {
		return program.Listing[replay.Replay]{
			Of: "replays", Items: replay.New(b).List(ctx),
			Columns: []string{"ID", "STATE", "STARTED AT", "RELAY", "SELECTED", "DONE", "SKIPPED", "MISSING", "BY"},
			Row: func(r replay.Replay) []any {
				return []any{
					r.ID, r.State, output.Minute(r.StartedAt), r.Relay, output.Number(r.Selected), output.Number(r.Done),
					output.Number(r.Skipped), output.Number(r.Missing), r.By,
				}
			},
		}.Write(p.Program, limit, asJSON)
	})
}

// replays lists the IDs of replays that are in one of the states, or of all.
func replays(states ...replay.State) program.Completer {
	return func(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
		var out []cobra.Completion
		for r, err := range replay.New(b).List(ctx) {
			if err != nil {
				return nil, err
			}
			if len(out) == 100 {
				break
			}
			for _, s := range states {
				if s == r.State {
					out = append(out, cobra.CompletionWithDesc(r.ID, output.Printable(fmt.Sprintf("%s to %s, by %s", r.State, r.Relay, r.By))))
				}
			}
		}
		return out, nil
	}
}

const replayArg = "the ID of a replay"

func (p commands) showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a replay",
		Example: `  postrider replay show 0190f3c2-8a4e-7d05-9d2b-0c5d1f6a7b88
  postrider replay show 0190f3c2-8a4e-7d05-9d2b-0c5d1f6a7b88 --json`,
		Args: program.ExactArgs(replayArg),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				r, err := replay.New(b).Show(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(p.Stdout, r)
				}
				return p.write(r)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	p.CompleteArgs(cmd, 1, replays(replay.Running, replay.Paused, replay.Finished, replay.Cancelled, replay.Failed, replay.Unreadable))
	return cmd
}

func (p commands) write(r replay.Replay) error {
	filter, err := json.Marshal(r.Filter)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Stdout, "replay %s: %s\n", r.ID, r.State)
	f := output.NewFields(p.Stdout)
	f.Add("relay", r.Relay)
	if r.Consumer != "" {
		f.Add("for consumer", r.Consumer)
	}
	f.Add("started", output.Moment(r.StartedAt)+" by "+by(r))
	f.Add("reason", r.Reason)
	if r.Ended() {
		f.Add("ended", output.Moment(r.EndedAt))
	}
	if r.ChangedBy != "" {
		f.Add(string(r.State)+" by", r.ChangedBy)
	}
	f.Add("filter", string(filter))
	if r.Rate > 0 {
		f.Add("rate", fmt.Sprintf("%g/s", r.Rate))
	}
	f.Add("selected", output.Number(r.Selected))
	f.Add("parked", output.Number(r.Done))
	f.Add("skipped", output.Number(r.Skipped))
	f.Add("missing", output.Number(r.Missing))
	if r.State == replay.Unreadable {
		f.Add("cause", output.Printable(r.Cause)+"; until it is cancelled, the whole log is kept")
	}
	if r.Waiting {
		f.Add("waiting", fmt.Sprintf("the relay has %s parked messages or more, or the next message is parked by a replay for another consumer",
			output.Number(int64(replay.MaxParked))))
	}
	if r.Failures > 0 {
		f.Add("failures", output.Number(int64(r.Failures))+" in a row, the last: "+output.Printable(r.Cause))
	}
	f.Flush()
	if !r.Ended() {
		fmt.Fprintf(p.Stdout, "\ndrive it from here:  %s\nend it:              %s\n", p.Hint("replay run %s", r.ID), p.Hint("replay cancel %s", r.ID))
	}
	return nil
}

func (p commands) runCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "run ID",
		Short:   "Drive a replay that was left off, to its end",
		Example: `  postrider replay run 0190f3c2-8a4e-7d05-9d2b-0c5d1f6a7b88`,
		Args:    program.ExactArgs(replayArg),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				r, err := replay.New(b).Show(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return p.drive(cmd.Context(), b, r, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the replay as JSON at its end")
	p.CompleteArgs(cmd, 1, replays(replay.Running))
	return cmd
}

// stateCommand returns the command that moves a replay to a state.
func (p commands) stateCommand(to replay.State) *cobra.Command {
	type verb struct {
		name, short string
		from        []replay.State
		do          func(s replay.Store, ctx context.Context, id, by string) (replay.Replay, error)
		action      admin.Action
	}
	v := map[replay.State]verb{
		replay.Paused:    {"pause", "Pause a running replay; what it has parked is delivered", []replay.State{replay.Running}, replay.Store.Pause, "PauseReplay"},
		replay.Running:   {"resume", "Let a paused replay go on", []replay.State{replay.Paused}, replay.Store.Resume, "ResumeReplay"},
		replay.Cancelled: {"cancel", "End a replay; what it has parked is delivered", []replay.State{replay.Running, replay.Paused, replay.Unreadable}, replay.Store.Cancel, "CancelReplay"},
	}[to]
	var by, because string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     v.name + " ID",
		Short:   v.short,
		Example: "  postrider replay " + v.name + " 0190f3c2-8a4e-7d05-9d2b-0c5d1f6a7b88",
		Args:    program.ExactArgs(replayArg),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				var r replay.Replay
				c := admin.Change{Action: v.action, On: "replay " + args[0], Reason: because}
				err := p.Act(cmd.Context(), b, by, c, func(db held.Database) (err error) {
					r, err = v.do(replay.New(db), cmd.Context(), args[0], by)
					return err
				})
				if err != nil {
					return err
				}
				if asJSON {
					return output.JSON(p.Stdout, r)
				}
				_, err = fmt.Fprintf(p.Stdout, "replay %s is %s; %s of %s are parked or delivered\n", r.ID, r.State, output.Number(r.Done),
					output.Plural(r.Selected, "message"))
				return err
			})
		},
	}
	program.ByFlag(cmd, &by, p.Operator())
	program.WhyFlag(cmd, &because)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the replay as JSON")
	p.CompleteArgs(cmd, 1, replays(v.from...))
	return cmd
}
