package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// bulk is one decision about many instances.
type bulk struct {
	operation
	filter      store.SagaFilter
	maxFailures int
	settle      time.Duration
}

// bulkVerbs are the verbs that need nothing that differs between instances.
var bulkVerbs = []saga.Verb{saga.Retry, saga.Cancel, saga.Compensate, saga.Pause, saga.Resume, saga.Abandon, saga.Migrate}

// canary are the sizes of the first batches; largest is that of the others.
var canary = []int{1, 10}

const largest = 100

// bulkResult counts instances.
type bulkResult struct {
	Matched int `json:"matched"`
	// Done: the engine has decided, and the instance has continued or ended. Failed: it is stuck again. Refused: the verb does not
	// apply to it.
	Done    int `json:"done"`
	Failed  int `json:"failed"`
	Refused int `json:"refused"`
	Left    int `json:"left"`
}

func (r bulkResult) String() string {
	return fmt.Sprintf("%d of %d done, %d stuck again, %d refused, %d left", r.Done, r.Matched, r.Failed, r.Refused, r.Left)
}

func (p commands) bulkCommand() *cobra.Command {
	o := &bulk{}
	selected := status("")
	cmd := &cobra.Command{
		Use: "bulk VERB --saga NAME", Short: "Decide about many instances, a few of them first",
		Long: `Decide about all instances that match: retry, cancel, compensate, pause, resume, abandon or migrate. The command
starts with one instance, then takes ten, then a hundred at a time. After each batch, it waits until the instances have
continued or ended, and it stops when more than --max-failures are stuck again. Each decision is recorded in its
instance. If the command is interrupted, run it again: retry takes only what is still stuck, resume only what is paused.`,
		Example: `  postrider saga bulk retry --saga order-fulfilment --waiting-for charge --because 'payments is back' --dry-run
  postrider saga bulk cancel --saga order-fulfilment --label customer=42 --because 'account closed'`,
		Args: program.ExactArgs("a verb"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Verb = saga.Verb(args[0])
			if !slices.Contains(bulkVerbs, o.Verb) {
				return program.Usagef("%q is not a verb for many instances; choose one of %s", args[0], bulkVerbNames())
			}
			if (o.Verb == saga.Migrate) != (o.To > 0) {
				return program.Usagef("--to is the version to migrate to")
			}
			o.filter.Status = bulkStatus(o.Verb, selected)
			o.filter.Paused = o.filter.Paused || o.Verb == saga.Resume
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.runBulk(cmd.Context(), b, o) })
		},
	}
	p.filterFlags(cmd, &o.filter, &selected)
	flags := cmd.Flags()
	flags.Lookup("status").Usage = "only in this `status` (default stuck to retry, open otherwise)"
	program.ByFlag(cmd, &o.Actor, p.Operator())
	program.BecauseFlag(cmd, &o.Reason)
	flags.StringVar(&o.Step, "step", "", "`path` of the step, for retry")
	flags.BoolVar(&o.Force, "force", false, "for compensate: also past the pivot")
	flags.IntVar(&o.To, "to", 0, "for migrate: `version` of the definition")
	flags.BoolVar(&o.dryRun, "dry-run", false, "only count what would happen")
	flags.BoolVar(&o.json, "json", false, "write the counts as JSON")
	flags.IntVar(&o.maxFailures, "max-failures", 10, "stop when more than `n` are stuck again")
	flags.DurationVar(&o.settle, "settle", time.Minute, "how long a batch may take to continue or end; 0: do not look")
	flags.DurationVar(&o.wait, "wait", 10*time.Second, "how long to wait for the engine")
	if err := cmd.MarkFlagRequired("saga"); err != nil {
		panic("postrider: " + err.Error())
	}
	return cmd
}

func bulkVerbNames() string {
	var names []string
	for _, v := range bulkVerbs {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}

// bulkStatus is what a verb selects if nobody says.
func bulkStatus(v saga.Verb, s status) []store.SagaStatus {
	switch {
	case s != "":
		return s.statuses()
	case v == saga.Retry:
		return []store.SagaStatus{store.SagaStuck}
	}
	return store.OpenSagaStatuses
}

// runBulk decides about the instances that match, batch by batch.
func (p commands) runBulk(ctx context.Context, b *backend.Outbox, o *bulk) error {
	ids, err := matching(ctx, b, o.filter)
	if err != nil {
		return err
	}
	r := bulkResult{Matched: len(ids), Left: len(ids)}
	if !o.dryRun && len(ids) > 0 {
		on := fmt.Sprintf("%s of %s of saga %s", o.Verb, output.Plural(len(ids), "instance"), o.filter.Saga)
		if err := p.record(ctx, b, o.Actor, admin.Change{Action: "OperateSaga", On: on, Path: "/sagas", Reason: o.Reason}); err != nil {
			return err
		}
	}
	for n := 0; err == nil && len(ids) > 0 && r.Failed <= o.maxFailures; n++ {
		size := largest
		if n < len(canary) {
			size = canary[n]
		}
		batch := ids[:min(size, len(ids))]
		ids = ids[len(batch):]
		r.Left = len(ids)
		if err = o.decide(ctx, b, batch, &r); !o.dryRun {
			fmt.Fprintln(p.Stderr, "postrider:", r)
		}
	}
	switch {
	case o.json:
		err = errors.Join(output.JSON(p.Stdout, r), err)
	case o.dryRun && err == nil:
		_, err = fmt.Fprintf(p.Stdout, "%s of %s: %d would be accepted, %d refused\n", o.Verb, output.Plural(int64(r.Matched), "instance"), r.Done, r.Refused)
	case err == nil:
		_, err = fmt.Fprintf(p.Stdout, "%s: %s\n", o.Verb, r)
	}
	if err == nil && r.Failed > o.maxFailures {
		err = program.Exit(program.ExitNo, fmt.Errorf("stopped: %s stuck again, more than --max-failures %d", output.Plural(int64(r.Failed), "instance"), o.maxFailures))
	}
	return err
}

// matching returns the IDs of the instances that a filter selects, the oldest first.
func matching(ctx context.Context, b *backend.Outbox, f store.SagaFilter) (ids []string, err error) {
	for after := ""; ; {
		found, err := b.ListSagas(ctx, f, after, page)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			ids, after = append(ids, s.ID), s.Run
		}
		if len(found) < page {
			return ids, nil
		}
	}
}

// asked is an operation that an engine was asked for.
type asked struct{ id, message string }

// decide asks for the operation on each instance, and waits until they have continued or ended.
func (o *bulk) decide(ctx context.Context, b *backend.Outbox, ids []string, r *bulkResult) error {
	service := saga.NewOperator(b)
	var open []asked
	var msgs []*postrider.Message
	for _, id := range ids {
		plan, err := o.plan(ctx, b, service, id)
		if err != nil {
			return err
		}
		switch {
		case plan.Refused != "":
			r.Refused++
			continue
		case o.dryRun:
			r.Done++
			continue
		}
		op := o.Operation
		op.Rev = plan.Rev
		m, err := service.Message(ctx, id, op)
		if err != nil {
			return err
		}
		open, msgs = append(open, asked{id, m.ID}), append(msgs, m)
	}
	if len(msgs) == 0 {
		return nil
	}
	if _, err := b.Publish(ctx, source, msgs); err != nil {
		return err
	}
	return o.await(ctx, b, service, open, r)
}

// await looks at a batch until nothing of it is open.
func (o *bulk) await(ctx context.Context, b *backend.Outbox, service *saga.Operator, open []asked, r *bulkResult) error {
	for deadline := time.Now().Add(o.wait + o.settle); ; {
		for i := 0; i < len(open); {
			count, err := o.look(ctx, b, service, open[i], r)
			if err != nil {
				return err
			}
			if count == nil {
				i++
				continue
			}
			*count++
			open = slices.Delete(open, i, i+1)
		}
		switch {
		case len(open) == 0:
			return nil
		case !time.Now().Before(deadline):
			return program.Exit(program.ExitNo, fmt.Errorf("stopped: %s, such as %s, did not continue or end within %s; look at them, and run it again with a longer --settle, or with 0",
				output.Plural(int64(len(open)), "instance"), output.Printable(open[0].id), o.wait+o.settle))
		}
		select {
		case <-time.After(outcomePoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look returns which count an instance belongs to, nil as long as it is open.
func (o *bulk) look(ctx context.Context, b *backend.Outbox, service *saga.Operator, a asked, r *bulkResult) (count *int, err error) {
	outcome, err := service.Outcome(ctx, a.id, a.message)
	switch {
	case err != nil || !outcome.Handled:
		return nil, err
	case outcome.Refused != "":
		return &r.Refused, nil
	case o.settle == 0 || o.Verb == saga.Pause || o.Verb == saga.Resume || o.Verb == saga.Migrate:
		return &r.Done, nil
	}
	in, err := b.ShowSaga(ctx, a.id)
	switch {
	case err != nil:
		return nil, err
	case in.Status == store.SagaStuck:
		return &r.Failed, nil
	case in.Status.Ended() || in.Paused:
		return &r.Done, nil
	}
	later, err := b.SagaHistory(ctx, in.Run, outcome.Rev, page)
	if slices.ContainsFunc(later, func(t store.SagaTransition) bool { return t.Input != "timer" }) {
		return &r.Done, err
	}
	return nil, err
}
