package dead

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

func (p commands) deadExportCommand() *cobra.Command {
	var f selection.Filter
	var file string
	state := deadState("open")
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write dead letters with all that belongs to them, one JSON object per line",
		Long: `Write dead letters, oldest first, with all that belongs to them (message, history, edits), one JSON object per line, for
postrider dead import in this or another outbox, or to keep.`,
		Example: `  postrider dead export > dead.ndjson
  postrider dead export --relay to-nats --state any --output dead.ndjson`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.Check(nil); err != nil {
				return err
			}
			f.State = store.DeadState(state)
			return p.WithStore(cmd, func(b *backend.Outbox) (err error) {
				filter, err := f.Resolve(cmd.Context(), b)
				if err != nil {
					return err
				}
				if n, err := deadletter.New(b).CountDead(cmd.Context(), filter); err != nil {
					return err
				} else if n == 0 {
					if err := selection.Mistyped(cmd.Context(), b, filter); err != nil {
						return err
					}
				}
				out := p.Stdout
				if file != "" {
					created, openErr := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
					if openErr != nil {
						return fmt.Errorf("write the export: %w", openErr)
					}
					defer func() { err = errors.Join(err, created.Close()) }()
					out = created
				}
				n, err := deadletter.New(b).Export(cmd.Context(), out, filter)
				if err != nil {
					return fmt.Errorf("%w; %s were written", err, output.Plural(n, "dead letter"))
				}
				fmt.Fprintf(p.Stderr, "postrider: exported %s\n", output.Plural(n, "dead letter"))
				return nil
			})
		},
	}
	f.Flags(p.Program, cmd)
	cmd.Flags().Var(program.Choice(&state), "state", "only in this `state`: open, redriven, discarded or any")
	program.CompleteChoices(cmd, "state", state.Allowed())
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to this `file`, which must not exist (default standard output)")
	return cmd
}

func (p commands) deadImportCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Add exported dead letters that are not there yet",
		Long: `Read what postrider dead export wrote (- for standard input) and add the dead letters that the outbox does not have: one
with the same relay or consumer, message ID and time stays as it is. So an import can be repeated, also after an error.
It sends nothing back.`,
		Example: `  postrider dead import dead.ndjson --store postgres://…
  postrider dead export --store sqlite:old.db | postrider dead import - --store sqlite:new.db`,
		Args: program.ExactArgs("a FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name := p.Stdin, "standard input"
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return program.Usagef("%v", err)
				}
				defer file.Close()
				in, name = file, "file "+args[0]
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.importDead(cmd, b, in, name, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write what was done as JSON")
	return cmd
}

func (p commands) importDead(cmd *cobra.Command, b *backend.Outbox, in io.Reader, name string, asJSON bool) error {
	bar, seen := p.Progress(-1, "import"), int64(0)
	defer bar.End()
	var done deadletter.Imported
	c := admin.Change{Action: "ImportDead", On: "dead letters of " + name}
	err := p.Act(cmd.Context(), b, "", c, func(db held.Database) (err error) {
		done, err = deadletter.New(db).Import(cmd.Context(), in, func(done deadletter.Imported) {
			bar.Add(int(done.DeadLetters - seen))
			seen = done.DeadLetters
		})
		return err
	})
	bar.End()
	if err != nil {
		return fmt.Errorf("%w; %s were new and are imported: fix the line and run it again", err, output.Plural(done.New, "dead letter"))
	}
	if asJSON {
		return output.JSON(p.Stdout, done)
	}
	fmt.Fprintf(p.Stdout, "imported %s; %s of the file were there already\n", output.Plural(done.New, "dead letter"), output.Number(done.DeadLetters-done.New))
	return nil
}
