package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/migrate"
	"github.com/postrider/postrider/internal/stored"
)

// Latest as a target of Migrate is the newest version of the schema.
const Latest = migrate.Latest

// The reasons why a store refuses a schema; the error says which command helps.
var (
	ErrSchemaMissing = migrate.ErrMissing
	ErrSchemaOlder   = migrate.ErrOlder
	ErrSchemaNewer   = migrate.ErrNewer
)

// Migration is one migration and its state in a database.
type Migration = migrate.Status

//go:embed migrations/*.sql
var migrationFiles embed.FS

func (c Config) migrations() (*migrate.Set, error) {
	dir, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return migrate.Load(dir, map[string]string{
		"prefix":     c.Prefix,
		"partitions": strconv.Itoa(cmp.Or(c.Partitions, DefaultPartitions)),
	})
}

const (
	createVersionsSQL = `CREATE TABLE IF NOT EXISTS {prefix}migrations (
		version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT`
	versionsExistSQL = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`
	versionsSQL      = `SELECT version, applied_at FROM {prefix}migrations`
	recordUpSQL      = `INSERT INTO {prefix}migrations (version, name, applied_at) VALUES (?, ?, ?)`
	recordDownSQL    = `DELETE FROM {prefix}migrations WHERE version = ?`
	dropVersionsSQL  = `DROP TABLE {prefix}migrations`
)

// Migrate brings the schema to a version and returns what it did, e.g. "up 0001_outbox". The target is Latest or an earlier
// version; 0 removes everything, including messages. Any number of processes may call it at once; each migration is one
// transaction. Errors: ErrSchemaNewer, ErrUnsuitable, and those of the file.
func Migrate(ctx context.Context, db *sql.DB, cfg Config, to int) ([]string, error) {
	s, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	set, err := s.cfg.migrations()
	if err != nil {
		return nil, err
	}
	var done []string
	for {
		step, err := s.migrateStep(ctx, set, to)
		if err != nil || step == "" {
			return done, err
		}
		done = append(done, step)
	}
}

// migrateStep applies the next migration towards a version and returns its name, "" if none is left.
func (s *Store) migrateStep(ctx context.Context, set *migrate.Set, to int) (name string, err error) {
	err = s.transact(ctx, "migrate", durable, func(t txn) error {
		name = ""
		if _, err := t.exec(ctx, createVersionsSQL); err != nil {
			return err
		}
		applied, err := t.versions(ctx)
		if err != nil {
			return err
		}
		steps, err := set.Plan(version(applied), to)
		if err != nil {
			return err
		}
		if len(steps) == 0 {
			if to == 0 {
				_, err = t.exec(ctx, dropVersionsSQL)
			}
			return err
		}
		step := steps[0]
		if _, err := t.tx.ExecContext(ctx, step.SQL); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		if step.Down {
			_, err = t.exec(ctx, recordDownSQL, step.Version)
		} else {
			_, err = t.exec(ctx, recordUpSQL, step.Version, step.Name, t.now)
		}
		name = step.String()
		return err
	})
	return name, err
}

// MigrationStatus lists the migrations that this program knows and those that the database has.
func MigrationStatus(ctx context.Context, db *sql.DB, cfg Config) ([]Migration, error) {
	s, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	set, err := s.cfg.migrations()
	if err != nil {
		return nil, err
	}
	applied, err := s.versions(ctx)
	if err != nil {
		return nil, err
	}
	return set.Status(migrate.Records(applied)), nil
}

// PrintMigrations returns the SQL of every up migration, in order, so that it can be applied by other means. It includes the
// record of the versions, without which New refuses the schema.
func PrintMigrations(cfg Config) (string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	set, err := cfg.migrations()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	expand := func(text string) string { return strings.ReplaceAll(text, "{prefix}", cfg.Prefix) }
	fmt.Fprintf(&b, "BEGIN IMMEDIATE;\n\n%s;\n", expand(createVersionsSQL))
	for _, m := range set.All() {
		fmt.Fprintf(&b, "\n-- %04d_%s\n\n%s\n", m.Version, m.Name, strings.TrimSpace(m.Up))
		fmt.Fprintf(&b, "\nINSERT INTO %smigrations (version, name, applied_at)\nVALUES (%d, '%s', unixepoch() * 1000000);\n",
			cfg.Prefix, m.Version, m.Name)
	}
	b.WriteString("\nCOMMIT;\n")
	return b.String(), nil
}

// MigrationScript is a migration as other tools run it.
type MigrationScript = migrate.Script

// MigrationScripts returns all migrations, in order, with the records that Migrate makes, for tools that run the migrations of the
// whole service.
func MigrationScripts(cfg Config) ([]MigrationScript, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	set, err := cfg.migrations()
	if err != nil {
		return nil, err
	}
	expand := func(text string) string { return strings.ReplaceAll(text, "{prefix}", cfg.Prefix) }
	var out []MigrationScript
	for _, m := range set.All() {
		s := MigrationScript{Version: m.Version, Name: m.Name, Begin: "BEGIN IMMEDIATE", End: "COMMIT"}
		before, after := "", ""
		if m.Version == 1 {
			before, after = expand(createVersionsSQL)+";\n\n", ";\n\n"+expand(dropVersionsSQL)
		}
		s.Up = []string{before + strings.TrimSpace(m.Up) + "\n\n" + fmt.Sprintf("INSERT INTO %smigrations (version, name, applied_at)\nVALUES (%d, '%s', unixepoch() * 1000000)",
			cfg.Prefix, m.Version, m.Name)}
		s.Down = []string{strings.TrimSpace(m.Down) + "\n\n" + fmt.Sprintf("DELETE FROM %smigrations WHERE version = %d", cfg.Prefix, m.Version) + after}
		out = append(out, s)
	}
	return out, nil
}

// checkSchema refuses a schema that this program cannot work with.
func (s *Store) checkSchema(ctx context.Context) error {
	set, err := s.cfg.migrations()
	if err != nil {
		return err
	}
	applied, err := s.versions(ctx)
	if err != nil {
		return err
	}
	if err := set.Check(version(applied)); err != nil {
		return fmt.Errorf("sqlite store with prefix %s: %w", s.cfg.Prefix, err)
	}
	return nil
}

// versions returns the applied migrations and when they were applied.
func (s *Store) versions(ctx context.Context) (applied map[int]time.Time, err error) {
	err = s.read(ctx, "read the schema's version", func(t txn) error {
		var exist int
		if err := t.get(ctx, versionsExistSQL, []any{s.cfg.Prefix + "migrations"}, &exist); err != nil || exist == 0 {
			return err
		}
		applied, err = t.versions(ctx)
		return err
	})
	return applied, err
}

func (t txn) versions(ctx context.Context) (map[int]time.Time, error) {
	applied := make(map[int]time.Time)
	err := t.each(ctx, versionsSQL, nil, func(rows *sql.Rows) error {
		var v int
		var at int64
		if err := rows.Scan(&v, &at); err != nil {
			return err
		}
		applied[v] = stored.Time(at)
		return nil
	})
	return applied, err
}

// version returns that of the newest applied migration.
func version(applied map[int]time.Time) int {
	newest := 0
	for v := range applied {
		newest = max(newest, v)
	}
	return newest
}
