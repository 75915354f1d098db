package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// Migration is the status of one migration in a database.
type Migration = migrate.Status

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations returns the migrations; engine is that of the incarnations table.
func (c Config) migrations(engine string) (*migrate.Set, error) {
	dir, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return migrate.Load(dir, map[string]string{
		"prefix":       c.Prefix,
		"partitions":   strconv.Itoa(cmp.Or(c.Partitions, DefaultPartitions)),
		"now":          nowSQL,
		"present":      presentSQL(c.Prefix),
		"unlimit":      unlimitAnywhereSQL,
		"incarnations": engine,
	})
}

const (
	createVersionsSQL = `CREATE TABLE IF NOT EXISTS {prefix}migrations (
  version INT NOT NULL PRIMARY KEY, name VARBINARY(128) NOT NULL, applied_at BIGINT NOT NULL) ENGINE=InnoDB`
	// applied_at is 0 while the migration is being reverted.
	versionsSQL     = `SELECT version, applied_at FROM {prefix}migrations`
	recordUpSQL     = `INSERT IGNORE INTO {prefix}migrations (version, name, applied_at) VALUES (?, ?, {now})`
	beginDownSQL    = `UPDATE {prefix}migrations SET applied_at = 0 WHERE version = ?`
	recordDownSQL   = `DELETE FROM {prefix}migrations WHERE version = ?`
	dropVersionsSQL = `DROP TABLE {prefix}migrations`

	// MySQL has no transactional schema changes, so a session lock keeps out other programs, which wait up to a minute. The lock
	// counts for the whole server; its name is made from the database and the prefix.
	migrationLockSQL   = `SELECT GET_LOCK(CONCAT('postrider.', LEFT(SHA2(CONCAT(DATABASE(), '.', ?), 256), 32)), 60)`
	migrationUnlockSQL = `SELECT RELEASE_LOCK(CONCAT('postrider.', LEFT(SHA2(CONCAT(DATABASE(), '.', ?), 256), 32)))`

	enginesSQL = `SELECT table_name FROM information_schema.tables
		WHERE table_schema = DATABASE() AND LEFT(table_name, CHAR_LENGTH(?1)) = CONVERT(?1 USING utf8mb4) AND engine <> 'InnoDB'
			AND table_name <> '{prefix}incarnations'`
)

// Migrate brings the schema to a version: Latest or an earlier one (0 removes everything, messages too). It returns what it did,
// e.g. "up 0001_outbox". Any number of processes may call it at once. MySQL commits each schema change separately, so an
// interrupted migration is half done; every statement can be repeated, and the next call of Migrate continues. After an
// interrupted down migration, it only goes down.
//
// A statement waits up to 3 s for a lock of another transaction, and others wait behind it no longer than that. Then Migrate repeats it every 5 s,
// until the context's deadline, or for a minute if it has none. Config.Logger gets one line about that. Errors: ErrSchemaNewer,
// ErrUnsuitable, store.ErrInUse, which names who has the locks, as the line does (open transactions, if the server does not tell), and
// those of the server.
func Migrate(ctx context.Context, db *sql.DB, cfg Config, to int) (done []string, err error) {
	s, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	set, err := s.cfg.migrations(s.server.incarnationsEngine())
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, s.cfg.explain("migrate", err)
	}
	defer discard(conn) // with its settings
	t := txn{s: s, on: conn}
	var locked sql.Null[int]
	if err := t.get(ctx, migrationLockSQL, []any{s.cfg.Prefix}, &locked); err != nil {
		return nil, s.cfg.explain("migrate", err)
	}
	if locked.V != 1 {
		return nil, errors.New("migrate: another program has been migrating this outbox for a minute; try again when it has ended")
	}
	defer func() {
		var unlocked sql.Null[int]
		err = errors.Join(err, t.get(context.WithoutCancel(ctx), migrationUnlockSQL, []any{s.cfg.Prefix}, &unlocked))
	}()
	if _, err := conn.ExecContext(ctx, limitLocksSQL); err != nil {
		return nil, s.cfg.explain("migrate", err)
	}
	done, err = t.migrate(ctx, set, to)
	return done, s.cfg.explain("migrate", err)
}

func (t txn) migrate(ctx context.Context, set *migrate.Set, to int) (done []string, err error) {
	if err := t.patiently(ctx, createVersionsSQL, createVersionsSQL); err != nil {
		return nil, err
	}
	applied, err := t.versions(ctx)
	if err != nil {
		return nil, err
	}
	if half := halfRemoved(applied); half > 0 && (to == Latest || to >= half) {
		return nil, errHalfRemoved(half)
	}
	steps, err := set.Plan(version(applied), to)
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if err := t.step(ctx, step); err != nil {
			return done, fmt.Errorf("%s: %w", step, err)
		}
		done = append(done, step.String())
	}
	if to == 0 {
		err = t.patiently(ctx, dropVersionsSQL, dropVersionsSQL)
	}
	return done, err
}

// step takes one step and records it.
func (t txn) step(ctx context.Context, step migrate.Step) error {
	if step.Down {
		if _, err := t.exec(ctx, beginDownSQL, step.Version); err != nil {
			return err
		}
	}
	for _, statement := range statements(step.SQL) {
		if err := t.patiently(ctx, statement, step.SQL); err != nil {
			return err
		}
	}
	if step.Down {
		_, err := t.exec(ctx, recordDownSQL, step.Version)
		return err
	}
	_, err := t.exec(ctx, recordUpSQL, step.Version, step.Name)
	return err
}

// statements splits a migration at its empty lines, since drivers take one statement at a time. It leaves out parts that contain
// only comments.
func statements(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, "\n\n") {
		for line := range strings.Lines(part) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
				out = append(out, strings.TrimSpace(part))
				break
			}
		}
	}
	return out
}

// MigrationStatus lists the migrations that this program knows and those that the database has.
func MigrationStatus(ctx context.Context, db *sql.DB, cfg Config) ([]Migration, error) {
	s, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	set, err := s.cfg.migrations(engineMemory)
	if err != nil {
		return nil, err
	}
	applied, err := s.appliedVersions(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(applied, func(_ int, at time.Time) bool { return at.IsZero() })
	return set.Status(migrate.Records(applied)), nil
}

// PrintMigrations returns the SQL of every up migration, in order, for the mysql client. It includes the version records, without
// which New refuses the schema.
func PrintMigrations(cfg Config) (string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	set, err := cfg.migrations(engineMemory)
	if err != nil {
		return "", err
	}
	names := expander(cfg.Prefix)
	var b strings.Builder
	fmt.Fprintf(&b, "DELIMITER ;;\n\n%s;;\n\n%s;;\n\n%s;;\n", keepLimitsSQL, limitLocksSQL, names.Replace(createVersionsSQL))
	for _, m := range set.All() {
		fmt.Fprintf(&b, "\n-- %04d_%s\n", m.Version, m.Name)
		for _, statement := range statements(m.Up) {
			fmt.Fprintf(&b, "\n%s;;\n", strings.TrimSuffix(statement, ";"))
		}
		fmt.Fprintf(&b, "\n%s;;\n", render(names.Replace(recordUpSQL), []any{m.Version, m.Name}))
	}
	fmt.Fprintf(&b, "\n%s;;\n\nDELIMITER ;\n", restoreLimitsSQL)
	return b.String(), nil
}

// MigrationScript is a migration as other tools run it.
type MigrationScript = migrate.Script

// MigrationScripts returns all migrations, in order, with the records that Migrate makes, for tools that run the migrations of the
// whole service. A statement fails if it does not get a lock within 3 s. The table of incarnations is in memory, as in PrintMigrations.
func MigrationScripts(cfg Config) ([]MigrationScript, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	set, err := cfg.migrations(engineMemory)
	if err != nil {
		return nil, err
	}
	names := expander(cfg.Prefix)
	record := func(text string, values ...any) string { return render(names.Replace(text), values) }
	var out []MigrationScript
	for _, m := range set.All() {
		s := MigrationScript{Version: m.Version, Name: m.Name, Delimited: true, Up: []string{keepLimitsSQL, limitLocksSQL}}
		if m.Version == 1 {
			s.Up = append(s.Up, names.Replace(createVersionsSQL))
		}
		for _, text := range statements(m.Up) {
			s.Up = append(s.Up, strings.TrimSuffix(text, ";"))
		}
		s.Up = append(s.Up, record(recordUpSQL, m.Version, m.Name), restoreLimitsSQL)
		s.Down = []string{keepLimitsSQL, limitLocksSQL, record(beginDownSQL, m.Version)}
		for _, text := range statements(m.Down) {
			s.Down = append(s.Down, strings.TrimSuffix(text, ";"))
		}
		s.Down = append(s.Down, record(recordDownSQL, m.Version))
		if m.Version == 1 {
			s.Down = append(s.Down, names.Replace(dropVersionsSQL))
		}
		s.Down = append(s.Down, restoreLimitsSQL)
		out = append(out, s)
	}
	return out, nil
}

// checkSchema refuses a schema that this program cannot work with.
func (s *Store) checkSchema(ctx context.Context) error {
	set, err := s.cfg.migrations(engineMemory)
	if err != nil {
		return err
	}
	applied, err := s.appliedVersions(ctx)
	if err != nil {
		return err
	}
	err = set.Check(version(applied))
	if half := halfRemoved(applied); half > 0 {
		err = errHalfRemoved(half)
	}
	if err != nil {
		return fmt.Errorf("mysql store with prefix %s: %w", s.cfg.Prefix, err)
	}
	strange, err := stored.Column[string](ctx, s.pooled().query, enginesSQL, s.cfg.Prefix)
	if err != nil {
		return s.cfg.explain("look at the tables' engines", err)
	}
	if len(strange) > 0 {
		return fmt.Errorf("mysql store: %w: tables %s are not InnoDB, which alone has transactions; convert them with "+
			"ALTER TABLE … ENGINE=InnoDB", ErrUnsuitable, strings.Join(strange, ", "))
	}
	return s.checkIncarnations(ctx)
}

// appliedVersions returns the applied migrations and when they were applied; nothing if there is no schema.
func (s *Store) appliedVersions(ctx context.Context) (map[int]time.Time, error) {
	applied, err := s.pooled().versions(ctx)
	if s.cfg.ErrorCode(err) == codeNoTable {
		return nil, nil
	}
	return applied, s.cfg.explain("read the schema's version", err)
}

// versions returns the applied migrations and when they were applied; the zero time for one that is being reverted.
func (t txn) versions(ctx context.Context) (map[int]time.Time, error) {
	applied := make(map[int]time.Time)
	err := t.each(ctx, versionsSQL, nil, func(rows *sql.Rows) error {
		var v int
		var at int64
		err := rows.Scan(&v, &at)
		if applied[v] = stored.Time(at); at == 0 {
			applied[v] = time.Time{}
		}
		return err
	})
	return applied, err
}

// version returns the version of the newest applied migration.
func version(applied map[int]time.Time) int {
	newest := 0
	for v := range applied {
		newest = max(newest, v)
	}
	return newest
}

// halfRemoved returns the oldest version whose down migration was interrupted, 0 if there is none.
func halfRemoved(applied map[int]time.Time) int {
	oldest := 0
	for v, at := range applied {
		if at.IsZero() && (oldest == 0 || v < oldest) {
			oldest = v
		}
	}
	return oldest
}

func errHalfRemoved(version int) error {
	return fmt.Errorf("%w: version %d was being removed, and a part of it is gone; end that with `postrider migrate down --to %d`, "+
		"then run `postrider migrate up`", ErrSchemaOlder, version, version-1)
}
