package saga

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// shown is everything about an instance.
type shown struct {
	i       store.SagaInstance
	aliases []store.SagaAlias
	labels  map[string]string
	history []store.SagaTransition
	missing bool // no running process has its definition
	// children are instances that its steps started, up to shownChildren, more says whether there are others.
	children []store.SagaSummary
	more     bool
}

// shownChildren is how many instances are shown that another one has started.
const shownChildren = 20

func (p commands) showCommand() *cobra.Command {
	var asJSON, data, mermaid bool
	var at int64
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show an instance of a saga with its history",
		Long: `Show an instance of a saga: what it waits for and since when, what is open, and its history. ID is the ID of the
instance, or its run. The data of the instance are shown only with --data, and with --at as they were at a revision of the
history. --mermaid draws the steps of its definition, with the status of each, as a Mermaid flowchart.`,
		Example: `  postrider saga show 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a
  postrider saga show order-4711 --json
  postrider saga show order-4711 --data | jq
  postrider saga show order-4711 --at 1
  postrider saga show order-4711 --mermaid`,
		Args: program.ExactArgs("the ID of an instance"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				if mermaid {
					text, err := saga.NewOperator(b).Mermaid(cmd.Context(), args[0])
					fmt.Fprint(p.Stdout, text)
					return err
				}
				if cmd.Flags().Changed("at") {
					text, err := saga.NewOperator(b).DataAt(cmd.Context(), args[0], at)
					fmt.Fprintf(p.Stdout, "%s", text)
					return err
				}
				s, err := read(cmd.Context(), b, args[0])
				switch {
				case err != nil:
					return err
				case data:
					_, err = p.Stdout.Write(s.i.Data)
					return err
				case asJSON:
					return output.JSON(p.Stdout, s.json())
				}
				return p.write(s)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.Flags().BoolVar(&data, "data", false, "write only the data, byte for byte")
	cmd.Flags().BoolVar(&mermaid, "mermaid", false, "draw the steps with their status")
	cmd.Flags().Int64Var(&at, "at", 0, "write only the data as they were at this `revision`, e.g. before an edit")
	cmd.MarkFlagsMutuallyExclusive("json", "data", "mermaid", "at")
	p.CompleteArgs(cmd, 1, program.Sagas)
	return cmd
}

func read(ctx context.Context, b *backend.Outbox, id string) (s shown, err error) {
	if s.i, err = b.ShowSaga(ctx, id); err != nil {
		return s, err
	}
	if s.aliases, s.labels, err = b.SagaNames(ctx, s.i.Run); err != nil {
		return s, err
	}
	if s.children, err = b.ListSagas(ctx, store.SagaFilter{ParentRun: s.i.Run}, "", shownChildren+1); err != nil {
		return s, err
	}
	s.more = len(s.children) > shownChildren
	s.children = s.children[:min(len(s.children), shownChildren)]
	live, err := liveDefinitions(ctx, b)
	if err != nil {
		return s, err
	}
	s.missing = s.i.EndedAt.IsZero() && !live[definitionOf(s.i.SagaIdentity)]
	for after := int64(0); ; {
		found, err := b.SagaHistory(ctx, s.i.Run, after, page)
		if err != nil {
			return s, err
		}
		s.history = append(s.history, found...)
		if len(found) < page {
			return s, nil
		}
		after = found[len(found)-1].Rev
	}
}

// json returns the JSON form, without the engine's state, the data and the secret token.
func (s shown) json() any {
	i := s.i
	deadline := func(d time.Duration) time.Time {
		if d == 0 {
			return time.Time{}
		}
		return i.StartedAt.Add(d)
	}
	return struct {
		summaryJSON
		Aliases []store.SagaAlias `json:"aliases,omitempty"`
		Labels  map[string]string `json:"labels,omitempty"`
		// Children are the oldest instances that its steps started.
		Children []store.SagaSummary    `json:"children,omitempty"`
		History  []store.SagaTransition `json:"history"`
	}{summaryJSON{store.SagaSummary{
		SagaIdentity: i.SagaIdentity, SagaCondition: i.SagaCondition, HoldsKey: i.HoldsKey, Rev: i.Rev, StartedAt: i.StartedAt,
		UpdatedAt: i.UpdatedAt, DeadlineAt: deadline(i.Deadline), TimerAt: deadline(i.SagaTimes.TimerAt), StuckAt: i.StuckAt, EndedAt: i.EndedAt,
	}, s.missing, output.Seconds(i.Age)}, s.aliases, s.labels, s.children, s.history}
}

// write writes an instance for people.
func (p commands) write(s shown) error {
	i := s.i
	fmt.Fprintf(p.Stdout, "instance %s of saga %s, version %d: %s\n", output.Printable(i.ID), output.Printable(i.Saga), i.Version, s.state())
	f := output.NewFields(p.Stdout)
	f.Add("waits for", i.Waiting)
	if s.missing {
		f.Add("definition", fmt.Sprintf("no running process has version %d, so the instance waits for one", i.Version))
	}
	f.Add("cause", i.Cause)
	first, rest, lines := strings.Cut(i.Detail, "\n")
	f.Add("detail", first)
	f.Add("started", output.Moment(i.StartedAt)+", "+output.Since(i.Age))
	f.Add("last transition", output.Since(i.Age-i.UpdatedAt.Sub(i.StartedAt)))
	f.Add("deadline", in(i.Deadline, i.Age))
	f.Add("timer", in(i.SagaTimes.TimerAt, i.Age))
	f.Add("obligations", s.obligations())
	if i.Key != "" {
		f.Add("key", i.Key+map[bool]string{true: ", held by this instance"}[i.HoldsKey])
	}
	if i.ParentRun != "" {
		f.Add("parent", i.ParentRun+", step "+i.ParentStep)
	}
	for _, c := range s.children {
		f.Add("step "+c.ParentStep, fmt.Sprintf("instance %s of saga %s: %s", c.ID, c.Saga, c.Status))
	}
	if s.more {
		f.Add("", "and others: postrider saga list --status any --parent "+i.Run)
	}
	f.Add("correlation ID", i.CorrelationID)
	f.Add("tenant", i.Tenant)
	for _, a := range s.aliases {
		f.Add("alias "+output.Printable(a.Name), a.Value)
	}
	for _, name := range slices.Sorted(maps.Keys(s.labels)) {
		f.Add("label "+output.Printable(name), s.labels[name])
	}
	f.Add("engine", i.Engine)
	f.Add("run", i.Run)
	f.Flush()
	if lines {
		fmt.Fprintf(p.Stdout, "\n%s\n", output.PrintableLines(rest))
	}
	fmt.Fprintln(p.Stdout)
	t := output.NewTable(p.Stdout, "REV", "AT", "INPUT", "WHAT HAPPENED")
	for _, tr := range s.history {
		t.Row(tr.Rev, output.Moment(tr.At), strings.TrimSpace(tr.Input+" "+tr.Step), happened(tr))
	}
	return t.Flush()
}

// state is the status with what stands next to it.
func (s shown) state() string {
	text := string(s.i.Status)
	if s.i.Status == store.SagaStuck && s.i.Direction == store.SagaBack {
		text += " while compensating"
	}
	if s.i.PastPivot {
		text += ", past its pivot"
	}
	if s.i.Paused {
		text += ", paused"
	}
	return text
}

// obligations are open ones, and those that an operator released. What a completed instance has done is to stay.
func (s shown) obligations() string {
	var parts []string
	if s.i.Status != store.SagaCompleted {
		parts = append(parts, fmt.Sprint(s.i.Obligations, " open"))
	}
	if s.i.Released > 0 {
		parts = append(parts, fmt.Sprint(s.i.Released, " released by an operator"))
	}
	return strings.Join(parts, ", ")
}

// happened describes a transition in one line, without what its input says.
func happened(t store.SagaTransition) string {
	var parts []string
	for _, e := range t.Entries {
		if e == (store.SagaEntry{Name: t.Input}) {
			continue
		}
		text := strings.TrimSpace(e.Name + " " + e.Step)
		if e.Text != "" {
			text += " (" + e.Text + ")"
		}
		parts = append(parts, text)
	}
	if t.Actor != "" {
		parts = append(parts, "by "+t.Actor)
	}
	if t.Note != "" {
		parts = append(parts, t.Note)
	}
	return strings.Join(parts, ", ")
}
