package stacks_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	gomigrate "github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	"github.com/pressly/goose/v3"

	"github.com/postrider/postrider/internal/migrate"
	"github.com/postrider/postrider/store/postgres"
)

// filesOf writes the migration files of a tool into a directory.
func filesOf(t *testing.T, tool migrate.Tool, config postgres.Config) (dir string) {
	t.Helper()
	scripts, err := postgres.MigrationScripts(config)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, s := range scripts {
		for _, f := range []migrate.File{s.File(tool, false), s.File(tool, true)} {
			if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// messagingDB is a database whose outbox is to be in a schema of its own.
func messagingDB(t *testing.T) (db *sql.DB, dsn string, config postgres.Config) {
	t.Helper()
	dsn, config = newDatabase(t), postgres.Config{Schema: "messaging"}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), "create schema messaging"); err != nil {
		t.Fatal(err)
	}
	return db, dsn, config
}

// wantSchema compares the schema with what a store needs, and whether any table is left.
func wantSchema(t *testing.T, db *sql.DB, config postgres.Config, want error) {
	t.Helper()
	s, err := postgres.NewSQL(db, config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Open(t.Context()); !errors.Is(err, want) {
		t.Errorf("open the outbox: %v, want %v", err, want)
	}
	var tables int
	err = db.QueryRowContext(t.Context(), "select count(*) from pg_tables where schemaname = 'messaging'").Scan(&tables)
	if err != nil || (tables == 0) != (want != nil) {
		t.Errorf("%d tables, %v", tables, err)
	}
}

func TestGoose(t *testing.T) {
	t.Parallel()
	db, _, config := messagingDB(t)
	p, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS(filesOf(t, migrate.Goose, config)), goose.WithTableName("postrider_goose"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSchema(t, db, config, nil)
	if _, err := p.DownTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	wantSchema(t, db, config, postgres.ErrSchemaMissing)
}

func TestGolangMigrate(t *testing.T) {
	t.Parallel()
	db, dsn, config := messagingDB(t)
	own, err := sql.Open("pgx", dsn) // the tool closes it
	if err != nil {
		t.Fatal(err)
	}
	driver, err := migratepgx.WithInstance(own, &migratepgx.Config{MigrationsTable: "postrider_migrate"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := gomigrate.NewWithDatabaseInstance("file://"+filesOf(t, migrate.GolangMigrate, config), "pgx5", driver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if source, database := m.Close(); source != nil || database != nil {
			t.Error(source, database)
		}
	})
	if err := m.Up(); err != nil {
		t.Fatal(err)
	}
	wantSchema(t, db, config, nil)
	if err := m.Down(); err != nil {
		t.Fatal(err)
	}
	wantSchema(t, db, config, postgres.ErrSchemaMissing)
}
