package backend

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/internal/address"
	"github.com/postrider/postrider/store/postgres"
)

// connectTimeout limits the first connection to a database, so that a wrong address does not hang.
const connectTimeout = 10 * time.Second

// poolConfig is the configuration of the connections to a database.
func poolConfig(l location) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(l.dsn)
	if err != nil {
		return nil, badURL("%s: %s", l.shown, address.Reason(err))
	}
	if err := checkPlaintext(l.dsn, &config.ConnConfig.Config); err != nil {
		return nil, badURL("%s: %v", l.shown, err)
	}
	if !strings.Contains(l.dsn, "pool_max_conns=") {
		config.MaxConns = connections
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "postrider"
	}
	return config, nil
}

// openPool connects to a database and checks that it responds.
func openPool(ctx context.Context, l location) (*pgxpool.Pool, error) {
	config, err := poolConfig(l)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", l.shown, err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	began := time.Now()
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, connectError(l, err, time.Since(began))
	}
	return pool, nil
}

// checkPlaintext returns an error if a password may get to another host over a connection that is not verified, unless the URL or
// PGSSLMODE says so: a server that is not the right one may ask for the password as it is.
func checkPlaintext(dsn string, c *pgconn.Config) error {
	if u, err := url.Parse(dsn); err != nil || c.Password == "" || u.Query().Has("sslmode") || os.Getenv("PGSSLMODE") != "" {
		return err
	}
	hosts := append([]*pgconn.FallbackConfig{{Host: c.Host, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	for _, h := range hosts {
		verified := h.TLSConfig != nil && (!h.TLSConfig.InsecureSkipVerify || h.TLSConfig.VerifyPeerCertificate != nil)
		if !verified && !address.Local(h.Host) {
			return fmt.Errorf("the password would go to %s over a connection that is not verified; add sslmode=verify-full (and sslrootcert=FILE "+
				"if the server's CA is your own), or allow it with sslmode=require, prefer or disable", h.Host)
		}
	}
	return nil
}

// checkListen returns an error if the server to listen on cannot be used.
func (l location) checkListen() error {
	if l.store.ListenURL == "" {
		return nil
	}
	if _, err := address.Parse(l.store.ListenURL); err != nil {
		return badURL("listen_url: %v", err)
	}
	c, err := pgconn.ParseConfig(l.store.ListenURL)
	if err != nil {
		return badURL("listen_url: %s", address.Reason(err))
	}
	if err := checkPlaintext(l.store.ListenURL, c); err != nil {
		return badURL("listen_url: %v", err)
	}
	return nil
}

// connectError says in one line why a connection failed and what to do about it: pgx repeats the error for every address
// and every way to connect. took is for how long it was tried, which the caller or the URL may limit.
func connectError(l location, err error, took time.Duration) error {
	var config pgconn.Config
	if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		config = *failed.Config
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Errorf("connect to %s: %w%s", l.shown, refused, refusalHint(config, refused))
	}
	const hint = "; is the server running there, and may one connect to it from here?"
	if unknown, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("connect to %s: %w; check the name of the host", l.shown, unknown)
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("connect to %s: %w%s", l.shown, failed, hint)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("connect to %s: no answer within %s%s", l.shown, took.Round(100*time.Millisecond), hint)
	}
	return fmt.Errorf("connect to %s: %w", l.shown, err)
}

// refusalHint says what to do when a server refuses a connection.
func refusalHint(c pgconn.Config, refused *pgconn.PgError) string {
	switch refused.Code {
	case "28P01":
		return "; check the user and the password"
	case "28000":
		return fmt.Sprintf("; let the user in: CREATE ROLE %s LOGIN, and a line for it in pg_hba.conf, or name another", pgx.Identifier{c.User}.Sanitize())
	case "3D000":
		return fmt.Sprintf("; make it with CREATE DATABASE %s, or name another", pgx.Identifier{c.Database}.Sanitize())
	case "42501":
		return fmt.Sprintf("; let the user in: GRANT CONNECT ON DATABASE %s TO %s", pgx.Identifier{c.Database}.Sanitize(), pgx.Identifier{c.User}.Sanitize())
	case "42704":
		return "; of the options in the URL, " + strings.Join(ownOptions, ", ") + " are Postrider's, the others are PostgreSQL's"
	case "53300":
		return "; raise max_connections, or let fewer programs connect"
	}
	return ""
}

func (l location) postgres(logger *slog.Logger) postgres.Config {
	c := postgres.Config{
		Schema: l.store.Schema, Prefix: l.store.Prefix, Partitions: l.store.Partitions, ListenDSN: l.store.ListenURL,
		DeliverAfterFlush: l.store.DeliverAfterFlush, Logger: logger,
	}
	if every := l.store.Notify; every != nil {
		c.NotifyEvery = cmp.Or(*every, -1)
	}
	return c
}

func (o *Outbox) openPostgres(ctx context.Context, l location, logger *slog.Logger) error {
	pool, err := openPool(ctx, l)
	if err != nil {
		return err
	}
	o.close = append(o.close, pool.Close)
	if err := l.checkListen(); err != nil {
		return err
	}
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

func migratePostgres(ctx context.Context, l location, logger *slog.Logger) (*Schema, error) {
	pool, err := openPool(ctx, l)
	if err != nil {
		return nil, err
	}
	c := l.postgres(logger)
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

// createSchema creates a schema and returns a function that drops it with everything in it.
func createSchema(ctx context.Context, l location, name string) (drop func() error, err error) {
	quoted := pgx.Identifier{name}.Sanitize()
	execute := func(ctx context.Context, statement string) error {
		began := time.Now()
		conn, err := pgx.Connect(ctx, l.dsn)
		if err != nil {
			return connectError(l, err, time.Since(began))
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
