package clitest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/internal/servertest"
)

// OverStores runs a test on a fresh outbox of each kind: each finds parked messages in its own way.
func OverStores(t *testing.T, test func(t *testing.T, url string)) {
	for name, open := range map[string]func(t *testing.T) string{
		"sqlite": NewOutbox,
		"mysql":  NewMySQLOutbox,
		"postgres": func(t *testing.T) string {
			url := NewPostgres(t)
			OK(t, "migrate", "up", "--store", url)
			return url
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// Exec runs statements on the database of an outbox, past the store.
func Exec(t *testing.T, outbox string, statements ...string) {
	t.Helper()
	u, err := url.Parse(outbox)
	Must(t, err)
	var db *sql.DB
	switch u.Scheme {
	case "sqlite":
		db, err = sql.Open("sqlite", strings.TrimPrefix(outbox, "sqlite:"))
	case "mysql":
		db = ConnectMySQL(t, u)
	default:
		query := u.Query()
		query.Set("search_path", query.Get("schema"))
		query.Del("schema")
		u.RawQuery = query.Encode()
		db, err = sql.Open("pgx", u.String())
	}
	Must(t, err)
	for _, statement := range statements {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), statement) // in a cleanup, too
		Must(t, err)
	}
	if u.Scheme != "mysql" { // ConnectMySQL closes it
		Must(t, db.Close())
	}
}

// MySQLServer returns the URL of the test server, which may be MariaDB or MySQL, and a connection to it as a superuser.
func MySQLServer(t *testing.T) (*url.URL, *sql.DB) {
	t.Helper()
	u, err := url.Parse(servertest.Get(t, servertest.MySQL))
	if err != nil || u.Host == "" {
		t.Fatalf("%s must be a URL such as mysql://root@127.0.0.1:3306/: %v", servertest.MySQL, err)
	}
	return u, ConnectMySQL(t, u)
}

// ConnectMySQL connects to the database of a URL.
func ConnectMySQL(t *testing.T, u *url.URL) *sql.DB {
	t.Helper()
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.Trim(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(c)
	Must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { Must(t, db.Close()) })
	return db
}

// NewMySQL returns the URL of a fresh, empty database on the test server.
func NewMySQL(t *testing.T) *url.URL {
	t.Helper()
	server, admin := MySQLServer(t)
	u := *server
	u.Path = "/cmd_" + strings.ToLower(rand.Text()[:10])
	_, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+u.Path[1:])
	Must(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "DROP DATABASE "+u.Path[1:])
		Must(t, err)
	})
	return &u
}

// NewMySQLOutbox returns the URL of a fresh outbox on the test server.
func NewMySQLOutbox(t *testing.T) string {
	t.Helper()
	u := NewMySQL(t).String()
	OK(t, "migrate", "up", "--store", u)
	return u
}

// NewMigrated returns the URL of a fresh outbox on the test server.
func NewMigrated(t *testing.T) string {
	t.Helper()
	url := NewPostgres(t)
	OK(t, "migrate", "up", "--store", url)
	return url
}

// NewPostgres returns the URL of a fresh, empty schema on the test server.
func NewPostgres(t *testing.T) string {
	t.Helper()
	server := servertest.Get(t, servertest.Postgres)
	schema := "cmd_" + strings.ToLower(rand.Text()[:10])
	execute := func(ctx context.Context, statement string) {
		conn, err := pgx.Connect(ctx, server)
		Must(t, err)
		_, err = conn.Exec(ctx, statement)
		Must(t, err)
		Must(t, conn.Close(ctx))
	}
	execute(t.Context(), "CREATE SCHEMA "+schema)
	t.Cleanup(func() { execute(context.Background(), "DROP SCHEMA "+schema+" CASCADE") })
	joint := "?"
	if strings.Contains(server, "?") {
		joint = "&"
	}
	return server + joint + "schema=" + schema
}
