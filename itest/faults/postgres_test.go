package faults

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // for the test's own queries
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/store/postgres"
)

// postgresWorld is a world on its own PostgreSQL server.
type postgresWorld struct {
	*world
	cluster *process.Postgres
	server  *process.Server
	// late: the process that writes asynchronous commits to the log is stopped; writer is its ID.
	late   bool
	writer int
}

// newPostgresWorld starts a server and creates outbox and tables in its database postgres.
func newPostgresWorld(t *testing.T, settings ...string) *postgresWorld {
	t.Helper()
	dir := serverDir(t)
	cluster, err := process.NewPostgres(t.Context(), dir, append([]string{"max_connections=200", "shared_buffers=64MB"}, settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	server, err := cluster.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &postgresWorld{world: newWorld(t, dir, server.URL), cluster: cluster, server: server}
	t.Cleanup(func() { p.stop(syscall.SIGQUIT) })
	p.reopen()
	p.makeTables(postgresTables())
	return p
}

func postgresTables() string {
	return fmt.Sprintf(loadSQL, "bigserial", "timestamptz not null default clock_timestamp()")
}

// reopen opens the test's own connections to the URL.
func (p *postgresWorld) reopen() {
	p.t.Helper()
	db, err := sql.Open("pgx", p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = db.Close() })
	p.db = db
}

// stop stops the server: SIGINT gracefully, SIGQUIT at once, like a crash.
func (p *postgresWorld) stop(signal syscall.Signal) {
	_ = p.server.Signal(signal) // it may have ended
	p.killWriter()
	<-p.server.Done()
}

func (p *postgresWorld) start() {
	p.t.Helper()
	var err error
	if p.server, err = p.cluster.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.holdWriter()
}

// writeLate makes the server write its log only when a commit waits for it, like a slow disk: until then, a crash loses
// asynchronous commits. wal_writer_delay is not enough: commits wake the WAL writer, however long the delay is.
func (p *postgresWorld) writeLate() {
	p.t.Helper()
	p.late = true
	p.holdWriter()
}

func (p *postgresWorld) holdWriter() {
	p.t.Helper()
	if !p.late {
		return
	}
	await(p.t, "the WAL writer can be stopped", func() string {
		var pid int
		if err := p.db.QueryRowContext(p.t.Context(), "select pid from pg_stat_activity where backend_type = 'walwriter'").Scan(&pid); err != nil {
			return err.Error()
		}
		if pid == p.writer {
			return "it is still the old one"
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err.Error()
		}
		p.writer = pid
		return ""
	})
}

// killWriter kills a stopped WAL writer: it would not end with its server.
func (p *postgresWorld) killWriter() {
	if p.writer != 0 {
		_ = syscall.Kill(p.writer, syscall.SIGKILL) // it may have ended
	}
}

// crash restarts the server without shutdown: what was not written to its log is lost.
func (p *postgresWorld) crash() {
	p.t.Helper()
	p.stop(syscall.SIGQUIT)
	p.start()
}

// killBackend kills one of the backends: the server ends all others, and recovers.
func (p *postgresWorld) killBackend() {
	p.t.Helper()
	var pid int
	if err := p.db.QueryRowContext(p.t.Context(), `select pid from pg_stat_activity
		where backend_type = 'client backend' and pid <> pg_backend_pid() order by random() limit 1`).Scan(&pid); err != nil {
		p.t.Logf("find a backend to kill: %v", err)
		return
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		p.t.Logf("kill a backend: %v", err) // it may have ended
		return
	}
	p.killWriter()
	p.holdWriter()
}

// pool opens a pool of up to size connections.
func openPool(t *testing.T, url string, size int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = size
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// store opens a store with its own pool.
func (p *postgresWorld) store(size int32) *postgres.Store {
	p.t.Helper()
	return postgresStore(p.t, p.url, size)
}

func postgresStore(t *testing.T, url string, size int32) *postgres.Store {
	t.Helper()
	store, err := postgres.New(openPool(t, url, size), postgres.Config{Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func (p *postgresWorld) newLoad() *load[pgx.Tx] {
	p.t.Helper()
	return newLoad(p.t, stores[pgx.Tx](p.store(10)), onPostgres, p.random)
}

// run runs a PostgreSQL program.
func (p *postgresWorld) run(program string, args ...string) {
	p.t.Helper()
	path, err := process.PostgresProgram(program)
	if err != nil {
		p.t.Fatal(err)
	}
	if out, err := exec.CommandContext(p.t.Context(), path, args...).CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// admin runs a statement on a separate connection, to a database of the server.
func (p *postgresWorld) admin(url, text string) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for statement := range strings.SplitSeq(text, ";") {
		if _, err := conn.Exec(p.t.Context(), statement); err != nil {
			p.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// copyData copies the data directory of a stopped server.
func (p *postgresWorld) copyData(to string) {
	p.t.Helper()
	if out, err := exec.CommandContext(p.t.Context(), "cp", "-a", p.cluster.Data, to).CombinedOutput(); err != nil {
		p.t.Fatalf("copy the data directory: %v\n%s", err, out)
	}
}

// restoreData replaces the data directory with a copy.
func (p *postgresWorld) restoreData(from string) {
	p.t.Helper()
	if err := os.RemoveAll(p.cluster.Data); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(from, p.cluster.Data); err != nil {
		p.t.Fatal(err)
	}
}

// standby is a standby server.
type standby struct {
	cluster *process.Postgres
	server  *process.Server
}

// startStandby starts a standby of the server.
func (p *postgresWorld) startStandby() *standby {
	p.t.Helper()
	cluster, err := p.cluster.Standby(p.t.Context(), p.secondDir())
	if err != nil {
		p.t.Fatal(err)
	}
	server, err := cluster.Start(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = server.Signal(syscall.SIGQUIT) // it may have ended
		<-server.Done()
	})
	return &standby{cluster, server}
}

// bothURL connects to whichever of the two servers is writable.
func (p *postgresWorld) bothURL(s *standby) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=2",
		p.cluster.Port, s.cluster.Port)
}

// lag stops replication to the standby.
func (p *postgresWorld) lag(s *standby) {
	p.t.Helper()
	p.admin(s.server.URL, "alter system set primary_conninfo = ''; select pg_reload_conf()")
	await(p.t, "the standby has stopped receiving", func() string {
		var receivers int
		err := p.db.QueryRowContext(p.t.Context(), "select count(*) from pg_stat_replication").Scan(&receivers)
		if err == nil && receivers > 0 {
			err = fmt.Errorf("%d standbys follow", receivers)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// failOver stops the primary permanently and promotes the standby.
func (p *postgresWorld) failOver(s *standby) {
	p.t.Helper()
	p.stop(syscall.SIGQUIT)
	p.admin(s.server.URL, "select pg_promote()")
}
