// Package starter has the command "postrider init", which writes the first files of a service.
package starter

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

//go:embed shop/main.go shop/compose.yaml shop/AGENTS.md
var shop embed.FS

// files are those of the embedded folder.
var files = []string{"main.go", "compose.yaml", "AGENTS.md"}

// Command returns the command.
func Command(p *program.Program) *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Write a service to begin with: main.go, compose.yaml and AGENTS.md",
		Long: `Write a service that takes orders and publishes them: main.go with its outbox in PostgreSQL and a relay to NATS JetStream,
compose.yaml with both servers, and AGENTS.md with rules for those who change the code, coding agents among them.

A file that exists stops the command before anything is written. In your own repository, --only AGENTS.md writes the rules.`,
		Example: `  postrider init shop
  postrider init . --only AGENTS.md`,
		Args: program.ExactArgs("a folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			names := files
			if only != "" {
				if !slices.Contains(files, only) {
					return program.Usagef("--only must be %s, is %s", strings.Join(files, ", "), only)
				}
				names = []string{only}
			}
			if err := write(args[0], names); err != nil {
				return err
			}
			fmt.Fprintf(p.Stdout, "wrote %s to %s\n", strings.Join(names, ", "), args[0])
			if only == "" {
				fmt.Fprintf(p.Stdout, next, args[0])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&only, "only", "", "write only this `file`")
	return cmd
}

// next says how to go on in a folder.
const next = `
  cd %s
  go mod init example.com/shop && go mod tidy
  docker compose up --detach
  go run .
  curl -d item=tea http://127.0.0.1:8080/orders
`

// write writes files to a folder, none of which may exist.
func write(dir string, names []string) error {
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s exists; nothing was written", filepath.Join(dir, name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // of sources, which others may read
		return err
	}
	for _, name := range names {
		text, err := shop.ReadFile(path.Join("shop", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil { //nolint:gosec // sources, which others may read
			return err
		}
	}
	return nil
}
