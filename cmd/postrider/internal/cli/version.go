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
			_, err := fmt.Fprintf(p.Stdout, "postrider %s (revision %s of %s, %s, %s)\n", b.Version,
				cmp.Or(output.Shorten(b.Revision, 13), "unknown"), cmp.Or(b.Built, "unknown date"), b.Go, b.Platform)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}
