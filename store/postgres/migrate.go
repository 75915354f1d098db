package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/migrate"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

//go:embed migrations
var migrationFiles embed.FS

// Latest as a target of Migrate is the newest version that this program knows.
const Latest = migrate.Latest

// MigrationState is one migration and its state in a database.
type MigrationState = migrate.Status

// MigrationStep is one migration that Migrate applied.
type MigrationStep = migrate.Step

func (c Config) migrations() (*migrate.Set, error) {
	files := c.files
	if files == nil {
		var err error
		if files, err = fs.Sub(migrationFiles, "migrations"); err != nil {
			return nil, err
		}
	}
	return migrate.Load(files, map[string]string{
		"prefix": pgx.Identifier{c.Schema}.Sanitize() + "." + c.Prefix, "prefixname": c.Prefix,
		"partitions": strconv.Itoa(c.Partitions), "span": strconv.FormatInt(c.segmentSpan, 10),
	})
}

// invalidSchemaName is the SQLSTATE of a schema that does not exist.
const invalidSchemaName = "3F000"

// createMigrationsSQL creates the record of applied migrations. It is not itself a migration, because migrations are recorded in
// it.
const createMigrationsSQL = `create table if not exists {migrations} (
	version    integer primary key,
	name       text not null,
	applied_at timestamptz not null default clock_timestamp(),
	oldest_program integer, oldest_publisher integer
)`

// addWindowSQL upgrades a record from before programs checked these columns; without a value, the migration's own version
// applies.
const addWindowSQL = `do $$ begin
	if not exists (select from pg_attribute where attrelid = '{migrations}'::regclass and attname = 'oldest_publisher') then
		alter table {migrations} add column oldest_program integer, add column oldest_publisher integer;
	end if;
end $$`

// safePathSQL makes migrations call only functions and operators of PostgreSQL itself; see qualify.
const safePathSQL = `set local search_path = pg_catalog, pg_temp`

// Migrate brings the schema to a version and returns the steps that it took. The target is a version, Latest, or 0 to remove the
// schema with everything in it. All steps are one transaction. Any number of processes may call it at once: an advisory lock,
// held until the transaction ends, lets one work while the others wait and then find nothing left to do.
//
// Migrate first locks the tables that the steps change, those of publishers last. It waits up to 3 s for each lock, and others
// wait behind it no longer than that. Without a lock, it changes nothing and tries again after 5 s, until the context's deadline, or for a minute if it has
// none. Config.Logger gets one line about that, and the error at the end names the sessions that hold the locks, as the line does.
//
// The database schema (Config.Schema) must exist, and the role needs the right to create tables in it. Errors: ErrSchemaNewer,
// store.ErrInUse.
func Migrate(ctx context.Context, pool *pgxpool.Pool, c Config, target int) ([]MigrationStep, error) {
	return migrateOn(ctx, pgxPool{pool}, c, target)
}

// MigrateSQL is Migrate on a *sql.DB with pgx's driver. Errors: ErrDriver, and as Migrate.
func MigrateSQL(ctx context.Context, db *sql.DB, c Config, target int) ([]MigrationStep, error) {
	return migrateOn(ctx, sqlPool{db}, c, target)
}

func migrateOn(ctx context.Context, pool pool, c Config, target int) ([]MigrationStep, error) {
	m, err := newMigrator(c)
	if err != nil {
		return nil, err
	}
	var steps []MigrationStep
	var tables []string
	attempt := func() error {
		return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if steps, err = m.plan(ctx, tx, target); err != nil || len(steps) == 0 {
				return err
			}
			tables = lockedBy(steps)
			return m.migrate(ctx, tx, steps, tables)
		})
	}
	err = m.patience.Try(ctx, stored.Locking{
		Attempt: attempt, Busy: busy, Holders: func(ctx context.Context) ([]string, error) { return m.holders(ctx, pool, tables) }, Logger: c.withDefaults().Logger,
	})
	if code(err) == invalidSchemaName {
		schema := c.withDefaults().Schema
		return nil, fmt.Errorf("migrate: there is no schema %s in the database; make it first, as the owner of the database: create schema %[1]s: %w",
			schema, err)
	}
	if errors.Is(err, store.ErrInUse) {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if err != nil {
		return nil, translate("migrate", err)
	}
	return steps, nil
}

// MigrationStatus lists the migrations that this program or the database knows, in order.
func MigrationStatus(ctx context.Context, pool *pgxpool.Pool, c Config) ([]MigrationState, error) {
	m, err := newMigrator(c)
	if err != nil {
		return nil, err
	}
	applied, err := m.applied(ctx, pool)
	if err != nil {
		return nil, translate("migration status", err)
	}
	return m.set.Status(applied), nil
}

// PrintMigrations writes the SQL that Migrate would run on an empty database to bring it to the newest version, so that it can be
// run by hand.
func PrintMigrations(w io.Writer, c Config) error {
	m, err := newMigrator(c)
	if err != nil {
		return err
	}
	steps, err := m.set.Plan(0, Latest)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "begin;\n%s;\n%s;\n\n%s;\n", safePathSQL, m.limitSQL(), m.names.expand(createMigrationsSQL))
	for _, s := range steps {
		fmt.Fprintf(&b, "\n-- %s\n%s%s;\n", s, s.SQL, m.record(s))
	}
	b.WriteString("\ncommit;\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// MigrationScript is a migration as other tools run it.
type MigrationScript = migrate.Script

// The search path of the tool's session comes back at the end of the script: the tool may record the version in the same transaction.
const (
	keepPathSQL    = `select pg_catalog.set_config('postrider.search_path', pg_catalog.current_setting('search_path'), true)`
	restorePathSQL = `select pg_catalog.set_config('search_path', pg_catalog.current_setting('postrider.search_path'), true)`
)

// MigrationScripts returns all migrations, in order, with the records that Migrate makes, for tools that run the migrations of the
// whole service. Each takes its locks first, as Migrate does, and fails if it does not get one within 3 s.
func MigrationScripts(c Config) ([]MigrationScript, error) {
	m, err := newMigrator(c)
	if err != nil {
		return nil, err
	}
	var out []MigrationScript
	for _, v := range m.set.All() {
		up := migrate.Step{Version: v.Version, Name: v.Name, Window: v.Window}
		down := migrate.Step{Version: v.Version, Name: v.Name, Down: true}
		before, after := "", ""
		if v.Version == 1 {
			before, after = m.names.expand(createMigrationsSQL)+";\n\n", ";\n\ndrop table "+m.names.migrations
		}
		script := func(text string) []string {
			head := keepPathSQL + ";\n" + safePathSQL + ";\n" + m.limitSQL() + ";\n"
			if tables := lockedBy([]migrate.Step{{SQL: text}}); len(tables) > 0 {
				head += m.names.lockSQL(tables) + ";\n"
			}
			return []string{head + "\n" + text + ";\n" + restorePathSQL}
		}
		out = append(out, MigrationScript{Version: v.Version, Name: v.Name, Begin: "begin", End: "commit",
			Up: script(before + v.Up + m.record(up)), Down: script(v.Down + m.record(down) + after)})
	}
	return out, nil
}

type migrator struct {
	set      *migrate.Set
	names    names
	patience stored.Patience
}

func newMigrator(c Config) (*migrator, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	set, err := c.migrations()
	if err != nil {
		return nil, err
	}
	return &migrator{set: set, names: newNames(c), patience: cmp.Or(c.patience, stored.DefaultPatience)}, nil
}

// plan waits for other programs that migrate, and returns the steps that are left.
func (m *migrator) plan(ctx context.Context, tx pgx.Tx, target int) ([]MigrationStep, error) {
	// Two prefixes may hash to the same lock, which costs a short wait.
	if _, err := tx.Exec(ctx, safePathSQL); err != nil {
		return nil, err
	}
	_, err := tx.Exec(ctx, "select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1::text, 0))", m.names.migrations)
	if err != nil {
		return nil, err
	}
	applied, err := m.applied(ctx, tx)
	if err != nil {
		return nil, err
	}
	return m.set.Plan(version(applied), target)
}

// migrate locks the tables and takes the steps.
func (m *migrator) migrate(ctx context.Context, tx pgx.Tx, steps []MigrationStep, tables []string) error {
	if err := script(ctx, tx.Conn(), m.limitSQL()+";"+m.names.expand(createMigrationsSQL+";"+addWindowSQL)); err != nil {
		return err
	}
	if err := m.lockTables(ctx, tx, tables); err != nil {
		return err
	}
	for _, s := range steps {
		if err := script(ctx, tx.Conn(), s.SQL+m.record(s)); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	if last := steps[len(steps)-1]; last.Down && last.Version == 1 {
		return script(ctx, tx.Conn(), "drop table "+m.names.migrations)
	}
	return nil
}

func (m *migrator) record(s migrate.Step) string {
	if s.Down {
		return fmt.Sprintf("delete from %s where version = %d", m.names.migrations, s.Version)
	}
	return fmt.Sprintf("insert into %s (version, name, oldest_program, oldest_publisher) values (%d, '%s', %d, %d)", m.names.migrations,
		s.Version, s.Name, s.Oldest, s.OldestPublisher)
}

// querier is a pool or a transaction.
type querier interface {
	rowQuerier
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// rowQuerier is a querier, or a transaction of database/sql.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// applied returns what was applied and when; nothing if there is no schema.
func (m *migrator) applied(ctx context.Context, q querier) (map[int]migrate.Record, error) {
	var exists bool
	err := q.QueryRow(ctx, "select pg_catalog.to_regclass($1::text) is not null", m.names.migrations).Scan(&exists)
	if err != nil || !exists {
		return nil, err
	}
	rows, err := q.Query(ctx, m.names.expand(appliedMigrationsSQL))
	if err != nil {
		return nil, err
	}
	applied := make(map[int]migrate.Record)
	var v int
	var at int64
	var w migrate.Window
	_, err = pgx.ForEachRow(rows, []any{&v, &at, &w.Oldest, &w.OldestPublisher}, func() error {
		applied[v] = migrate.Record{At: time.UnixMicro(at).UTC(), Window: w}
		return nil
	})
	return applied, err
}

func version(applied map[int]migrate.Record) int {
	latest := 0
	for v := range applied {
		latest = max(latest, v)
	}
	return latest
}

// script runs several statements at once.
func script(ctx context.Context, conn *pgx.Conn, sql string) error {
	return conn.PgConn().Exec(ctx, sql).Close()
}

// appliedMigrationsSQL reads the record, even one without windows.
const appliedMigrationsSQL = `
select version, (extract(epoch from applied_at) operator(pg_catalog.*) 1000000)::int8,
	coalesce(to_jsonb(m) ->> 'oldest_program'::text, '0')::int4, coalesce(to_jsonb(m) ->> 'oldest_publisher'::text, '0')::int4 from {migrations} m`

// role is how a program uses a schema.
type role int

const (
	anything role = iota
	publishing
)

// checkSchema reads the version, reports whether this program can work with it, and returns the number of partitions.
func (s *Store) checkSchema(ctx context.Context, q rowQuerier, as role) (int, error) {
	var have, partitions, oldest, oldestPublisher int
	err := q.QueryRow(ctx, s.sql.open).Scan(&have, &partitions, &oldest, &oldestPublisher)
	switch {
	case code(err) == undefinedTable, errors.Is(err, sql.ErrNoRows): // pgx.ErrNoRows, too
		return 0, fmt.Errorf("open outbox %s: %w", s.names.migrations, s.migrations.Check(0))
	case err != nil:
		return 0, translate("open outbox", err)
	}
	if as == publishing {
		oldest = oldestPublisher
	}
	return partitions, s.migrations.CheckWindow(have, oldest)
}

const openSQL = `
select (select max(version) from {migrations})::int4, partitions::int4,
	(select max(coalesce((to_jsonb(m) ->> 'oldest_program'::text)::int4, m.version)) from {migrations} m),
	(select max(coalesce((to_jsonb(m) ->> 'oldest_publisher'::text)::int4, m.version)) from {migrations} m) from {meta}`
