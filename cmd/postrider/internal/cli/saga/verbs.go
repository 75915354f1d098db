package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// source is the service that publishes operators' messages.
const source = "postrider-cli"

// verb describes the command of a verb.
type verb struct {
	saga.Verb
	short, long, example string
	// step says whether the verb is about a step.
	step stepUse
	// patch: it can change the data; force: it has --force; option: it answers; to: it leads to a version.
	patch, force, option, to bool
}

type stepUse int

const (
	noStep stepUse = iota
	mayStep
	needsStep
)

// verbs are the commands that decide about an instance.
var verbs = []verb{
	{Verb: saga.Retry, step: mayStep, short: "Try again what is stuck in an instance",
		long: `Send the command or the undo of a stuck step again, with its attempts counted from 1. Without --step, every stuck step is
tried again.`,
		example: `--because 'payments is back'`},
	{Verb: saga.Done, step: needsStep, patch: true, short: "Record a step as done, because somebody did it by hand",
		long: `Record a step as done, because somebody did it by hand. If its command was sent, the participant first confirms that it has
not done the step too, and never will. A step that was done by hand is undone by hand: see "undone".`,
		example: `--step ship --patch '{"parcel": "P-17"}' --because 'shipped by the night shift'`},
	{Verb: saga.Undone, step: needsStep, short: "Record a step as undone, because somebody undid it by hand",
		long:    `Record a step as undone, because somebody undid it by hand. Its undo must have been sent, or be stuck.`,
		example: `--step pay/card/charge --because 'refunded in the bank portal'`},
	{Verb: saga.Skip, step: needsStep, short: "Continue without a step, or release its obligation",
		long: `Forward: continue without a step. If its command was sent, its undo is confirmed first. While the instance compensates:
release the obligation of a step whose undo is stuck. Then something is left behind, and the instance ends abandoned.`,
		example: `--step notify --because 'the customer was called'`},
	{Verb: saga.Compensate, force: true, short: "Turn an instance back, so that what was done is undone",
		long: `Turn an instance back, so that what was done is undone. It is refused past the pivot, unless --force is given; then steps
that cannot be undone are left stuck.`,
		example: `--because 'the customer returned everything' --force`},
	{Verb: saga.Cancel, short: "Cancel an instance for its owner, if it is not past its pivot",
		long:    `Cancel an instance for its owner: what was done is undone. It is refused past the pivot.`,
		example: `--because 'the customer changed her mind'`},
	{Verb: saga.Complete, short: "End a stuck instance as completed",
		long:    `End an instance that is stuck on its way forward as completed. The history lists the steps that are not done.`,
		example: `--because 'the rest was done by hand'`},
	{Verb: saga.Abandon, short: "End an instance with its obligations open",
		long: `End an instance with its obligations open. They are listed in the history, and the instance is kept indefinitely.
Prefer retry, undone and skip, which say what became of each step.`,
		example: `--because 'written off, ticket 4711'`},
	{Verb: saga.Pause, short: "Stop an instance from sending anything",
		long:    `Stop an instance from sending anything. Replies are applied meanwhile; the time of steps and of the deadline stands still.`,
		example: `--because 'payments is being migrated'`},
	{Verb: saga.Resume, short: "Let a paused instance continue", long: "Let a paused instance continue.", example: `--because 'the migration is over'`},
	{Verb: saga.Edit, patch: true, short: "Change the data of an instance",
		long: `Change the data of an instance by a JSON merge patch (RFC 7396). It is refused if the result does not fit the definition.
The history keeps what was there before.`,
		example: `--patch '{"address": "Main Street 1"}' --because 'typing error'`},
	{Verb: saga.Migrate, to: true, short: "Let an instance continue with another version of its definition",
		long: `Let an instance continue with another version of its definition. This is refused unless everything that the instance
has reached is the same in both versions, and the other version can read its data. Use it if no running process has the
instance's version. "postrider saga diff" says which instances a build can migrate.`,
		example: `--to 2 --because 'version 1 is not deployed any more'`},
	{Verb: saga.AnswerAsk, step: needsStep, option: true, short: "Answer the question that an instance asks",
		long: `Answer the question of a step that waits for a person: "postrider saga questions" lists them. Of two answers, the first
counts. Like the other decisions it needs rights in the database, not one of the roles that the question names, and records
--by, which is the user of the operating system unless it is given. The administration checks the roles (postrider serve).`,
		example: `--step review --option release --because 'checked by phone'`},
}

// operation has the flags of a verb's command.
type operation struct {
	saga.Operation
	patch        string
	dryRun, json bool
	wait         time.Duration
}

func (p commands) verbCommand(v verb) *cobra.Command {
	o := &operation{Operation: saga.Operation{Verb: v.Verb}}
	cmd := &cobra.Command{
		Use: string(v.Verb) + " ID", Short: v.short,
		Long: v.long + `

The engine decides, in turn with the other inputs of the instance; the command waits for its decision. --dry-run says what
would happen now. Unless --rev is given, the decision is based on the instance as it is now, and refused if it moves on.`,
		Example: "  postrider saga " + string(v.Verb) + " order-4711 " + v.example,
		Args:    program.ExactArgs("the ID of an instance"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.readPatch(v); err != nil {
				return err
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.operate(cmd.Context(), b, args[0], o) })
		},
	}
	p.CompleteArgs(cmd, 1, program.Sagas)
	flags := cmd.Flags()
	program.ByFlag(cmd, &o.Actor, p.Operator())
	program.BecauseFlag(cmd, &o.Reason)
	flags.BoolVar(&o.dryRun, "dry-run", false, "only say what would happen")
	flags.BoolVar(&o.json, "json", false, "write JSON")
	flags.Int64Var(&o.Rev, "rev", 0, "refuse if the instance is not at this revision `n` (default its present one)")
	flags.DurationVar(&o.wait, "wait", 10*time.Second, "how long to wait for the engine")
	if v.step != noStep {
		usage := "`path` of the step"
		if v.step == needsStep {
			usage += " (required)"
		}
		flags.StringVar(&o.Step, "step", "", usage)
		p.CompleteFlag(cmd, "step", program.SagaSteps)
	}
	if v.patch {
		flags.StringVar(&o.patch, "patch", "", "change of the data: a JSON merge patch, or @ and a `file`")
	}
	if v.force {
		flags.BoolVar(&o.Force, "force", false, "also past the pivot")
	}
	if v.option {
		flags.StringVar(&o.Option, "option", "", "the `answer`, one of the step's options (required)")
	}
	if v.to {
		flags.IntVar(&o.To, "to", 0, "`version` of the definition (required)")
	}
	for name, required := range map[string]bool{"to": v.to, "step": v.step == needsStep, "option": v.option, "patch": v.Verb == saga.Edit} {
		if required {
			if err := cmd.MarkFlagRequired(name); err != nil {
				panic("postrider: " + err.Error())
			}
		}
	}
	return cmd
}

// readPatch reads the patch of the flag.
func (o *operation) readPatch(v verb) error {
	if !v.patch || o.patch == "" {
		return nil
	}
	text := []byte(o.patch)
	if name, ok := strings.CutPrefix(o.patch, "@"); ok {
		var err error
		if text, err = os.ReadFile(name); err != nil {
			return program.Usagef("--patch: %v", err)
		}
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return program.Usagef("--patch is not a JSON object: %v", err)
	}
	o.Patch = text
	return nil
}

// showPlan says what would happen. That the engine would refuse is the answer no.
func (p commands) showPlan(id string, plan saga.Plan, asJSON bool) error {
	write := func() error { return p.writePlan(id, plan) }
	if asJSON {
		write = func() error { return output.JSON(p.Stdout, plan) }
	}
	if err := write(); err != nil || plan.Refused == "" {
		return err
	}
	return &program.ExitError{Code: program.ExitNo}
}

// operate plans an operation and, unless that is all, asks for it and waits for the engine's decision.
func (p commands) operate(ctx context.Context, b *backend.Outbox, id string, o *operation) error {
	service := saga.NewOperator(b)
	plan, err := o.plan(ctx, b, service, id)
	if err != nil {
		return err
	}
	if o.dryRun {
		return p.showPlan(id, plan, o.json)
	}
	if o.Rev == 0 {
		o.Rev = plan.Rev
	}
	if plan.Refused != "" {
		return fmt.Errorf("%s is refused: %s", o.Verb, plan.Refused)
	}
	m, err := service.Message(ctx, id, o.Operation)
	if err != nil {
		return err
	}
	c := change(ctx, b, string(o.Verb), id, o.Reason)
	if o.Verb == saga.AnswerAsk {
		c.Action, c.On = "AnswerSaga", admin.Answered(id, o.Step, o.Option)
	}
	if err := p.record(ctx, b, o.Actor, c); err != nil {
		return err
	}
	if _, err := b.Publish(ctx, source, []*postrider.Message{m}); err != nil {
		return err
	}
	return p.awaitOutcome(ctx, service, id, m.ID, o)
}

// change is what is asked about an instance, for the record. Its ID is a key, which not everybody may see; a run is none.
func change(ctx context.Context, b *backend.Outbox, what, id, reason string) admin.Change {
	c := admin.Change{Action: "OperateSaga", On: what + " of saga " + id, Path: "/sagas/" + url.PathEscape(id), Reason: reason, Key: id}
	if in, err := b.ShowSaga(ctx, id); err == nil && in.Run == id {
		c.Key = ""
	}
	return c
}

// record puts on record what is asked of an engine, before it is asked. The engine decides in a transaction of its own, and the history
// of the instance says what it decided.
func (p commands) record(ctx context.Context, b *backend.Outbox, by string, c admin.Change) error {
	return p.Act(ctx, b, by, c, func(db held.Database) error {
		return db.Change(ctx, store.Operation{Method: "OperateSaga", Doing: "record an operation on a saga"}, func(store.Writer) error { return nil })
	})
}

// plan plans an operation. If no process has the definition, the engine decides on the instance as it is.
func (o *operation) plan(ctx context.Context, b *backend.Outbox, service *saga.Operator, id string) (saga.Plan, error) {
	plan, err := service.Plan(ctx, id, o.Operation)
	if o.dryRun || !errors.Is(err, saga.ErrNoDefinition) {
		return plan, err
	}
	in, err := b.ShowSaga(ctx, id)
	return saga.Plan{Rev: in.Rev}, err
}

// outcomePoll is the wait between two looks at the history.
const outcomePoll = 100 * time.Millisecond

// awaitOutcome waits for the engine's decision and says what it is.
func (p commands) awaitOutcome(ctx context.Context, service *saga.Operator, id, message string, o *operation) error {
	for deadline := time.Now().Add(o.wait); ; {
		outcome, err := service.Outcome(ctx, id, message)
		switch {
		case err != nil:
			return err
		case outcome.Handled && outcome.Refused != "":
			return fmt.Errorf("%s is refused: %s", o.Verb, outcome.Refused)
		case outcome.Handled && o.json:
			return output.JSON(p.Stdout, map[string]any{"operation": message, "rev": outcome.Rev})
		case outcome.Handled:
			fmt.Fprintf(p.Stdout, "%s of instance %s is done, in revision %d; see it: %s\n", o.Verb, output.Printable(id), outcome.Rev,
				p.Hint("saga show %s", output.ShellQuote(id)))
			return nil
		case !time.Now().Before(deadline):
			return fmt.Errorf("%s of instance %s was asked for, and no engine has decided within %s; it will when a process of the engine "+
				"runs: %s", o.Verb, output.Printable(id), o.wait, p.Hint("saga show %s", output.ShellQuote(id)))
		}
		select {
		case <-time.After(outcomePoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writePlan writes a plan for people.
func (p commands) writePlan(id string, plan saga.Plan) error {
	if plan.Refused != "" {
		_, err := fmt.Fprintf(p.Stdout, "it would be refused: %s\n", output.Printable(plan.Refused))
		return err
	}
	fmt.Fprintf(p.Stdout, "instance %s at revision %d: %s, then %s\n", output.Printable(id), plan.Rev, plan.Before, plan.After)
	for _, m := range plan.Sent {
		what := "command"
		if m.Undo {
			what = "undo"
		}
		if m.Child != "" {
			fmt.Fprintf(p.Stdout, "  %s of step %s, which is instance %s\n", what, output.Printable(m.Step), output.Printable(m.Child))
			continue
		}
		if m.Type == "" {
			fmt.Fprintf(p.Stdout, "  runs the local %s of step %s\n", what, output.Printable(m.Step))
			continue
		}
		fmt.Fprintf(p.Stdout, "  sends the %s of step %s: %s to topic %s\n", what, output.Printable(m.Step), output.Printable(m.Type), output.Printable(m.Topic))
	}
	for _, e := range plan.Entries {
		if e.Name != "command.sent" && e.Name != "undo.sent" {
			fmt.Fprintf(p.Stdout, "  %s\n", output.Printable(strings.TrimSpace(e.Name+" "+e.Step+" "+e.Text)))
		}
	}
	for _, path := range plan.Depends {
		fmt.Fprintf(p.Stdout, "  continues at step %s, which depends on the data\n", output.Printable(path))
	}
	if len(plan.Owed) > 0 {
		fmt.Fprintf(p.Stdout, "  obligations open afterwards: %s\n", output.Printable(strings.Join(plan.Owed, ", ")))
	}
	return nil
}

func (p commands) signalCommand() *cobra.Command {
	var messageType, data string
	cmd := &cobra.Command{
		Use:   "signal ID --type TYPE",
		Short: "Send a signal to an instance",
		Long: `Send a signal to an instance: it reaches the step that awaits this type, also if the instance has not come to it yet.
Operators' decisions are the other verbs, which record who decided and why.`,
		Example: `  postrider saga signal order-4711 --type order.reviewed --data '{"by": "ann"}'`,
		Args:    program.ExactArgs("the ID of an instance"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !json.Valid([]byte(data)) {
				return program.Usagef("--data is not JSON")
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				m, err := saga.NewOperator(b).SignalMessage(cmd.Context(), args[0], messageType, []byte(data))
				if err != nil {
					return err
				}
				if err := p.record(cmd.Context(), b, "", change(cmd.Context(), b, "signal "+messageType, args[0], "")); err != nil {
					return err
				}
				ids, err := b.Publish(cmd.Context(), source, []*postrider.Message{m})
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(p.Stdout, "signal %s is sent as message %s\n", output.Printable(messageType), ids[0])
				return err
			})
		},
	}
	p.CompleteArgs(cmd, 1, program.Sagas)
	cmd.Flags().StringVar(&messageType, "type", "", "message `type` of the signal (required)")
	cmd.Flags().StringVar(&data, "data", "null", "the signal's data, as `JSON`")
	if err := cmd.MarkFlagRequired("type"); err != nil {
		panic("postrider: " + err.Error())
	}
	return cmd
}
