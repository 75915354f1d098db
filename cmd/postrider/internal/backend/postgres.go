package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/store/postgres"
)

// connectTimeout bounds the first look at a database, so that a wrong address does not hang.
const connectTimeout = 10 * time.Second

// openPool connects to a database and makes sure that it answers.
func openPool(ctx context.Context, l location) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(l.dsn)
	if err != nil {
		return nil, badURL("%s: %v", l.shown, err)
	}
	if !strings.Contains(l.dsn, "pool_max_conns=") {
		config.MaxConns = connections
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "postrider"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", l.shown, err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to %s: %w", l.shown, err)
	}
	return pool, nil
}

func (l location) postgres(logger *slog.Logger) postgres.Config {
	return postgres.Config{
		Schema: l.store.Schema, Prefix: l.store.Prefix, Partitions: l.store.Partitions,
		Notify: l.store.Notify > 0, NotifyEvery: l.store.Notify, ListenDSN: l.store.ListenURL, Logger: logger,
	}
}

func (o *Outbox) openPostgres(ctx context.Context, l location, logger *slog.Logger) error {
	pool, err := openPool(ctx, l)
	if err != nil {
		return err
	}
	o.close = append(o.close, pool.Close)
	store, err := postgres.New(pool, l.postgres(logger))
	if err != nil {
		return fmt.Errorf("open the outbox in %s: %w", l.shown, err)
	}
	o.close = append(o.close, store.Close)
	if err := store.Open(ctx); err != nil {
		return fmt.Errorf("open the outbox in %s: %w", l.shown, err)
	}
	o.Store, o.Ping, o.Publish = store, pool.Ping, publishTo[pgx.Tx](store, logger)
	o.DB = stdlib.OpenDBFromPool(pool)
	o.close = append(o.close, func() { _ = o.DB.Close() })
	o.Transactions = store.SQL(o.DB)
	return nil
}

func migratePostgres(ctx context.Context, l location) (*Schema, error) {
	pool, err := openPool(ctx, l)
	if err != nil {
		return nil, err
	}
	c := l.postgres(slog.New(slog.DiscardHandler))
	return &Schema{
		Shown: l.shown,
		Migrate: func(ctx context.Context, to int) ([]string, error) {
			steps, err := postgres.Migrate(ctx, pool, c, to)
			done := make([]string, len(steps))
			for i, s := range steps {
				done[i] = s.String()
			}
			return done, err
		},
		Status: func(ctx context.Context) ([]Migration, error) { return postgres.MigrationStatus(ctx, pool, c) },
		Close:  pool.Close,
	}, nil
}

func printPostgres(l location) (string, error) {
	var b bytes.Buffer
	err := postgres.PrintMigrations(&b, l.postgres(slog.New(slog.DiscardHandler)))
	return b.String(), err
}

// createSchema makes a schema and returns what drops it with everything in it.
func createSchema(ctx context.Context, l location, name string) (drop func() error, err error) {
	quoted := pgx.Identifier{name}.Sanitize()
	execute := func(ctx context.Context, statement string) error {
		conn, err := pgx.Connect(ctx, l.dsn)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", l.shown, err)
		}
		_, err = conn.Exec(ctx, statement)
		return errors.Join(err, conn.Close(ctx))
	}
	connect, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := execute(connect, "CREATE SCHEMA "+quoted); err != nil {
		return nil, fmt.Errorf("create the schema %s: %w", name, err)
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		if err := execute(ctx, "DROP SCHEMA "+quoted+" CASCADE"); err != nil {
			return fmt.Errorf("drop the schema %s: %w; drop it by hand: DROP SCHEMA %s CASCADE", name, err, name)
		}
		return nil
	}, nil
}
