package migrate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/internal/migrate"
)

// printing is what to print.
type printing struct {
	version int // 0: all
	down    bool
	tool    migrate.Tool // "": SQL for the database's own client
	dir     string       // "": standard output
}

func (p commands) migratePrintCommand() *cobra.Command {
	var what printing
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL of migrations, or write the files of another migration tool",
		Long: `Print the SQL of all migrations or of one, for those who apply it by other means. The SQL records the version, so that
"postrider migrate status" and the stores know it.

With --tool, it has the format of a tool that runs the migrations of the whole service: goose, golang-migrate, Flyway,
Atlas or Liquibase. With --dir, each migration becomes a file with the name that the tool expects. Keep these files in a
directory of their own, and let the tool keep their versions in a table of their own: their numbers begin with 1.`,
		Example: `  postrider migrate print --store postgres://any | psql shop
  postrider migrate print --store 'postgres://any?schema=messaging' --version 17
  postrider migrate print --store postgres://any --tool goose --dir migrations/postrider
  postrider migrate print --store postgres://any --tool flyway --version 17 --down`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := p.Load()
			if err != nil {
				return err
			}
			s, err := p.SelectStore(c)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("version") && what.version < 1 {
				return program.Usagef("--version must be 1 or more, is %d", what.version)
			}
			return p.print(s, what)
		},
	}
	cmd.Flags().IntVar(&what.version, "version", 0, "only migration `n`")
	cmd.Flags().BoolVar(&what.down, "down", false, "the SQL that takes the migration back")
	cmd.Flags().Var(program.Choice(&what.tool), "tool", "the `tool` that runs it: goose, golang-migrate, flyway, atlas or liquibase")
	program.CompleteChoices(cmd, "tool", what.tool.Allowed())
	cmd.Flags().StringVar(&what.dir, "dir", "", "write the files of the tool into this `directory`, and print their names")
	return cmd
}

func (p commands) print(s config.Store, what printing) error {
	switch {
	case what.dir != "" && what.tool == "":
		return program.Usagef("--dir writes the files of a tool: say which with --tool")
	case what.down && what.version == 0 && what.dir == "":
		return program.Usagef("--down takes one migration back: say which with --version")
	case what.tool != "" && what.version == 0 && what.dir == "":
		return program.Usagef("a tool has a file for each migration: write them with --dir, or print one with --version")
	case what.down && what.dir != "" && what.tool == migrate.Atlas:
		return program.Usagef("Atlas runs every file of a directory, and has none that take a migration back: leave out --down or --dir")
	case what.version == 0 && what.tool == "":
		text, err := backend.PrintMigrations(s)
		if err != nil {
			return err
		}
		_, err = io.WriteString(p.Stdout, text)
		return err
	}
	all, err := backend.MigrationScripts(s)
	if err != nil {
		return err
	}
	if what.version > 0 {
		one, err := migrate.ScriptOf(what.version, all)
		if err != nil {
			return program.Usagef("%v", err)
		}
		all = []backend.MigrationScript{one}
	}
	if what.dir != "" {
		return p.writeFiles(all, what)
	}
	text := all[0].SQL(what.down)
	if what.tool != "" {
		text = all[0].File(what.tool, what.down).Text
	}
	_, err = io.WriteString(p.Stdout, text)
	return err
}

// writeFiles writes up and down, or only down.
func (p commands) writeFiles(all []backend.MigrationScript, what printing) error {
	if err := os.MkdirAll(what.dir, 0o755); err != nil { //nolint:gosec // scripts, which others may read
		return fmt.Errorf("make the directory for the migrations: %w", err)
	}
	for _, s := range all {
		files := []migrate.File{s.File(what.tool, what.down)}
		if !what.down && what.tool == migrate.GolangMigrate {
			files = append(files, s.File(what.tool, true))
		}
		for _, f := range files {
			path := filepath.Join(what.dir, f.Name)
			if err := writeNew(path, f.Text); err != nil {
				return fmt.Errorf("write a migration: %w", err)
			}
			fmt.Fprintln(p.Stdout, path)
		}
	}
	if what.tool == migrate.Atlas {
		return p.writeAtlasSum(what.dir)
	}
	return nil
}

// writeAtlasSum writes the checksums of a directory, without which Atlas runs nothing.
func (p commands) writeAtlasSum(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.sql")) // sorted
	if err != nil {
		return err
	}
	var files []migrate.File
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read a migration: %w", err)
		}
		files = append(files, migrate.File{Name: filepath.Base(name), Text: string(text)})
	}
	path := filepath.Join(dir, migrate.AtlasSumFile)
	if err := os.WriteFile(path, []byte(migrate.AtlasSum(files)), 0o644); err != nil { //nolint:gosec // as above
		return fmt.Errorf("write the checksums: %w", err)
	}
	fmt.Fprintln(p.Stdout, path)
	return nil
}

// writeNew writes a file, and leaves one that exists as it is: a tool refuses a migration that was changed after it ran.
func writeNew(path, text string) error {
	if before, err := os.ReadFile(path); err == nil {
		if string(before) == text {
			return nil
		}
		return fmt.Errorf("%s exists and has another content; remove it if it was never applied", path)
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a script, which others may read
}
