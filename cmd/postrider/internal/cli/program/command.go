package program

import (
	"strings"

	"github.com/spf13/cobra"
)

// Group returns a command that only contains subcommands.
func Group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short, Long: long,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Usagef("%s needs a subcommand: %s", cmd.CommandPath(), names(cmd))
			}
			return Usagef("%s has no subcommand %q; it has %s", cmd.CommandPath(), args[0], names(cmd))
		},
		Args: cobra.ArbitraryArgs,
	}
	g.AddCommand(commands...)
	return g
}

func names(cmd *cobra.Command) string {
	var out []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			out = append(out, c.Name())
		}
	}
	return strings.Join(out, ", ")
}
