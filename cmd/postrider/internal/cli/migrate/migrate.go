// Package migrate has the command "postrider migrate", which creates and updates the tables.
package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/internal/migrate"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("migrate", "Create and update the outbox's tables, and the rights to them",
		`The tables of an outbox are made by numbered migrations. Any number of instances may run them at once; each migration is
one transaction. A binary refuses a schema that is older than itself, or so much newer that it is below the oldest program
that "postrider migrate status" shows; programs that only publish are refused below the oldest publisher. On PostgreSQL,
MySQL and MariaDB, a migration waits up to 3 s at a time for the locks of tables, and tries again for a minute. It names
the sessions that hold them after the first wait, and when it gives up.`,
		p.migrateUpCommand(), p.migrateDownCommand(), p.migrateStatusCommand(), p.migratePrintCommand(), p.grantsCommand())
}

func (p commands) migrateUpCommand() *cobra.Command {
	to := backend.Latest
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the schema to the newest version",
		Example: `  postrider migrate up --store sqlite:shop.db
  postrider migrate up --store 'postgres://owner@db/shop?schema=messaging&partitions=16'
  postrider migrate up --to 3`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("to") && to < 1 {
				return program.Usagef("--to must be 1 or more, is %d; to remove versions: %s", to, p.Hint("migrate down --to %d", max(to, 0)))
			}
			return p.withSchema(cmd, true, func(s *backend.Schema) error {
				return p.migrate(cmd.Context(), s, to, "is up to date")
			})
		},
	}
	cmd.Flags().IntVar(&to, "to", to, "only up to version `n`")
	cmd.Flags().Lookup("to").DefValue = "newest"
	return cmd
}

func (p commands) migrateDownCommand() *cobra.Command {
	var to int
	var yes bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take the schema back to an older version",
		Long: `Take the schema back to an older version. Version 0 removes every table of the outbox with all messages, cursors and
dead letters in it.`,
		Example: `  postrider migrate down --to 2
  postrider migrate down --to 0 --yes`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to < 0 {
				return program.Usagef("--to must be 0 or more, is %d", to)
			}
			return p.withSchema(cmd, false, func(s *backend.Schema) error {
				now, err := newest(cmd.Context(), s)
				if err != nil {
					return err
				}
				if to > now {
					return program.Usagef("the schema is at version %d, below %d; to go on: %s", now, to, p.Hint("migrate up"))
				}
				if now > 0 {
					question := fmt.Sprintf("Take %s from version %d back to %d? What the newer versions keep is lost.", s.Shown, now, to)
					if to == 0 {
						question = fmt.Sprintf("Remove the outbox in %s with all its messages and dead letters?", s.Shown)
					}
					if err := p.Confirm(yes, question); err != nil {
						return err
					}
				}
				return p.migrate(cmd.Context(), s, to, "is there already")
			})
		},
	}
	cmd.Flags().IntVar(&to, "to", 0, "version `n` to go back to; 0 removes everything (required)")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic("postrider: " + err.Error())
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// migrate applies migrations and prints them.
func (p commands) migrate(ctx context.Context, s *backend.Schema, to int, nothing string) error {
	done, err := s.Migrate(ctx, to)
	for _, step := range done {
		fmt.Fprintln(p.Stdout, step)
	}
	if err != nil {
		err = fmt.Errorf("migrate %s: %w", s.Shown, err)
		if errors.Is(err, migrate.ErrNoVersion) {
			return program.Exit(program.ExitUsage, err)
		}
		return err
	}
	if len(done) == 0 {
		fmt.Fprintf(p.Stdout, "%s %s\n", s.Shown, nothing)
	}
	return nil
}

// newest is the version of the schema.
func newest(ctx context.Context, s *backend.Schema) (int, error) {
	all, err := s.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the schema of %s: %w", s.Shown, err)
	}
	version := 0
	for _, m := range all {
		if m.Applied {
			version = max(version, m.Version)
		}
	}
	return version, nil
}

func (p commands) migrateStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations are applied; exit code 3 when not up to date",
		Example: `  postrider migrate status
  postrider migrate status --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withSchema(cmd, false, func(s *backend.Schema) error {
				all, err := s.Status(cmd.Context())
				if err != nil {
					return fmt.Errorf("read the schema of %s: %w", s.Shown, err)
				}
				if asJSON {
					if err := output.JSON(p.Stdout, all); err != nil {
						return err
					}
				} else if err := p.writeMigrations(all); err != nil {
					return err
				}
				return p.judgeMigrations(s, all)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func (p commands) writeMigrations(all []backend.Migration) error {
	t := output.NewTable(p.Stdout, "VERSION", "NAME", "STATE", "APPLIED AT", "OLDEST PROGRAM", "OLDEST PUBLISHER")
	for _, m := range all {
		state := "to do"
		switch {
		case m.Unknown:
			state = "unknown here" // applied by a newer binary
		case m.Applied:
			state = "applied"
		}
		t.Row(m.Version, m.Name, state, output.Minute(m.AppliedAt), m.Oldest, m.OldestPublisher)
	}
	return t.Flush()
}

// judgeMigrations returns an error when this binary and the schema do not match.
func (p commands) judgeMigrations(s *backend.Schema, all []backend.Migration) error {
	known := 0
	for _, m := range all {
		if !m.Unknown {
			known = max(known, m.Version)
		}
		if m.Unknown && m.Oldest > known {
			return program.Exit(program.ExitNo, fmt.Errorf("%s is newer than this binary; use a newer postrider", s.Shown))
		}
		if !m.Applied {
			return program.Exit(program.ExitNo, fmt.Errorf("%s is not up to date; run: %s", s.Shown, p.Hint("migrate up")))
		}
	}
	return nil
}

// withSchema runs f on the schema of the selected store; it creates a missing SQLite file only if create is set.
func (p commands) withSchema(cmd *cobra.Command, create bool, f func(*backend.Schema) error) error {
	c, logger, err := p.Load()
	if err != nil {
		return err
	}
	s, err := p.SelectStore(c)
	if err != nil {
		return err
	}
	schema, err := backend.OpenSchema(cmd.Context(), s, create, logger)
	if err != nil {
		return err
	}
	defer schema.Close()
	return f(schema)
}
