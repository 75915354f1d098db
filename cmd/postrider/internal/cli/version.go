package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func versionCommand(p *program.Program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show version, revision and date of this binary",
		Example: `  postrider version
  postrider version --json | jq -r .revision`,
		Args: program.ExactArgs(),
		RunE: func(*cobra.Command, []string) error {
			b := program.ReadBuild()
			if asJSON {
				return output.JSON(p.Stdout, b)
			}
			source := ""
			if b.Revision != "" { // not in a binary that was installed as a module
				source = fmt.Sprintf("revision %s of %s, ", output.Shorten(b.Revision, 13), cmp.Or(b.Built, "an unknown date"))
			}
			_, err := fmt.Fprintf(p.Stdout, "postrider %s (%s%s, %s)\n", b.Version, source, b.Go, b.Platform)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}
