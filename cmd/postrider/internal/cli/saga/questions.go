package saga

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/saga"
)

func (p commands) questionsCommand() *cobra.Command {
	var name, after string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "questions",
		Short: "List the questions that instances ask and nobody has answered",
		Long: `List the questions of steps that wait for a person, by the start of their instances: the step to answer, what it asks, its
options, the roles that may answer in the administration, since when it waits, and when its time is up. The text of a
question comes from the data of its instance. "postrider saga answer" answers.`,
		Example: `  postrider saga questions
  postrider saga questions --saga order-fulfilment --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return program.Usagef("--limit must not be negative, is %d", limit)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				if err := checkRun(cmd.Context(), b, after); err != nil {
					return err
				}
				return p.questions(cmd.Context(), b, name, after, limit, asJSON)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "saga", "", "only of this saga, by its `name`")
	p.CompleteFlag(cmd, "saga", program.SagaNames)
	flags.StringVar(&after, "after", "", "continue after this `run`")
	flags.IntVar(&limit, "limit", 100, "of at most `n` instances, 0 for all")
	flags.BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

// questions writes the questions of up to limit instances, page by page.
func (p commands) questions(ctx context.Context, b *backend.Outbox, name, after string, limit int, asJSON bool) error {
	t := output.NewTableUnless(asJSON, p.Stdout, "ID", "STEP", "QUESTION", "OPTIONS", "ROLES", "SINCE", "UNTIL")
	o, n := saga.NewOperator(b), 0
	for left := limit; ; left -= page {
		size := page
		if limit > 0 {
			size = min(page, left)
		}
		list, next, err := o.Questions(ctx, name, after, size)
		if err != nil {
			return err
		}
		for _, q := range list {
			if n++; asJSON {
				err = output.Line(p.Stdout, q)
			} else {
				t.Row(q.ID, q.Step, q.Text, strings.Join(q.Options, ", "), strings.Join(q.Roles, ", "), output.Minute(q.Since), until(q))
			}
			if err != nil {
				return err
			}
		}
		if after = next; next == "" || limit > 0 && left <= page {
			break
		}
	}
	if t != nil && n > 0 {
		if err := t.Flush(); err != nil {
			return err
		}
	}
	switch {
	case after != "":
		fmt.Fprintf(p.Stderr, "postrider: there may be more; go on with --after %s, or --limit 0 for all\n", output.ShellQuote(after))
	case n == 0:
		if err := knownSaga(ctx, b, name); err != nil {
			return err
		}
		fmt.Fprintln(p.Stderr, "postrider: no instance asks anything")
	}
	return nil
}

// until says when the time of a question is up.
func until(q saga.Question) string {
	switch {
	case q.Deadline.IsZero():
		return ""
	case q.Paused:
		return "paused"
	}
	return output.Minute(q.Deadline)
}
