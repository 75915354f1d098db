// Package selection has the flags that select dead letters, and what decisions about them ask first.
package selection

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// Selection says which dead letters a command applies to.
type Selection struct {
	Filter           Filter
	all, Yes, DryRun bool
	AsJSON           bool // also what is counted
	By, Because      string
	Verb             string // "redrive"
}

// Change is an action on the dead letters that a filter selects, for the record.
func (s *Selection) Change(a admin.Action, f store.DeadFilter) admin.Change {
	c := admin.Change{Action: a, Reason: s.Because, Key: f.Key}
	if len(f.Numbers) == 1 {
		c.On, c.Path = fmt.Sprintf("dead letter %d", f.Numbers[0]), fmt.Sprintf("/dead/%d", f.Numbers[0])
		return c
	}
	f.MaxRedrives = 0
	filter, err := json.Marshal(f)
	if c.On = "dead letters that match " + string(filter); err != nil || s.all {
		c.On = "all open dead letters"
	}
	return c
}

// Long is the help of commands that decide about a selection.
const Long = `Choose dead letters by number, by filters (together they narrow the choice), or all with --all. Anything but single
numbers asks first; without a terminal, give --yes. Two operators who decide at the same time never decide twice about the
same dead letter.`

// Flags adds the flags to a command.
func (s *Selection) Flags(p *program.Program, cmd *cobra.Command) {
	s.Filter.Flags(p, cmd)
	flags := cmd.Flags()
	flags.BoolVar(&s.all, "all", false, "choose all open dead letters of all relays and consumers")
	flags.BoolVarP(&s.Yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&s.DryRun, "dry-run", false, "only say how many it would be")
	program.ByFlag(cmd, &s.By, p.Operator())
}

// Check validates the options before anything is opened.
func (s *Selection) Check(args []string) error {
	if err := s.Filter.Check(args); err != nil {
		return err
	}
	if err := s.Filter.given(); err != nil {
		return err
	}
	switch {
	case s.all && s.Filter.chosen(args):
		return program.Usagef("give --all, or numbers or filters, not both")
	case !s.all && !s.Filter.chosen(args):
		return program.Usagef("choose dead letters by number, by filters, or all with --all")
	}
	return nil
}

// Confirm counts the dead letters and asks for confirmation; 0 means that there is nothing to do.
func (s *Selection) Confirm(ctx context.Context, p *program.Program, b *backend.Outbox, f store.DeadFilter) (int64, error) {
	total, err := deadletter.New(b).CountDead(ctx, f)
	if err != nil {
		return 0, err
	}
	if total == 0 {
		if err := Mistyped(ctx, b, f); err != nil {
			return 0, err
		}
	}
	if total == 0 || s.DryRun {
		if s.AsJSON {
			return 0, output.JSON(p.Stdout, map[string]int64{"dead_letters": total})
		}
		fmt.Fprintf(p.Stdout, "%s match; nothing was done\n", output.Plural(total, "open dead letter"))
		return 0, nil
	}
	if len(f.Numbers) > 0 {
		return total, nil
	}
	return total, p.Confirm(s.Yes, fmt.Sprintf("%s %s?", output.Capital(s.Verb), output.Plural(total, "dead letter")))
}
