package backend

import (
	"context"
	"log/slog"

	"github.com/postrider/postrider/config"
	mysqlstore "github.com/postrider/postrider/store/mysql"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/sqlite"
)

// Migration is the status of one migration in a database.
type Migration = sqlite.Migration

// Latest is the newest version of a schema.
const Latest = sqlite.Latest

// Schema is the schema of an outbox, which may not exist yet.
type Schema struct {
	// Shown is the store's URL without a password.
	Shown string
	// Migrate migrates the schema to a version and returns the steps taken.
	Migrate func(ctx context.Context, to int) ([]string, error)
	Status  func(ctx context.Context) ([]Migration, error)
	Close   func()
}

// OpenSchema opens a store for its migrations. It creates a missing SQLite file only if create is set. The logger gets a line when a
// migration waits for others.
func OpenSchema(ctx context.Context, s config.Store, create bool, logger *slog.Logger) (*Schema, error) {
	l, err := locate(s)
	if err != nil {
		return nil, err
	}
	switch l.kind {
	case kindSQLite:
		return migrateSQLite(l, create)
	case kindMySQL:
		return migrateMySQL(ctx, l, logger)
	}
	return migratePostgres(ctx, l, logger)
}

// PrintMigrations returns the SQL of all migrations, without a database.
func PrintMigrations(s config.Store) (string, error) {
	l, err := locate(s)
	if err != nil {
		return "", err
	}
	return l.print()
}

// Grants returns the SQL that gives a database role the rights of a publisher, relay, consumer, operator or viewer, without a
// database.
func Grants(s config.Store, what, role string) (string, error) {
	l, err := locate(s)
	if err != nil {
		return "", err
	}
	switch l.kind {
	case kindMySQL:
		return mysqlstore.Grants(l.mysql(), what, role)
	case kindPostgres:
		return postgres.Grants(l.postgres(nil), what, role)
	}
	return "", badURL("%s: SQLite has no roles; the rights to the file decide", l.shown)
}

// MigrationScript is a migration as other tools run it.
type MigrationScript = sqlite.MigrationScript

// MigrationScripts returns all migrations, without a database.
func MigrationScripts(s config.Store) ([]MigrationScript, error) {
	l, err := locate(s)
	if err != nil {
		return nil, err
	}
	switch l.kind {
	case kindSQLite:
		return sqlite.MigrationScripts(l.sqlite())
	case kindMySQL:
		return mysqlstore.MigrationScripts(l.mysql())
	}
	return postgres.MigrationScripts(l.postgres(slog.New(slog.DiscardHandler)))
}

func (l location) print() (string, error) {
	switch l.kind {
	case kindSQLite:
		return sqlite.PrintMigrations(l.sqlite())
	case kindMySQL:
		return mysqlstore.PrintMigrations(l.mysql())
	}
	return printPostgres(l)
}
