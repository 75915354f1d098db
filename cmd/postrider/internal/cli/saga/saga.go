// Package saga has the command "postrider saga", which lists and shows instances of sagas, and decides about them.
package saga

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	all := []*cobra.Command{p.listCommand(), p.showCommand(), p.questionsCommand(), p.diffCommand(), p.signalCommand(), p.bulkCommand()}
	for _, v := range verbs {
		all = append(all, p.verbCommand(v))
	}
	return program.Group("saga", "List and show instances of sagas, and decide about them",
		`An instance of a saga is one operation that spans services. It ends completed or compensated, or an operator decides.
A stuck instance has used up its attempts and waits for an operator: show says why, and each decision says with --dry-run
what it would do. Decisions are recorded in the history of the instance, with who made them and why.`, all...)
}

// status is the value of --status.
type status string

// Allowed lists the values.
func (status) Allowed() []string {
	out := []string{"open", "any"}
	for _, s := range store.SagaStatuses {
		out = append(out, string(s))
	}
	return out
}

// statuses are those that a value of --status selects; none means all.
func (s status) statuses() []store.SagaStatus {
	switch s {
	case "open":
		return store.OpenSagaStatuses
	case "any":
		return nil
	}
	return []store.SagaStatus{store.SagaStatus(s)}
}

func (p commands) listCommand() *cobra.Command {
	var f store.SagaFilter
	var after string
	var limit int
	var asJSON bool
	selected := status("open")
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List instances of sagas, oldest first",
		Example: `  postrider saga list
  postrider saga list --saga order-fulfilment --status stuck
  postrider saga list --waiting-for card --older-than 1h
  postrider saga list --label customer=42 --status any --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return program.Usagef("--limit must not be negative, is %d", limit)
			}
			if f.OlderThan < 0 {
				return program.Usagef("--older-than must not be negative, is %s", f.OlderThan)
			}
			f.Status = selected.statuses()
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				if err := checkRun(cmd.Context(), b, after); err != nil {
					return err
				}
				return p.list(cmd.Context(), b, f, after, limit, asJSON)
			})
		},
	}
	p.filterFlags(cmd, &f, &selected)
	flags := cmd.Flags()
	flags.StringVar(&after, "after", "", "continue after this `run`")
	flags.IntVar(&limit, "limit", 100, "list at most `n`, 0 for all")
	flags.BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

// filterFlags adds the flags that select instances.
func (p commands) filterFlags(cmd *cobra.Command, f *store.SagaFilter, selected *status) {
	flags := cmd.Flags()
	flags.StringVar(&f.Saga, "saga", "", "only instances of this saga, by its `name`")
	p.CompleteFlag(cmd, "saga", program.SagaNames)
	flags.Var(program.Choice(selected), "status", "only in this `status`: open (running, compensating or stuck), any, or one status")
	program.CompleteChoices(cmd, "status", selected.Allowed())
	flags.IntVar(&f.Version, "version", 0, "only of this version `n` of the definition")
	flags.StringVar(&f.Key, "key", "", "only with this `key`")
	flags.StringVar(&f.ParentRun, "parent", "", "only those that a step of the instance with this `run` started")
	flags.StringVar(&f.Tenant, "tenant", "", "only of this `tenant`")
	flags.StringVar(&f.CorrelationID, "correlation-id", "", "only with this correlation `ID`")
	flags.StringVar(&f.Cause, "cause", "", "only with this `cause`, such as \"timed out\"")
	flags.StringVar(&f.WaitingFor, "waiting-for", "", "only those that wait for something that contains this `text`")
	flags.StringToStringVar(&f.Labels, "label", nil, "only with this label, as `name=value`; can be repeated")
	flags.Lookup("label").DefValue = ""
	flags.BoolVar(&f.Overdue, "overdue", false, "only those that have passed their deadline")
	flags.BoolVar(&f.Paused, "paused", false, "only those that are paused")
	flags.DurationVar(&f.OlderThan, "older-than", 0, "only those that started at least this `time` ago")
}

// page is how many instances are read at a time.
const page = 500

// aRun is what the engine makes.
var aRun = regexp.MustCompile("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

// checkRun refuses what cannot be the run after which a list continues. One that looks like a run may have been purged since.
func checkRun(ctx context.Context, b *backend.Outbox, run string) error {
	if run == "" || aRun.MatchString(run) {
		return nil
	}
	i, err := b.ShowSaga(ctx, run)
	if errors.Is(err, store.ErrNoSaga) || err == nil && i.Run != run {
		return program.Usagef("--after %q: there is no such run", run)
	}
	return err
}

// list writes the instances that a filter selects, page by page.
func (p commands) list(ctx context.Context, b *backend.Outbox, f store.SagaFilter, after string, limit int, asJSON bool) error {
	t := output.NewTableUnless(asJSON, p.Stdout, "ID", "SAGA", "STATUS", "STARTED", "WAITS FOR")
	live, err := liveDefinitions(ctx, b)
	if err != nil {
		return err
	}
	missing := make(map[string]int) // instances by saga and version
	n, more := 0, false
	for !more {
		size := page
		if limit > 0 {
			size = min(page, limit-n+1) // one more, to know whether there are more
		}
		found, err := b.ListSagas(ctx, f, after, size)
		if err != nil {
			return err
		}
		for _, s := range found {
			if more = limit > 0 && n == limit; more {
				break
			}
			n, after = n+1, s.Run
			lacks := s.EndedAt.IsZero() && !live[definitionOf(s.SagaIdentity)]
			if lacks {
				missing[fmt.Sprintf("%s version %d", output.Printable(s.Saga), s.Version)]++
			}
			if asJSON {
				err = output.Line(p.Stdout, summaryJSON{s, lacks, output.Seconds(s.Age)})
			} else {
				t.Row(s.ID, s.Saga, s.Status, output.Since(s.Age), waitsFor(s))
			}
			if err != nil {
				return err
			}
		}
		if len(found) < size {
			break
		}
	}
	if t != nil && n > 0 {
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(p.Stderr, "postrider: no running process has %s, so %s for one\n", name,
			map[bool]string{true: "1 instance waits", false: fmt.Sprint(missing[name], " instances wait")}[missing[name] == 1])
	}
	switch {
	case more:
		fmt.Fprintf(p.Stderr, "postrider: there are more; go on with --after %s, or --limit 0 for all\n", output.ShellQuote(after))
	case n == 0:
		if err := knownSaga(ctx, b, f.Saga); err != nil {
			return err
		}
		fmt.Fprintln(p.Stderr, "postrider: no instances of sagas match")
	}
	return nil
}

// knownSaga returns an error if no process and no instance has a saga with a name; "" is none.
func knownSaga(ctx context.Context, b *backend.Outbox, name string) error {
	if name == "" {
		return nil
	}
	some, err := b.ListSagas(ctx, store.SagaFilter{Saga: name}, "", 1)
	if err != nil || len(some) > 0 {
		return err
	}
	all, err := b.SagaDefinitions(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, d := range all {
		known[output.Printable(d.Saga)] = true
		if d.Saga == name {
			return nil
		}
	}
	if len(known) == 0 { // no engine has run lately
		if some, err = b.ListSagas(ctx, store.SagaFilter{}, "", 1); err != nil || len(some) == 0 {
			return err
		}
		return fmt.Errorf("no saga has the name %s", output.Printable(name))
	}
	return fmt.Errorf("no saga has the name %s; there are: %s", output.Printable(name), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
}

// summaryJSON is the JSON form of an instance in a list.
type summaryJSON struct {
	store.SagaSummary
	// DefinitionMissing: no running process has the definition.
	DefinitionMissing bool           `json:"definition_missing,omitempty"`
	AgeSeconds        output.Seconds `json:"age_seconds"`
}

// definition identifies a definition of an engine.
type definition struct {
	engine, saga, hash string
	version            int
}

func definitionOf(i store.SagaIdentity) definition {
	return definition{i.Engine, i.Saga, i.Hash, i.Version}
}

// liveDefinitions are those that a running process has.
func liveDefinitions(ctx context.Context, b *backend.Outbox) (map[definition]bool, error) {
	all, err := b.SagaDefinitions(ctx)
	live := make(map[definition]bool)
	for _, d := range all {
		for _, p := range d.Processes {
			live[definition{p.Engine, d.Saga, d.Hash, d.Version}] = true
		}
	}
	return live, err
}

// waitsFor is what an instance waits for; how it ended, or why it is stuck, if it waits for nothing.
func waitsFor(s store.SagaSummary) string {
	text := cmp.Or(s.Waiting, s.Cause)
	if !s.EndedAt.IsZero() {
		text = strings.TrimSuffix("ended: "+s.Cause, ": ")
	}
	if s.Paused {
		text = strings.TrimSuffix("paused; "+text, "; ")
	}
	return text
}

// in returns when something is due that is a duration after the start of an instance, as seen when it was read; "" for 0.
func in(after, age time.Duration) string {
	switch left := after - age; {
	case after == 0:
		return ""
	case left < 0:
		return output.Since(-left)
	default:
		return "in " + output.Ago(left)
	}
}
