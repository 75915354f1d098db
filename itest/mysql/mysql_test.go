// Package mysql_test tests store/mysql against the stores' contract, and against problems specific to MySQL and MariaDB,
// with the go-sql-driver/mysql driver.
package mysql_test

import (
	"database/sql"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/servertest"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestMain runs more tests at once than there are processors: most of them wait, for a lease to end or for a retry.
func TestMain(m *testing.M) {
	const parallel = "8"
	chosen := false
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if err := shared.drop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// database is a test's own database.
type database struct {
	config *mysql.Config
}

// server returns the configuration to connect to the test server as a superuser.
func server(t testing.TB) *mysql.Config {
	t.Helper()
	u, err := url.Parse(servertest.Get(t, servertest.MySQL))
	if err != nil || u.Host == "" {
		t.Fatalf("%s must be a URL such as mysql://root@127.0.0.1:3306/: %v", servertest.MySQL, err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
	c.Passwd, _ = u.User.Password()
	return c
}

// newDatabase creates an empty database, which is dropped with the test.
func newDatabase(t testing.TB) database {
	t.Helper()
	return databaseOn(t, server(t))
}

func databaseOn(t testing.TB, on *mysql.Config) database {
	t.Helper()
	c := on.Clone()
	admin := open(t, c)
	c.DBName = "t_" + strings.ReplaceAll(postrider.NewID(), "-", "")
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+c.DBName); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec("DROP DATABASE " + c.DBName); err != nil {
			t.Errorf("drop the database: %v", err)
		}
	})
	return database{c}
}

// open connects; settings are system variables of each session, quoted as SQL.
func (d database) open(t testing.TB, settings map[string]string) *sql.DB {
	t.Helper()
	c := d.config.Clone()
	if settings != nil {
		c.Params = maps.Clone(settings)
	}
	return open(t, c)
}

func open(t testing.TB, c *mysql.Config) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// migrated connects to the database after migrating it.
func (d database) migrated(t testing.TB, settings map[string]string, cfg mysqlstore.Config) *sql.DB {
	t.Helper()
	db := d.open(t, settings)
	if _, err := mysqlstore.Migrate(t.Context(), db, cfg, mysqlstore.Latest); err != nil {
		t.Fatal(err)
	}
	return db
}

func newStore(t testing.TB, db *sql.DB, cfg mysqlstore.Config) *mysqlstore.Store {
	t.Helper()
	s, err := mysqlstore.New(db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exec(t testing.TB, on interface {
	Exec(query string, args ...any) (sql.Result, error)
}, text string, args ...any) {
	t.Helper()
	if _, err := on.Exec(text, args...); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", text, err))
	}
}
