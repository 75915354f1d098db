package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/servertest"
)

// withParam adds a parameter to a DSN.
func withParam(t testing.TB, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // pgx does not read a plus as a space
	return u.String()
}

// notInShort skips what repeats the contract over another way to the server, and what takes long: faults, load and models.
func notInShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short")
	}
}

// startPgBouncer starts a pooler for the test server and returns its DSN.
func startPgBouncer(t *testing.T) string {
	t.Helper()
	bin := servertest.Get(t, servertest.PgBouncerBin)
	server, err := pgx.ParseConfig(dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	port := servertest.Port(t)
	// A directory readable for the account that the pooler changes to.
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	password := ""
	if server.Password != "" {
		password = " password='" + server.Password + "'"
	}
	ini := filepath.Join(dir, "pgbouncer.ini")
	err = os.WriteFile(ini, fmt.Appendf(nil, `[databases]
* = host=%s port=%d user=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 40
`, server.Host, server.Port, server.User, password, port), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-q", ini}
	if os.Geteuid() == 0 {
		args = []string{"-q", "-u", "nobody", ini} // it refuses to run as root
	}
	cmd := exec.CommandContext(context.Background(), bin, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	dsn := fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", url.PathEscape(server.User), port, server.Database)
	awaitPgBouncer(t, dsn)
	return dsn
}

func awaitPgBouncer(t *testing.T, dsn string) {
	t.Helper()
	deadline, tick := time.After(5*time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(t.Context(), withParam(t, dsn, "default_query_exec_mode", "exec"))
		if err == nil {
			_ = conn.Close(t.Context())
			return
		}
		select {
		case <-deadline:
			t.Fatalf("pgbouncer is not ready: %v", err)
		case <-tick.C:
		}
	}
}
