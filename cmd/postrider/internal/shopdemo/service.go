package shopdemo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/store/postgres"
)

// RunService runs one service until ctx ends: what each process of the shop does.
func RunService(ctx context.Context, s Settings, logger *slog.Logger) error {
	broker, err := siteOf(s.Publisher, s.Stream, logger)
	if err != nil {
		return err
	}
	db, err := openDatabase(ctx, s.Store)
	if err != nil {
		return err
	}
	service, err := shop.Open(ctx, s.Service, s.service(db.Database, broker, logger))
	if err == nil {
		err = service.Run(ctx)
		err = errors.Join(err, service.Close())
	}
	db.close()
	return err
}

// database is the database of a service.
type database struct {
	shop.Database
	close func()
}

// openDatabase opens the database of a service, and creates Postrider's tables in it if they are missing.
func openDatabase(ctx context.Context, address string) (database, error) {
	if file, found := strings.CutPrefix(address, "sqlite:"); found {
		db, err := shop.OpenSQLite(ctx, file)
		if err != nil {
			return database{}, err
		}
		return database{db, func() { _ = db.DB.Close() }}, nil
	}
	s := config.Store{URL: address}
	schema, err := backend.OpenSchema(ctx, s, true, slog.New(slog.DiscardHandler))
	if err != nil {
		return database{}, err
	}
	defer schema.Close()
	if _, err := schema.Migrate(ctx, backend.Latest); err != nil {
		return database{}, fmt.Errorf("create the outbox in %s: %w", schema.Shown, err)
	}
	box, err := backend.Open(ctx, s, slog.New(slog.DiscardHandler))
	if err != nil {
		return database{}, err
	}
	under, ok := box.Transactions.(*postgres.SQLStore)
	if !ok {
		box.Close()
		return database{}, errors.New("the shop runs on SQLite and PostgreSQL")
	}
	store, err := under.SQLTx(ctx, box.DB)
	if err != nil {
		box.Close()
		return database{}, err
	}
	return database{shop.Database{Store: store, DB: box.DB}, box.Close}, nil
}

// storeOf is the URL of the database of a service: a file, or a schema of a PostgreSQL database.
func (c Config) storeOf(service string) (string, error) {
	if c.Store == "" {
		return "sqlite:" + c.Dir + "/" + service + ".db", nil
	}
	u, err := url.Parse(c.Store)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return "", errors.New("the shop runs on SQLite and PostgreSQL: write --store postgres://user@host/database")
	}
	query, schema := u.Query(), c.schema(service)
	query.Set("schema", schema)
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// schema is the name of the schema of a service on PostgreSQL.
func (c Config) schema(service string) string { return c.Name + "_" + service }

// createSchema creates a schema in a PostgreSQL database.
func createSchema(ctx context.Context, address, schema string) error {
	db, err := sql.Open("pgx", address)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+schema); err != nil {
		return fmt.Errorf("create the schema %s: %w", schema, err)
	}
	return nil
}
