package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/internal/address"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// openMySQL connects to a database and checks that it responds. Options in the query of the URL are the driver's.
func openMySQL(ctx context.Context, l location) (*sql.DB, error) {
	config, err := mysqlConfig(l)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, badURL("%s: %v", l.shown, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	began := time.Now()
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, mysqlConnectError(l, config, err, time.Since(began))
	}
	return db, nil
}

// mysqlConnectError says why a connection failed and what to do about it. took is for how long it was tried, which the caller may limit.
func mysqlConnectError(l location, c *mysql.Config, err error, took time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("connect to %s: no answer within %s; is the server running there, and may one connect to it from here?", l.shown,
			took.Round(100*time.Millisecond))
	}
	return fmt.Errorf("connect to %s: %w%s", l.shown, err, connectHint(c, err))
}

// connectHint says what to do about a failed connection.
func connectHint(c *mysql.Config, err error) string {
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch refused.Number {
		case 1040, 1203:
			return "; raise max_connections, or let fewer programs connect"
		case 1044:
			return fmt.Sprintf("; let the user in: GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON %s.* TO …", c.DBName)
		case 1045, 1698:
			return "; check the user and the password"
		case 1049:
			return "; make it with CREATE DATABASE " + c.DBName + ", or name another"
		}
		return ""
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Sprintf("; is the server running there, and may one connect to %s?", c.Addr)
	}
	return ""
}

func mysqlConfig(l location) (*mysql.Config, error) {
	u, err := url.Parse(l.dsn)
	if err != nil {
		return nil, badURL("%s cannot be read", l.shown)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	c.Passwd, _ = u.User.Password()
	if c.Passwd != "" && !address.Local(c.Addr) && !u.Query().Has("tls") {
		return nil, badURL("%s: the password would go to %s over a connection that is not verified; add tls=true (the CA can be your own, in a file "+
			"that SSL_CERT_FILE names), or allow it with tls=skip-verify, preferred or false", l.shown, c.Addr)
	}
	if u.RawQuery == "" {
		return c, nil
	}
	separator := "?"
	if strings.Contains(c.FormatDSN(), "?") {
		separator = "&"
	}
	if c, err = mysql.ParseDSN(c.FormatDSN() + separator + u.RawQuery); err != nil {
		return nil, badURL("%s: %v; what follows the ? are options of github.com/go-sql-driver/mysql", l.shown, err)
	}
	return c, nil
}

func (l location) mysql() mysqlstore.Config {
	return mysqlstore.Config{Prefix: l.store.Prefix, Partitions: l.store.Partitions}
}

func (o *Outbox) openMySQL(ctx context.Context, l location, logger *slog.Logger) error {
	db, err := openMySQL(ctx, l)
	if err != nil {
		return err
	}
	o.close = append(o.close, func() { _ = db.Close() })
	c := l.mysql()
	c.Partitions = 0 // only sets the number for a new outbox
	store, err := mysqlstore.New(db, c)
	if err != nil {
		return fmt.Errorf("open the outbox in %s: %w", l.shown, err)
	}
	o.Store, o.Transactions, o.DB, o.Ping = store, store, db, db.PingContext
	o.Publish = publishTo[*sql.Tx](store, logger)
	return nil
}

func migrateMySQL(ctx context.Context, l location, logger *slog.Logger) (*Schema, error) {
	db, err := openMySQL(ctx, l)
	if err != nil {
		return nil, err
	}
	c := l.mysql()
	c.Logger = logger
	return &Schema{
		Shown:   l.shown,
		Migrate: func(ctx context.Context, to int) ([]string, error) { return mysqlstore.Migrate(ctx, db, c, to) },
		Status:  func(ctx context.Context) ([]Migration, error) { return mysqlstore.MigrationStatus(ctx, db, c) },
		Close:   func() { _ = db.Close() },
	}, nil
}

// createDatabase creates a database, and returns its location and a function that drops it with everything in it.
func createDatabase(ctx context.Context, l location, name string) (in location, drop func() error, err error) {
	execute := func(ctx context.Context, statement string) error {
		db, err := openMySQL(ctx, l)
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, statement)
		return errors.Join(err, db.Close())
	}
	connect, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := execute(connect, "CREATE DATABASE "+name); err != nil {
		return l, nil, fmt.Errorf("create the database %s: %w", name, err)
	}
	u, err := url.Parse(l.dsn)
	if err != nil {
		return l, nil, badURL("%s cannot be read", l.shown)
	}
	u.Path = "/" + name
	in = l
	in.dsn = u.String()
	return in, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		if err := execute(ctx, "DROP DATABASE "+name); err != nil {
			return fmt.Errorf("drop the database %s: %w; drop it by hand: DROP DATABASE %s", name, err, name)
		}
		return nil
	}, nil
}
