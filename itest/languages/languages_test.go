// Package languages_test runs the programs of examples/languages, and migration tools for the JVM, against PostgreSQL.
package languages_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

const shops = "../../examples/languages"

// database is a database of a test.
type database struct {
	*sql.DB
	url *url.URL
}

func newDatabase(t *testing.T) database {
	t.Helper()
	u, err := url.Parse(servertest.Get(t, servertest.Postgres))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	name := "languages_" + strings.ToLower(rand.Text())
	if _, err := admin.ExecContext(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := db.Close()
		_, err := admin.ExecContext(context.Background(), "drop database "+name+" with (force)")
		if err := errors.Join(closed, err, admin.Close()); err != nil {
			t.Error(err)
		}
	})
	return database{db, u}
}

// environment names the database as the programs expect it.
func (d database) environment() []string {
	jdbc, query := url.URL{Scheme: "postgresql", Host: d.url.Host, Path: d.url.Path}, d.url.Query()
	query.Set("user", d.url.User.Username())
	if password, ok := d.url.User.Password(); ok {
		query.Set("password", password)
	}
	jdbc.RawQuery = query.Encode()
	return append(os.Environ(), "DATABASE_URL="+d.url.String(), "JDBC_URL=jdbc:"+jdbc.String())
}

// run runs a program and returns what it prints.
func (d database) run(t *testing.T, command ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = d.environment()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.New(err.Error() + "\n" + stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

// must runs a program that must succeed.
func (d database) must(t *testing.T, command ...string) string {
	t.Helper()
	out, err := d.run(t, command...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(command, " "), err)
	}
	return out
}

// TestPublish: a program in another language publishes in its transaction or not at all, a relay delivers what it has published, and it
// applies a message once.
func TestPublish(t *testing.T) {
	t.Parallel()
	home := servertest.Get(t, servertest.Languages)
	for language, command := range map[string][]string{
		"python":     {filepath.Join(home, "python", "bin", "python"), filepath.Join(shops, "python", "shop.py")},
		"java":       slices.Concat(shortJava, []string{"-cp", filepath.Join(home, "java", "*"), filepath.Join(shops, "java", "Shop.java")}),
		"typescript": {"node", filepath.Join(home, "typescript", "shop.js")},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			testPublish(t, "shop-"+language, command)
		})
	}
}

type placed struct {
	OrderID string `json:"order_id"`
	Total   int    `json:"total"`
}

func testPublish(t *testing.T, source string, command []string) {
	t.Helper()
	db := newDatabase(t)
	if _, err := postgres.MigrateSQL(t.Context(), db.DB, postgres.Config{}, postgres.Latest); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{
		"create table orders (id text primary key, total integer not null, shipped integer not null default 0)",
		"create table processed (message_id text primary key, at timestamptz not null default now())",
	} {
		if _, err := db.ExecContext(t.Context(), table); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.run(t, append(command, "place", "41", "-1")...); err == nil || !strings.Contains(err.Error(), "the total is negative") {
		t.Fatalf("a negative total: %v", err)
	}
	db.must(t, append(command, "place", "42", "1999")...)

	m := receive(t, db)
	if want := (placed{"42", 1999}); m.Data != want || m.Key != "order/42" || m.Topic != "orders" || m.Source != source {
		t.Errorf("received %+v with key %s, topic %s, source %s", m.Data, m.Key, m.Topic, m.Source)
	}
	for _, want := range []string{"applied", "duplicate"} {
		if got := db.must(t, append(command, "apply", m.ID, "42")...); got != want {
			t.Errorf("apply printed %q, want %q", got, want)
		}
	}
	var orders, shipped int
	if err := db.QueryRowContext(t.Context(), "select count(*), sum(shipped) from orders").Scan(&orders, &shipped); err != nil {
		t.Fatal(err)
	}
	if orders != 1 || shipped != 1 {
		t.Errorf("%d orders, shipped %d times, want one of each", orders, shipped)
	}
}

// receive returns the first message that a relay delivers.
func receive(t *testing.T, db database) postrider.Typed[placed] {
	t.Helper()
	store, err := postgres.NewSQL(db.DB, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	r, err := relay.New(store, relay.Config{Name: "languages"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var received []postrider.Typed[placed]
	err = relay.Handle(r, postrider.Define[placed]("order.placed").WithTopic("orders"), func(_ context.Context, m postrider.Typed[placed]) error {
		received = append(received, m)
		stop()
		return nil
	})
	if err == nil {
		err = r.Run(ctx)
	}
	if err != nil || len(received) != 1 {
		t.Fatalf("received %d messages, %v", len(received), err)
	}
	return received[0]
}
