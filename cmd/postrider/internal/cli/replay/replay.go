// Package replay has the command "postrider replay", which delivers messages again that a relay has delivered.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/replay"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("replay", "Deliver messages again that a relay has delivered",
		`A replay delivers messages of the log again, as far back as retention reaches. It is kept in the database: any postrider
relay process runs it, and so does postrider replay run; if that process ends, another continues. It covers what the relay
had delivered when it began. While it runs, retention keeps the messages that it has still to deliver.

Within a key, replayed messages come in their order, and other messages of the key wait while replayed ones are parked.
Messages that are published meanwhile may come between two steps of 500 messages; with --key, all messages of the key are
one step, and nothing comes in between.

A replayed message has its old ID, and the header postrider-replay. An inbox handles it again only if it has not handled it
before, if --consumer names it, or if its configuration says so.`,
		p.startCommand(), p.listCommand(), p.showCommand(), p.runCommand(), p.stateCommand(replay.Paused), p.stateCommand(replay.Running),
		p.stateCommand(replay.Cancelled))
}

// options are those of a new replay.
type options struct {
	replay.Plan
	from, to       string
	all, yes       bool
	dryRun, detach bool
	asJSON         bool
}

func (p commands) startCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a replay and drive it",
		Long: `Start a replay and drive it until all its messages are parked for delivery, or with --detach leave that to the relays.
Interrupted, it stays where it is, for relays or postrider replay run to go on with.`,
		Example: `  postrider replay start --relay to-nats --key order/42 --because 'lost by the broker'
  postrider replay start --relay to-nats --topic 'order.*' --from 2h --rate 100 --consumer order-view --because 'new view'
  postrider replay start --relay to-nats --all --dry-run`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.start(cmd.Context(), b, o) })
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Relay, "relay", "", "the relay that delivers the messages again, by its `name`")
	p.CompleteFlag(cmd, "relay", program.Relays)
	s.StringVar(&o.Consumer, "consumer", "", "only the consumer of this `name` is to handle them again (default by each consumer's configuration)")
	s.StringVar(&o.Filter.Key, "key", "", "only messages with this `key`, in one step")
	s.StringVar(&o.Filter.Type, "type", "", "only messages of this `type`")
	s.StringVar(&o.Filter.Topic, "topic", "", "only topics that match this `pattern`, in which * stands for any text")
	s.StringVar(&o.Filter.Tenant, "tenant", "", "only messages of this `tenant`")
	s.StringVar(&o.Filter.MessageID, "id", "", "only the message with this `ID`")
	s.StringVar(&o.from, "from", "", "written at or after this `time`: RFC 3339, or how long ago (2h)")
	s.StringVar(&o.to, "to", "", "written before this `time`: RFC 3339, or how long ago (30m)")
	s.BoolVar(&o.all, "all", false, "all messages that the log still has")
	s.Float64Var(&o.Rate, "rate", 0, "park at most `n` messages per second (default as fast as the relay delivers them)")
	s.BoolVar(&o.dryRun, "dry-run", false, "only say how many it would be")
	s.BoolVar(&o.detach, "detach", false, "do not drive it from here")
	s.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	s.BoolVar(&o.asJSON, "json", false, "write the replay as JSON; the counts with --dry-run, or if none match")
	program.ByFlag(cmd, &o.By, p.Operator())
	program.BecauseFlag(cmd, &o.Reason)
	return cmd
}

// check validates the options before anything is opened.
func (o *options) check(cmd *cobra.Command) error {
	narrowed := false
	for _, name := range []string{"key", "type", "topic", "tenant", "id", "from", "to", "relay", "consumer"} {
		flag := cmd.Flags().Lookup(name)
		if flag.Changed && flag.Value.String() == "" {
			return program.Usagef("--%s is empty", name)
		}
		narrowed = narrowed || flag.Changed && name != "relay" && name != "consumer"
	}
	switch {
	case o.Relay == "":
		return program.Usagef("--relay is needed: the relay that delivers the messages again")
	case o.all == narrowed:
		return program.Usagef("choose messages by filters, or all with --all")
	}
	for flag, text := range map[string]string{"from": o.from, "to": o.to} {
		if _, err := program.ParseTime(flag, text, time.Time{}); err != nil {
			return err
		}
	}
	if err := o.Validate(); err != nil {
		return program.Usagef("%v", err)
	}
	return nil
}

func (p commands) start(ctx context.Context, b *backend.Outbox, o *options) error {
	plan := o.Plan
	if o.from+o.to != "" {
		status, err := b.Status(ctx)
		if err != nil {
			return err
		}
		if plan.Filter.From, err = program.ParseTime("from", o.from, status.Now); err == nil {
			plan.Filter.To, err = program.ParseTime("to", o.to, status.Now)
		}
		if err != nil {
			return err
		}
	}
	s := replay.New(b)
	found, err := s.Count(ctx, plan)
	if err != nil {
		return err
	}
	if found.Messages == 0 || o.dryRun {
		if o.asJSON {
			return output.JSON(p.Stdout, found)
		}
		_, err := fmt.Fprintf(p.Stdout, "%s match, and %s more that %s has not delivered or has dead-lettered; nothing was done\n",
			output.Plural(found.Messages, "delivered message"), output.Number(found.Undelivered), output.Printable(plan.Relay))
		return err
	}
	if err := p.Confirm(o.yes, fmt.Sprintf("Deliver %s again by %s?", output.Plural(found.Messages, "message"), output.Printable(plan.Relay))); err != nil {
		return err
	}
	var r replay.Replay
	err = p.Act(ctx, b, o.By, admin.Change{Action: "StartReplay", On: "messages that " + plan.Relay + " delivered", Reason: o.Reason}, func(db held.Database) (err error) {
		r, err = replay.New(db).Start(ctx, plan)
		return err
	})
	if err != nil {
		return err
	}
	if !o.detach {
		return p.drive(ctx, b, r, o.asJSON)
	}
	if o.asJSON {
		return output.JSON(p.Stdout, r)
	}
	_, err = fmt.Fprintf(p.Stdout, "replay %s of %s has begun; see it with: %s\n", r.ID, output.Plural(r.Selected, "message"), p.Hint("replay show %s", r.ID))
	return err
}

// lineEvery is how often progress is printed without a terminal.
const lineEvery = 5 * time.Second

// drive drives a replay to its end and prints the outcome.
func (p commands) drive(ctx context.Context, b *backend.Outbox, r replay.Replay, asJSON bool) error {
	bar, last, told := p.Progress(r.Selected, "replay"), r, time.Now()
	bar.Add(int(r.Done))
	defer bar.End()
	end, err := replay.New(b).Drive(ctx, r.ID, func(r replay.Replay) {
		bar.Add(int(r.Done - last.Done))
		last = r
		if !bar.Shown() && time.Since(told) >= lineEvery {
			told = time.Now()
			fmt.Fprintf(p.Stderr, "postrider: replay %s: %s of %s\n", r.ID, output.Number(r.Done), output.Number(r.Selected))
		}
	})
	bar.End()
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	switch {
	case err != nil:
		return fmt.Errorf("replay %s: %w; %s of %s are parked for delivery. The relays go on with it, and so does: %s; or end it: %s",
			r.ID, err, output.Number(last.Done), output.Number(last.Selected), p.Hint("replay run %s", r.ID), p.Hint("replay cancel %s", r.ID))
	case end.State == replay.Failed:
		return fmt.Errorf("replay %s has failed, with %s of %s parked for delivery: %s; fix that and start another one", r.ID,
			output.Number(end.Done), output.Number(end.Selected), output.Printable(end.Cause))
	case asJSON:
		err = output.JSON(p.Stdout, end)
	default:
		_, err = fmt.Fprintf(p.Stdout, "replay %s is %s: %s parked for delivery by %s%s\n", end.ID, end.State,
			output.Plural(end.Done, "message"), output.Printable(end.Relay), leftOut(end))
	}
	if err == nil && end.State != replay.Finished { // somebody has paused or cancelled it
		return &program.ExitError{Code: program.ExitPartly}
	}
	return err
}

// leftOut says which of the selected messages were not parked.
func leftOut(r replay.Replay) string {
	text := ""
	if r.Skipped > 0 {
		text += fmt.Sprintf(", %s skipped: not delivered yet, or dead-lettered", output.Number(r.Skipped))
	}
	if r.Missing > 0 {
		text += fmt.Sprintf(", %s no longer in the log", output.Number(r.Missing))
	}
	return text
}

func by(r replay.Replay) string { return cmp.Or(r.By, "-") }
