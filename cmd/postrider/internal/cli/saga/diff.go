package saga

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/saga"
)

func (p commands) diffCommand() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff --new FILE",
		Short: "Say which running instances a new build would stop",
		Long: `Say what becomes of the instances that have not ended when a build is deployed. FILE has the graphs of all its
definitions, as Definition.Graph returns them, one JSON value after another.

  same                          the build has the definition of the instance.
  policy                        the same, with other timeouts, attempts, roles or topics, which apply from then on.
  pinned                        the build also has a newer version; the instance continues with its own.
  would stop                    the build does not have the definition: the instance waits for a process that does.
  unsafe: compensation missing  the same, and the newest version lacks the undo of something that the instance has done.

Exit code 3 means that instances would stop.`,
		Example: `  postrider saga diff --new sagas.json`,
		Args:    program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			graphs, err := os.ReadFile(file)
			if err != nil {
				return program.Usagef("--new: %v", err)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				found, err := saga.NewOperator(b).Diff(cmd.Context(), graphs)
				if err != nil {
					return err
				}
				return p.writeDiff(found, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&file, "new", "", "`file` with the graphs of the new build (required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	if err := cmd.MarkFlagRequired("new"); err != nil {
		panic("postrider: " + err.Error())
	}
	return cmd
}

// writeDiff writes what becomes of instances.
func (p commands) writeDiff(found []saga.Difference, asJSON bool) error {
	t := output.NewTableUnless(asJSON, p.Stdout, "SAGA", "VERSION", "CLASS", "COUNT", "OLDEST", "EXAMPLES")
	breaks := 0
	for _, d := range found {
		if d.Breaks() {
			breaks += d.Count
		}
		if asJSON {
			line := struct {
				saga.Difference
				OldestSeconds output.Seconds `json:"oldest_seconds"`
			}{d, output.Seconds(d.Oldest)}
			if err := output.Line(p.Stdout, line); err != nil {
				return err
			}
			continue
		}
		t.Row(d.Saga, d.Version, d.Class, d.Count, output.Since(d.Oldest), strings.Join(d.Examples, " "))
	}
	if t != nil && len(found) > 0 {
		if err := t.Flush(); err != nil {
			return err
		}
		for _, d := range found {
			if d.Why != "" {
				fmt.Fprintf(p.Stdout, "\n%s version %d, %s: %s\n", output.Printable(d.Saga), d.Version, d.Class, output.Printable(d.Why))
			}
		}
	}
	switch {
	case len(found) == 0:
		fmt.Fprintln(p.Stderr, "postrider: no instance of a saga is running")
	case breaks > 0:
		return program.Exit(program.ExitNo, fmt.Errorf("%s would not continue with this build", output.Plural(int64(breaks), "instance")))
	}
	return nil
}
