//go:build !race

package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// crashing is a test's own server that can be killed and restarted on the same data.
type crashing struct {
	*process.Server
	m *process.MariaDB
}

func newCrashing(t *testing.T, settings ...string) *crashing {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // as root, the server runs as another user
	m, err := process.NewMariaDB(t.Context(), servertest.Get(t, servertest.MariaDBBin), dir, settings...)
	must(t, err)
	s, err := m.Start(t.Context())
	must(t, err)
	c := &crashing{s, m}
	t.Cleanup(func() { must(t, c.Stop()) })
	return c
}

// crash kills the server with SIGKILL, after flushing commits to disk, and restarts it.
func (c *crashing) crash(t *testing.T) {
	t.Helper()
	admin := open(t, c.config(t))
	for _, text := range []string{"SET GLOBAL innodb_flush_log_at_trx_commit = 1", "CREATE TABLE shop.flushed (n INT) ENGINE=InnoDB",
		"INSERT INTO shop.flushed VALUES (1)"} {
		exec(t, admin, text)
	}
	must(t, c.Kill())
	s, err := c.m.Start(t.Context())
	must(t, err)
	c.Server = s
}

func (c *crashing) config(t *testing.T) *mysql.Config {
	t.Helper()
	u, err := url.Parse(c.URL)
	must(t, err)
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User = "tcp", u.Host, u.User.Username()
	return cfg
}

// database creates a database that ends with the server.
func (c *crashing) database(t *testing.T, cfg mysqlstore.Config) (database, *sql.DB) {
	t.Helper()
	in := c.config(t)
	exec(t, open(t, in), "CREATE DATABASE shop")
	in = in.Clone()
	in.DBName = "shop"
	d := database{in}
	return d, d.migrated(t, nil, cfg)
}

func settlement(l store.Lease, number int64) store.Settlement {
	return store.Settlement{Partition: l.Partition, Token: l.Token, Number: number, DeliveredCount: 1}
}

// settle says whether a settlement was applied.
func settle(t *testing.T, s *mysqlstore.Store, st store.Settlement) bool {
	t.Helper()
	out, err := s.Settle(t.Context(), "r", []store.Settlement{st})
	must(t, err)
	if len(out.Failed) > 0 {
		t.Fatalf("settle: %v", out.Failed)
	}
	return len(out.Lost) == 0
}

// acquire leases partition 0 for an owner, if it is free.
func acquire(t *testing.T, s *mysqlstore.Store, id string, ttl time.Duration, resume bool) (store.Lease, bool) {
	t.Helper()
	req := claim(ttl)
	req.Claims[0].Resume = resume
	leases, err := s.Acquire(t.Context(), "r", store.Owner{ID: id}, req)
	must(t, err)
	if len(leases) == 0 {
		return store.Lease{}, false
	}
	return leases[0], true
}

// TestCrashEndsEveryLease: the server crashes under a running process. Nothing is done under the old token, the process
// acquires new leases at once, and another process waits for as long as the first may still be working.
func TestCrashEndsEveryLease(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"commits survive":     {"--innodb-flush-log-at-trx-commit=1"},
		"commits may be lost": {"--innodb-flush-log-at-trx-commit=0"},
		"with a binary log":   {"--log-bin=binlog", "--binlog-format=MIXED", "--sync-binlog=0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 20 * time.Second
			server := newCrashing(t, settings...)
			_, db := server.database(t, mysqlstore.Config{Partitions: 1})
			s := newStore(t, db, mysqlstore.Config{})
			if _, err := s.Heartbeat(t.Context(), "r", store.Owner{ID: "a"}, ttl); err != nil {
				t.Fatal(err)
			}
			old, _ := acquire(t, s, "a", ttl, false)
			if !settle(t, s, settlement(old, old.Settled+1)) {
				t.Fatal("lost before the crash")
			}
			server.crash(t)
			db.SetMaxIdleConns(0) // connections from before the crash
			db.SetMaxIdleConns(8)

			if settle(t, s, settlement(old, old.Settled+2)) || settle(t, s, settlement(old, old.Settled+1)) {
				t.Error("settled under a lease of before the crash")
			}
			batches, err := s.Fetch(t.Context(), "r", store.FetchRequest{Partitions: []store.FetchPartition{{LeaseRef: old.Ref()}}, Limit: 1, MaxBytes: 1})
			if err != nil || len(batches) != 1 || !batches[0].Lost {
				t.Errorf("fetched %+v, %v; want the partition lost", batches, err)
			}
			v, err := s.Heartbeat(t.Context(), "r", store.Owner{ID: "b"}, ttl)
			if err != nil || len(v.Partitions) > 0 {
				t.Errorf("view %+v, %v; want no partition that is held", v, err)
			}
			if l, ok := acquire(t, s, "b", ttl, false); ok {
				t.Errorf("another process leased the partition at once: %+v", l)
			}
			again, ok := acquire(t, s, "a", ttl, true)
			if !ok || again.Token == old.Token {
				t.Fatalf("leased again: %+v, %t", again, ok)
			}
			if !settle(t, s, settlement(again, again.Settled+1)) {
				t.Error("lost under the new lease")
			}
		})
	}
}

// TestTakeOverAfterACrashWaits: others wait for a process that does not return after the crash, but no longer than its
// TTL.
func TestTakeOverAfterACrashWaits(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	server := newCrashing(t)
	_, db := server.database(t, mysqlstore.Config{Partitions: 1})
	s := newStore(t, db, mysqlstore.Config{})
	acquire(t, s, "a", ttl, false)
	server.crash(t)
	db.SetMaxIdleConns(0)
	began := time.Now()
	w := &world{t: t, db: db, store: s}
	w.until("take-over after a crash", func() bool {
		_, ok := acquire(t, s, "b", ttl, false)
		return ok
	})
	if waited := time.Since(began); waited < ttl*9/10 {
		t.Errorf("the partition was taken over %s after the crash, before the TTL of %s was over", waited, ttl)
	}
}

// TestCopyOfAnIncarnationDoesNotCount: a replica has the row of its source; when it is promoted every lease has ended.
func TestCopyOfAnIncarnationDoesNotCount(t *testing.T) {
	t.Parallel()
	source := newCrashing(t, "--log-bin=binlog", "--binlog-format=MIXED", "--server-id=1", "--sync-binlog=0")
	replica := newCrashing(t, "--server-id=2")
	u, err := url.Parse(source.URL)
	must(t, err)
	_, db := source.database(t, mysqlstore.Config{Partitions: 1})
	s := newStore(t, db, mysqlstore.Config{})
	lease, _ := acquire(t, s, "a", time.Hour, false)
	if !settle(t, s, settlement(lease, 1)) {
		t.Fatal("lost before the failover")
	}
	there := open(t, replica.config(t))
	exec(t, there, "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT="+u.Port()+", MASTER_USER='root', MASTER_USE_GTID=no, "+
		"MASTER_LOG_FILE='binlog.000001', MASTER_LOG_POS=4")
	exec(t, there, "START SLAVE")
	w := &world{t: t, db: there}
	w.until("the settlement arrives on the replica", func() bool {
		var n int
		err := there.QueryRow("SELECT number FROM shop.postrider_cursors").Scan(&n)
		return err == nil && n == 1
	})
	exec(t, there, "STOP SLAVE")
	if n := w.count("SELECT COUNT(*) FROM shop.postrider_incarnations"); n != 1 {
		t.Fatalf("the replica has %d incarnations, want the copy of its source's", n)
	}
	in := replica.config(t)
	in.DBName = "shop"
	promoted := newStore(t, open(t, in), mysqlstore.Config{})
	if settle(t, promoted, settlement(lease, 2)) {
		t.Error("settled on the promoted replica under the lease of its source")
	}
	if held, err := promoted.FindHeld(t.Context(), "r", []store.LeaseRef{lease.Ref()}, []string{"k"}); err != nil || len(held.Lost) != 1 {
		t.Errorf("keys looked up on the promoted replica under the lease of its source: %+v, %v; want it lost", held, err)
	}
	if l, ok := acquire(t, promoted, "b", time.Second, false); ok {
		t.Errorf("leased at once although the former holder may be at work: %+v", l)
	}
	if _, ok := acquire(t, promoted, "a", time.Hour, true); !ok {
		t.Error("the holder cannot go on")
	}
	if settle(t, promoted, settlement(lease, 2)) {
		t.Error("settled under the old token after the partition was leased again")
	}
}

// TestStatementsThatReachDifferentServersAreNamed: this is logged once, however often it costs leases.
func TestStatementsThatReachDifferentServersAreNamed(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.migrated(t, nil, mysqlstore.Config{Partitions: 1})
	var log bytes.Buffer
	s := newStore(t, db, mysqlstore.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	acquire(t, s, "a", time.Hour, false)
	for i := range 6 { // the other server, and this one
		exec(t, db, "UPDATE postrider_incarnations SET incarnation = ?", []string{"x-1", "x-2"}[i%2])
		acquire(t, s, "a", time.Hour, true)
	}
	if n := strings.Count(log.String(), "statements reach different servers"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, &log)
	}
}

// TestPausedProcessHoldsNoLock: a process that stops in the middle of a transaction makes others wait at most for the
// idle timeout, and the pool's connections are unchanged afterwards.
func TestPausedProcessHoldsNoLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{IdleTimeout: time.Second})
	w.db.SetMaxOpenConns(1)
	for _, end := range []func(context.Context, *sql.Tx) error{w.store.Commit, w.store.Rollback, func(ctx context.Context, tx *sql.Tx) error {
		w.lease.Settled++
		_, err := w.store.CommitSettled(ctx, tx, "r", settlement(w.lease, w.lease.Settled))
		return err
	}} {
		tx := w.begin()
		var limit int
		must(t, tx.QueryRow("SELECT @@SESSION.idle_transaction_timeout").Scan(&limit))
		if limit != 1 {
			t.Errorf("within the transaction the limit is %d s, want 1", limit)
		}
		must(t, end(t.Context(), tx))
		if n := w.count("SELECT @@SESSION.idle_transaction_timeout"); n != w.count("SELECT @@GLOBAL.idle_transaction_timeout") {
			t.Errorf("after the transaction the limit is %d s", n)
		}
	}
	must(t, w.store.Release(t.Context(), "r", nil))
	if n := w.count("SELECT @@SESSION.idle_transaction_timeout"); n != 0 {
		t.Errorf("after a transaction of the store the limit is %d s", n)
	}
	w.db.SetMaxOpenConns(0)
	paused := w.begin()
	exec(t, paused, "SELECT * FROM postrider_cursors FOR UPDATE")
	began := time.Now()
	must(t, w.store.Release(t.Context(), "r", []store.LeaseRef{w.lease.Ref()}))
	if waited := time.Since(began); waited > 15*time.Second {
		t.Errorf("waited %s for the lock of a paused process", waited)
	}
	if w.store.Commit(t.Context(), paused) == nil {
		t.Error("the paused transaction was committed")
	}
}

// TestIncarnationsOnDisk: where the MEMORY engine is not allowed, a crash must lose nothing.
func TestIncarnationsOnDisk(t *testing.T) {
	t.Parallel()
	server := newCrashing(t, "--innodb-flush-log-at-trx-commit=1")
	d, db := server.database(t, mysqlstore.Config{Partitions: 1})
	exec(t, db, "ALTER TABLE postrider_incarnations ENGINE=InnoDB")
	s := newStore(t, db, mysqlstore.Config{})
	lease, _ := acquire(t, s, "a", time.Hour, false)
	if !settle(t, s, settlement(lease, 1)) {
		t.Fatal("lost before the crash")
	}
	server.crash(t)
	db.SetMaxIdleConns(0)
	if !settle(t, s, settlement(lease, 1)) || !settle(t, s, settlement(lease, 2)) {
		t.Error("lost after the crash, which has lost nothing")
	}
	exec(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
	_, err := mysqlstore.New(d.open(t, nil), mysqlstore.Config{})
	wantError(t, err, mysqlstore.ErrUnsuitable)
}

// TestFenceMigratesDownAndUp: leases end, and settlement numbers continue.
func TestFenceMigratesDownAndUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	for n := range int64(3) {
		if !settle(t, w.store, settlement(w.lease, n+1)) {
			t.Fatal("lost")
		}
	}
	_, err := mysqlstore.Migrate(t.Context(), w.db, mysqlstore.Config{}, 4)
	must(t, err)
	if n := w.count("SELECT epoch FROM postrider_cursors WHERE owner = '' AND lease_until = 0 AND delivered = 3"); n != 4 {
		t.Errorf("epoch %d after the way down, want 4", n)
	}
	_, err = mysqlstore.Migrate(t.Context(), w.db, mysqlstore.Config{}, mysqlstore.Latest)
	must(t, err)
	s := newStore(t, w.db, mysqlstore.Config{})
	if settle(t, s, settlement(w.lease, 5)) {
		t.Error("settled under a lease of before the migration")
	}
	lease, ok := acquire(t, s, "b", time.Hour, false)
	if !ok || lease.Settled != 4 || lease.Cursor.Position != w.lease.Cursor.Position {
		t.Errorf("leased %+v, %t; want it at once after settlement 4", lease, ok)
	}
	if !settle(t, s, settlement(lease, lease.Settled+1)) {
		t.Error("the next settlement is lost")
	}
}
