//go:build !race

package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestMigrateWaitsForLocks: a transaction that has parked a message stays open. The migration of that table says so when it has waited for the
// first time, and when it gives up; publishers go on all the time. A server that tells who has locks is asked for the one in the way.
func TestMigrateWaitsForLocks(t *testing.T) {
	t.Parallel()
	db := newDatabase(t).open(t, nil)
	_, err := mysqlstore.Migrate(t.Context(), db, mysqlstore.Config{}, 10)
	must(t, err)
	handler, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = handler.ExecContext(t.Context(), `DELETE FROM postrider_parked WHERE relay = 'r'`)
	must(t, err)
	var thread int
	must(t, handler.QueryRowContext(t.Context(), `SELECT CONNECTION_ID()`).Scan(&thread))
	bystander, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer bystander.Rollback()
	var other, rows int
	must(t, bystander.QueryRowContext(t.Context(), `SELECT CONNECTION_ID(), (SELECT COUNT(*) FROM postrider_log)`).Scan(&other, &rows))
	var tells bool // by itself, as MySQL does
	_ = db.QueryRowContext(t.Context(), `SELECT COUNT(*) > 0 FROM performance_schema.metadata_locks`).Scan(&tells)

	var logged bytes.Buffer
	config := mysqlstore.Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // one attempt takes 3
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := mysqlstore.Migrate(ctx, db, config, mysqlstore.Latest)
		ended <- err
	}()
	publisher, err := db.Conn(t.Context())
	must(t, err)
	defer publisher.Close()
	published := 0
	for migrating := true; migrating; published++ {
		select {
		case err = <-ended:
			migrating = false
		default:
		}
		_, err := publisher.ExecContext(t.Context(), `INSERT INTO postrider_log (partition_id, id, topic, type, message_time, created_at, headers, payload) VALUES (0, ?, 't', 't', 1, 1, '', '')`, fmt.Sprint(published))
		must(t, err)
	}
	checkInUse(t, err, thread, other, tells)
	if line := logged.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, "tries again") || !strings.Contains(line, fmt.Sprintf("thread %d ", thread)) {
		t.Errorf("logged while it waited, want one line that names thread %d:\n%s", thread, line)
	}
	if !tells {
		installLockInfo(t, db)
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second) // no time for a second attempt
		defer cancel()
		_, err = mysqlstore.Migrate(short, db, config, mysqlstore.Latest)
		checkInUse(t, err, thread, other, true)
	}
	if published < 2 {
		t.Error("nobody could publish while the migration waited")
	}
	must(t, handler.Rollback())
	_, err = mysqlstore.Migrate(t.Context(), db, mysqlstore.Config{}, mysqlstore.Latest)
	must(t, err)
}

// installLockInfo has MariaDB tell who has locks.
func installLockInfo(t *testing.T, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `INSTALL SONAME 'metadata_lock_info'`)
	must(t, err)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), `UNINSTALL SONAME 'metadata_lock_info'`)
		must(t, err)
	})
}

// checkInUse expects the error of a migration that a thread is in the way of. The other one is named only if the server does not tell who has locks.
func checkInUse(t *testing.T, err error, thread, other int, tells bool) {
	t.Helper()
	if !errors.Is(err, store.ErrInUse) {
		t.Fatalf("migrate: %v, want ErrInUse", err)
	}
	for _, words := range []string{"up 0011_parked", fmt.Sprintf("thread %d ", thread), fmt.Sprintf("KILL %d", thread), "run the migration again"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("no %s in: %v", words, err)
		}
	}
	if listed := strings.Contains(err.Error(), fmt.Sprintf("thread %d ", other)); listed == tells || tells == strings.Contains(err.Error(), "which may") {
		t.Errorf("the server tells who has locks: %t, and a transaction that is not in the way is named: %t: %v", tells, listed, err)
	}
}

// TestMigrateKeepsTheLimitsOfSessions: the pool's connections, and those of other tools, wait for locks as before.
func TestMigrateKeepsTheLimitsOfSessions(t *testing.T) {
	t.Parallel()
	db := newDatabase(t).open(t, map[string]string{"lock_wait_timeout": "77", "innodb_lock_wait_timeout": "78"})
	db.SetMaxOpenConns(1)
	check := func() {
		t.Helper()
		var table, row int
		must(t, db.QueryRowContext(t.Context(), `SELECT @@SESSION.lock_wait_timeout, @@SESSION.innodb_lock_wait_timeout`).Scan(&table, &row))
		if table != 77 || row != 78 {
			t.Errorf("the session waits %d s for the lock of a table and %d s for that of a row, want 77 and 78", table, row)
		}
	}
	scripts, err := mysqlstore.MigrationScripts(mysqlstore.Config{})
	must(t, err)
	for _, s := range scripts {
		for i, text := range s.Up {
			_, err := db.ExecContext(t.Context(), text)
			must(t, err)
			if i == 1 {
				var table, row int
				must(t, db.QueryRowContext(t.Context(), `SELECT @@SESSION.lock_wait_timeout, @@SESSION.innodb_lock_wait_timeout`).Scan(&table, &row))
				if table != 3 || row != 3 {
					t.Errorf("a script waits %d s for the lock of a table and %d s for that of a row, want 3", table, row)
				}
			}
		}
		check()
	}
	_, err = mysqlstore.Migrate(t.Context(), db, mysqlstore.Config{}, 0)
	if err == nil {
		check()
	}
}
