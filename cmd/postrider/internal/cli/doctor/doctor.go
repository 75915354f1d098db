// Package doctor has the command "postrider doctor", which says what is wrong and what fixes it.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/config"
	checks "github.com/postrider/postrider/doctor"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

// options are the flags.
type options struct {
	asJSON, strict, all bool
	timeout             time.Duration
}

func (p commands) command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "doctor [CHECK...]",
		Short: "Say what is wrong with the database, the relays and the destinations, and what fixes it",
		Long: `Check the schema, the database server, the relays and consumers of a store and, if the configuration has relays, their
destinations. Each finding says what is wrong, what happens if nobody does anything, and what fixes it. Nothing is changed.

A CHECK is a name such as db.clock, or an area such as db. What cannot be found out, for example for want of a right in the
database, is not passed: it could not check, and says why.

Exit codes: 0 no fault, 3 a fault (with --strict also a warning, or a check that could not be made), 1 a check failed or
took too long.`,
		Example: `  postrider doctor
  postrider doctor db schema --store postgres://ops@db/shop
  postrider doctor --config /etc/postrider.yaml --json
  postrider doctor --strict`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout <= 0 {
				return program.Usagef("--timeout must be positive, is %s", o.timeout)
			}
			return p.doctor(cmd, o, args)
		},
	}
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "write JSON")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "exit with 3 also after a warning, or a check that could not be made")
	cmd.Flags().BoolVar(&o.all, "all", false, "also list the checks that passed")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 20*time.Second, "end after this `duration`, of which a check may take a fifth")
	return cmd
}

func (p commands) doctor(cmd *cobra.Command, o options, names []string) error {
	c, logger, err := p.Load()
	if err != nil {
		return err
	}
	s, err := p.SelectStore(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	b, err := backend.Open(ctx, s, logger)
	if err != nil {
		report, otherwise := p.schema(ctx, s)
		if otherwise != nil {
			return p.unopened(c, s, names, o, err)
		}
		return p.write(report, o)
	}
	defer b.Close()
	all, err := chosen(append(checks.Checks(b), b.ConfiguredChecks(c, s)...), names)
	if err != nil {
		return err
	}
	return p.write(checks.Run(ctx, all, checks.Options{Total: o.timeout, Command: p.Complete}), o)
}

// chosen are the checks with the names, all without any.
func chosen(all []checks.Check, names []string) ([]checks.Check, error) {
	if len(names) == 0 {
		return all, nil
	}
	all, err := checks.Named(all, names)
	if err != nil {
		return nil, program.Usagef("%v", err)
	}
	return all, nil
}

// unopened reports that a store cannot be opened, for example since the server does not answer: the first check failed, and the others were
// not reached. It returns the error if the store's URL is wrong.
func (p commands) unopened(c *config.Config, s config.Store, names []string, o options, why error) error {
	if _, wrong := errors.AsType[*backend.URLError](why); wrong {
		return why
	}
	all, err := backend.ChecksOf(c, s)
	if err != nil {
		return err
	}
	if all, err = chosen(all, names); err != nil {
		return err
	}
	failed := false
	for i := range all {
		all[i].Silence = nil
		all[i].Run = func(context.Context) ([]checks.Finding, error) {
			if failed {
				return nil, errors.New("not reached: the store could not be opened")
			}
			failed = true
			return nil, errors.New(why.Error()) // its text also if time was up
		}
	}
	return p.write(checks.Run(context.Background(), all, checks.Options{}), o)
}

// schema reports on a store that cannot be opened because of its schema, or returns an error.
func (p commands) schema(ctx context.Context, s config.Store) (checks.Report, error) {
	schema, err := backend.OpenSchema(ctx, s, false, slog.New(slog.DiscardHandler))
	if err != nil {
		return checks.Report{}, err
	}
	defer schema.Close()
	all, err := schema.Status(ctx)
	if err != nil {
		return checks.Report{}, err
	}
	found := checks.SchemaVersion(schema.Shown, all)
	if len(found) == 0 {
		return checks.Report{}, errors.New("the schema is not why the store cannot be opened")
	}
	return checks.Run(ctx, []checks.Check{{
		Name: "schema.version", Title: "This program and the schema match",
		Run: func(context.Context) ([]checks.Finding, error) { return found, nil },
	}}, checks.Options{Command: p.Complete}), nil
}

// write writes the report, and returns the error that says how it went.
func (p commands) write(r checks.Report, o options) error {
	if o.asJSON {
		if err := output.JSON(p.Stdout, r); err != nil {
			return err
		}
	} else {
		p.text(r, o.all)
	}
	failed := r.Count(checks.Faulty) > 0 || o.strict && (r.Count(checks.Warned) > 0 || r.Count(checks.CouldNotCheck) > 0)
	switch {
	case failed:
		return program.Exit(program.ExitNo, nil)
	case r.Failed():
		return program.Exit(program.ExitFailed, nil)
	}
	return nil
}

// text writes findings worst first, then what could not be checked.
func (p commands) text(r checks.Report, all bool) {
	for _, f := range r.Findings() {
		p.entry(string(f.Level), f.Check, f.Message)
		p.line("impact", f.Impact)
		p.line("found by", f.Evidence)
		for _, fix := range f.Fix {
			p.fix(fix)
		}
		fmt.Fprintln(p.Stdout)
	}
	for _, result := range r.Results {
		if result.Outcome != checks.CouldNotCheck {
			continue
		}
		p.entry("could not check", result.Check, result.Reason)
		if result.Fix != nil {
			p.fix(*result.Fix)
		}
		fmt.Fprintln(p.Stdout)
	}
	for _, result := range r.Results {
		if all && result.Outcome == checks.Passed {
			p.entry("passed", result.Check, result.Title)
		}
	}
	fmt.Fprintln(p.Stdout, r.Summary())
}

func (p commands) entry(outcome, check, text string) {
	fmt.Fprintf(p.Stdout, "%-15s  %s\n", strings.ToUpper(outcome), check)
	fmt.Fprintf(p.Stdout, "  %s\n", output.Printable(text))
}

func (p commands) line(name, text string) {
	if text != "" {
		fmt.Fprintf(p.Stdout, "  %s: %s\n", name, output.Printable(text))
	}
}

func (p commands) fix(f checks.Fix) {
	fmt.Fprintf(p.Stdout, "  fix: %s\n", output.Printable(f.Text))
	for command := range strings.Lines(f.Command) {
		fmt.Fprintf(p.Stdout, "       %s\n", output.Printable(strings.TrimSpace(command)))
	}
}
