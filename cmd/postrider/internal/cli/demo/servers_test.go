package demo_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/internal/servertest"
)

func TestDemoOnMySQLRemovesItsDatabase(t *testing.T) {
	t.Parallel()
	server := clitest.NewMySQL(t)
	clitest.Contains(t, clitest.OK(t, "demo", "--for", "3s", "--store", server.String()), "Every promise was kept.")
	var left int
	clitest.Must(t, clitest.ConnectMySQL(t, server).QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.tables
		WHERE table_schema = DATABASE()`).Scan(&left))
	if left != 0 {
		t.Errorf("%d tables are left behind in the database that was named", left)
	}
}

func TestDemoOnPostgresRemovesItsSchema(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), servertest.Get(t, servertest.Postgres)
	u, err := url.Parse(server)
	clitest.Must(t, err)
	u.Path = "/cmd_demo_" + strings.ToLower(rand.Text()[:10])
	admin, err := pgx.Connect(ctx, server)
	clitest.Must(t, err)
	_, err = admin.Exec(ctx, "CREATE DATABASE "+u.Path[1:])
	clitest.Must(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP DATABASE "+u.Path[1:]+" WITH (FORCE)")
		clitest.Must(t, err)
		clitest.Must(t, admin.Close(context.Background()))
	})

	clitest.Contains(t, clitest.OK(t, "demo", "--for", "3s", "--store", u.String()), "Every promise was kept.")

	conn, err := pgx.Connect(ctx, u.String())
	clitest.Must(t, err)
	defer conn.Close(context.Background())
	var left int
	clitest.Must(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_namespace WHERE starts_with(nspname, 'postrider_demo_')").Scan(&left))
	if left != 0 {
		t.Errorf("%d schemas are left behind", left)
	}
}
