// Package redrive has the command "postrider redrive", which starts, watches and cancels redrives of dead letters.
package redrive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("redrive", "Start, watch and cancel redrives of dead letters",
		`A redrive sends dead-lettered messages back to their relays and consumers. It is kept in the database: any postrider relay
process runs it, and so does postrider redrive run; if that process ends, another continues. It covers the dead letters
that existed when it began.`,
		p.redriveStartCommand(), p.redriveListCommand(), p.redriveShowCommand(), p.redriveRunCommand(), p.redriveContinueCommand(),
		p.redriveCancelCommand())
}

// redriveOptions are the options of a redrive.
type redriveOptions struct {
	selection.Selection
	rate        float64
	first       bool
	stopAt      float64
	maxRedrives int
	force       bool
	detach      bool
}

func (p commands) redriveFlags(cmd *cobra.Command, o *redriveOptions) {
	o.Verb = "redrive"
	o.Selection.Flags(p.Program, cmd)
	program.WhyFlag(cmd, &o.Because)
	p.CompleteArgs(cmd, 0, program.DeadLetters(store.DeadOpen))
	s := cmd.Flags()
	s.IntVar(&o.maxRedrives, "max-redrives", deadletter.DefaultMaxRedrives, "refuse messages that were sent back `n` times already")
	s.BoolVar(&o.force, "force", false, "refuse none, however often they were sent back")
	cmd.MarkFlagsMutuallyExclusive("max-redrives", "force")
}

// check validates the options before anything is opened.
func (o *redriveOptions) check(args []string) error {
	if err := o.Selection.Check(args); err != nil {
		return err
	}
	if o.maxRedrives < 1 {
		return program.Usagef("--max-redrives must be 1 or more, is %d; --force takes the bound away", o.maxRedrives)
	}
	if o.Filter.MaxRedrives = o.maxRedrives; o.force {
		o.Filter.MaxRedrives = deadletter.Unbounded
	}
	if o.rate < 0 {
		return program.Usagef("--rate must not be negative, is %v", o.rate)
	}
	if o.stopAt < 0 || o.stopAt >= 100 {
		return program.Usagef("--stop-at is a percentage from 0 to 100, is %v", o.stopAt)
	}
	return nil
}

func (p commands) redriveStartCommand() *cobra.Command {
	o := &redriveOptions{}
	cmd := &cobra.Command{
		Use:   "start [NUMBER...]",
		Short: "Start a redrive and drive it",
		Long: `Start a redrive and drive it to its end, or with --detach leave that to the relays. Interrupted, it stays where it is, for
relays or postrider redrive run to go on with. One that stops sends nothing until postrider redrive continue, or cancel.

` + selection.Long,
		Example: `  postrider redrive start --relay to-nats --first --rate 50 --stop-at 5
  postrider redrive start --side consumer --fingerprint 5bd1e9956a0c77d2 --detach
  postrider redrive start --all --yes --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				f, err := o.Filter.Resolve(cmd.Context(), b)
				if err != nil {
					return err
				}
				return p.startRedrive(cmd.Context(), b, o, f)
			})
		},
	}
	p.redriveFlags(cmd, o)
	s := cmd.Flags()
	s.Float64Var(&o.rate, "rate", 0, "send back at most `n` messages per second (default no limit)")
	s.BoolVar(&o.first, "first", false, "send one message, and the others after its delivery; stop if it fails or waits 5 minutes")
	s.Float64Var(&o.stopAt, "stop-at", 0, "stop when more than this `percentage` of 20 or more first attempts fail (default never)")
	s.BoolVar(&o.detach, "detach", false, "do not drive it from here")
	s.BoolVar(&o.AsJSON, "json", false, "write the redrive as JSON at its end; the count with --dry-run, or if none match")
	return cmd
}

func (p commands) startRedrive(ctx context.Context, b *backend.Outbox, o *redriveOptions, f store.DeadFilter) error {
	if total, err := o.Selection.Confirm(ctx, p.Program, b, f); err != nil || total == 0 {
		return err
	}
	var r store.Redrive
	err := p.Act(ctx, b, o.By, o.Change("RedriveDead", f), func(db held.Database) (err error) {
		r, err = deadletter.New(db).StartRedrive(ctx, deadletter.Plan{Filter: f, Rate: o.rate, First: o.first, StopAt: o.stopAt / 100, By: o.By})
		return err
	})
	if err != nil {
		return err
	}
	if !o.detach {
		return p.drive(ctx, b, r, o.AsJSON)
	}
	if o.AsJSON {
		return output.JSON(p.Stdout, r)
	}
	fmt.Fprintf(p.Stdout, "redrive %d of %s has begun; see it with: %s\n", r.ID,
		output.Plural(r.Selected, "dead letter"), p.Hint("redrive show %d", r.ID))
	return nil
}

// lineEvery is how often progress is printed without a terminal.
const lineEvery = 5 * time.Second

// drive drives a redrive to its end and prints the outcome.
func (p commands) drive(ctx context.Context, b *backend.Outbox, r store.Redrive, asJSON bool) error {
	bar, last, told := p.Progress(r.Selected, "redrive"), r, time.Now()
	bar.Add(int(r.Done + r.Refused))
	defer bar.End()
	end, err := deadletter.New(b).Drive(ctx, r.ID, func(r store.Redrive) {
		bar.Add(int(r.Done + r.Refused - last.Done - last.Refused))
		last = r
		if !bar.Shown() && time.Since(told) >= lineEvery {
			told = time.Now()
			fmt.Fprintf(p.Stderr, "postrider: redrive %d: %s of %s\n", r.ID, output.Number(r.Done+r.Refused), output.Number(r.Selected))
		}
	})
	bar.End()
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	switch {
	case errors.Is(err, deadletter.ErrStopped):
		return program.Exit(program.ExitPartly, fmt.Errorf("redrive %d has stopped, with %s of %s sent back: %s; let it go on: %s; or end it: %s",
			r.ID, output.Number(last.Done), output.Number(last.Selected), deadletter.WhyStopped(last), p.Hint("redrive continue %d", r.ID), p.Hint("redrive cancel %d", r.ID)))
	case err != nil && last.State != store.RedriveRunning:
		return fmt.Errorf("redrive %d is %s, %s of %s were sent back; what became of them was not read: %w; see: %s",
			r.ID, last.State, output.Number(last.Done), output.Number(last.Selected), err, p.Hint("redrive show %d", r.ID))
	case err != nil:
		return fmt.Errorf("redrive %d: %w; %s of %s were sent back. The relays go on with it, and so does: %s; or end it: %s",
			r.ID, err, output.Number(last.Done), output.Number(last.Selected), p.Hint("redrive run %d", r.ID), p.Hint("redrive cancel %d", r.ID))
	}
	if end.State == store.RedriveFailed {
		return fmt.Errorf("redrive %d has failed, with %s of %s sent back: %s; fix that and start another one", r.ID,
			output.Number(end.Done), output.Number(end.Selected), output.Printable(end.Cause))
	}
	if asJSON {
		err = output.JSON(p.Stdout, end)
	} else {
		fmt.Fprintf(p.Stdout, "redriven %s in %s (redrive %d%s)\n", output.Plural(end.Done, "dead letter"),
			output.Ago(end.EndedAt.Sub(end.StartedAt)), end.ID, leftOut(end))
	}
	if end.Refused > 0 {
		fmt.Fprintf(p.Stderr, "postrider: %s refused: sent back %d times already, they died again each time; find out why "+
			"(%s), or take the bound away with --force\n", output.Plural(end.Refused, "dead letter"), bound(end.Filter), p.Hint("dead list"))
	}
	if err == nil && (end.Refused > 0 || end.State == store.RedriveCancelled) {
		return &program.ExitError{Code: program.ExitPartly}
	}
	return err
}

func bound(f store.DeadFilter) int {
	if f.MaxRedrives > 0 {
		return f.MaxRedrives
	}
	return deadletter.DefaultMaxRedrives
}

// leftOut says which of the selected dead letters were not sent back.
func leftOut(r store.Redrive) string {
	var b strings.Builder
	if r.Refused > 0 {
		fmt.Fprintf(&b, ", %s refused", output.Number(r.Refused))
	}
	if r.Skipped > 0 {
		fmt.Fprintf(&b, ", %s decided by others", output.Number(r.Skipped))
	}
	if r.State == store.RedriveCancelled {
		fmt.Fprintf(&b, ", cancelled by %s", output.Printable(r.CancelledBy))
	}
	return b.String()
}
