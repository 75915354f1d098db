//go:build !race

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// about says whether a finding's target is the given one, and not a process whose number begins with it.
func about(found, target string) bool {
	_, rest, ok := strings.Cut(found, target)
	return ok && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

// waitsForLockSQL counts the migrations that wait for the lock of table $1.
const waitsForLockSQL = `select count(*) from pg_locks l join pg_stat_activity a on a.pid = l.pid
	where l.relation = $1::text::regclass and not l.granted and a.query like 'lock table %' and l.` + locksHere

// migrating is a migration to the newest version that does not get its locks, and tries until the test has seen enough.
type migrating struct {
	log    logged // has a line once an attempt has failed
	ended  chan error
	cancel context.CancelFunc
}

// migrating starts a migration and waits until it waits for a table.
func (b *bundle) migrating(t *testing.T, config postgres.Config, table string) *migrating {
	t.Helper()
	m := &migrating{ended: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // its deadline counts, not the default
	t.Cleanup(cancel)
	m.cancel = cancel
	config.Logger = slog.New(slog.NewTextHandler(&m.log, nil))
	go func() {
		_, err := postgres.Migrate(ctx, b.pool, config, postgres.Latest)
		m.ended <- err
	}()
	eventually(t, func() bool { return one[int](t, b.pool, waitsForLockSQL, b.table(table)) > 0 }, "the migration does not wait for "+table)
	return m
}

// tried reports whether an attempt has failed.
func (m *migrating) tried() bool { return m.log.has("tries again") }

// stop ends the migration after an attempt that failed, and returns its error.
func (m *migrating) stop(t *testing.T) error {
	t.Helper()
	eventually(t, m.tried, "no attempt fails")
	m.cancel()
	return <-m.ended
}

// session is a transaction that stays open, on a connection with a name.
func (b *bundle) session(t *testing.T, sql string) (pid int, end func()) {
	t.Helper()
	pool := newPool(t, withParam(t, dsn(t), "application_name", "night batch"), 1)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return one[int](t, tx, "select pg_backend_pid()"), func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
}

func checkInUse(t *testing.T, err error, pid int, table string) {
	t.Helper()
	if !errors.Is(err, store.ErrInUse) {
		t.Fatalf("migrate: %v, want ErrInUse", err)
	}
	for _, words := range []string{fmt.Sprintf("session %d", pid), `"night batch"`, "idle", table, fmt.Sprintf("pg_terminate_backend(%d)", pid), "run the migration again"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("no %s in: %v", words, err)
		}
	}
}

const accessExclusiveSQL = "select count(*) from pg_locks where relation = $1::text::regclass and mode = 'AccessExclusiveLock' and " + locksHere

// TestMigrateDoesNotStopPublishers: a transaction that has parked a message stays open. The migration changes that table and the log.
func TestMigrateDoesNotStopPublishers(t *testing.T) {
	t.Parallel()
	b, migrate := older(t, 7)
	pid, end := b.session(t, fmt.Sprintf("lock table %s in row exclusive mode", b.table("parked"))) // as an insert does
	m := b.migrating(t, b.config.Impatient(500*time.Millisecond, 100*time.Millisecond), "parked")
	insert := fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, $1::text, 't', 't')", b.table("log"))
	published := 0
	for tried := false; !tried; {
		tried = m.tried()
		published++
		if n := one[int](t, b.pool, accessExclusiveSQL, b.table("log")); n > 0 {
			t.Fatal("the migration holds the log, or waits for it, before it has all other locks")
		}
		b.exec(t, insert, fmt.Sprint(published))
	}
	checkInUse(t, m.stop(t), pid, "parked")
	end()
	migrate(postgres.Latest)
	b.Store = open(t, b.pool, b.config)
	if n := b.deliverAll(t, "r", b.lease(t, "r")); n != published {
		t.Errorf("%d messages are delivered, want %d", n, published)
	}
}

// TestMigrateWaitsForPublishers: a transaction that has published stays open. Publishers wait behind the migration until it gives up
// the lock, and the migration goes on by itself when the transaction has ended. It says once whom it waits for.
func TestMigrateWaitsForPublishers(t *testing.T) {
	t.Parallel()
	b, _ := older(t, 7)
	pid, end := b.session(t, fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'open', 't', 't')", b.table("log")))
	m := b.migrating(t, b.config.Impatient(500*time.Millisecond, 100*time.Millisecond), "log")
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'waits', 't', 't')", b.table("log"))) // without a limit of its own, and the other transaction stays open
	checkInUse(t, m.stop(t), pid, "log")

	m = b.migrating(t, b.config.Impatient(10*time.Minute, 0), "log")
	end()
	if err := <-m.ended; err != nil {
		t.Fatal(err)
	}
	patient, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // its deadline counts, not the default
	defer cancel()
	if _, err := postgres.Migrate(t.Context(), b.pool, b.config, 7); err != nil {
		t.Fatal(err)
	}
	pid, end = b.session(t, fmt.Sprintf("lock table %s in row exclusive mode", b.table("log")))
	again := make(chan error, 1)
	var logged bytes.Buffer
	config := b.config.Impatient(200*time.Millisecond, 200*time.Millisecond)
	config.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	go func() {
		_, err := postgres.Migrate(patient, b.pool, config, postgres.Latest)
		again <- err
	}()
	waits := func() bool { return one[int](t, b.pool, waitsForLockSQL, b.table("log")) > 0 }
	for range 5 { // attempts
		eventually(t, waits, "the migration does not try again")
		eventually(t, func() bool { return !waits() }, "the migration does not let others go on")
	}
	end()
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	if line := logged.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, fmt.Sprintf("session %d ", pid)) || !strings.Contains(line, "tries again") {
		t.Errorf("logged while it waited, want one line that names session %d:\n%s", pid, line)
	}
}

// TestMigrateNamesAPreparedTransaction: nobody would find it among the sessions.
func TestMigrateNamesAPreparedTransaction(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{}, 4) // others would see it
	if _, err := postgres.Migrate(t.Context(), b.pool, b.config, 13); err != nil {
		t.Fatal(err)
	}
	gid := randomName()
	conn := b.connect(t)
	b.run(t, conn, "begin", "lock table "+b.table("parked")+" in row exclusive mode", "prepare transaction '"+gid+"'")
	_, err := postgres.Migrate(t.Context(), b.pool, b.config.Impatient(100*time.Millisecond, 0), postgres.Latest)
	rollback := "rollback prepared '" + gid + "'"
	if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), rollback) || !strings.Contains(err.Error(), "parked") {
		t.Fatalf("migrate: %v, want ErrInUse with %s", err, rollback)
	}
	b.run(t, conn, rollback)
	if _, err := postgres.Migrate(t.Context(), b.pool, b.config, postgres.Latest); err != nil {
		t.Fatal(err)
	}
}

var segmentName = regexp.MustCompile(`^log_(default|\d+)$`)

// TestMigrationsNameTheirLocks: each migration says which tables it locks against their readers or writers, and no other ones.
func TestMigrationsNameTheirLocks(t *testing.T) {
	t.Parallel()
	pool := newPool(t, dsn(t), 1)
	config := postgres.Config{Schema: newSchema(t, pool), Prefix: "p_"}
	scripts, err := postgres.MigrationScripts(config)
	if err != nil {
		t.Fatal(err)
	}
	lockLine := regexp.MustCompile(`(?m)^lock table .*;$`)
	step := func(version int, text string) {
		t.Helper()
		locked := locks(t, pool, config.Schema, lockLine.ReplaceAllString(text, ""))
		want := postgres.LockedBy(postgres.MigrationStep{SQL: text})
		slices.Sort(want)
		if !slices.Equal(locked, want) {
			t.Errorf("version %d locks %q and names %q:\n%.300s", version, locked, want, text)
		}
		if len(want) > 0 && !lockLine.MatchString(text) {
			t.Errorf("the script of version %d does not take its locks first", version)
		}
		if !strings.Contains(text, "set local lock_timeout = '3000ms';") {
			t.Errorf("the script of version %d does not limit how long it waits", version)
		}
	}
	for _, s := range scripts {
		step(s.Version, s.Up[0])
	}
	for _, s := range slices.Backward(scripts) {
		step(s.Version, s.Down[0])
	}
}

// locks runs a migration and returns which tables, without the prefix p_, it locked against their readers or writers.
func locks(t *testing.T, pool *pgxpool.Pool, schema, text string) (locked []string) {
	t.Helper()
	ctx := t.Context()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		names := map[uint32]string{}
		rows, err := tx.Query(ctx, "select oid, relname::text from pg_class where relnamespace = $1::text::regnamespace and relkind in ('r', 'p')", schema)
		if err != nil {
			return err
		}
		var oid uint32
		var name string
		if _, err := pgx.ForEachRow(rows, []any{&oid, &name}, func() error {
			names[oid] = segmentName.ReplaceAllString(strings.TrimPrefix(name, "p_"), "log")
			return nil
		}); err != nil {
			return err
		}
		if err := tx.Conn().PgConn().Exec(ctx, text).Close(); err != nil {
			return err
		}
		rows, err = tx.Query(ctx, `select relation::oid from pg_locks where pid = pg_backend_pid() and locktype = 'relation'
			and mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')`)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&oid}, func() error {
			if name := names[oid]; name != "" && !slices.Contains(locked, name) {
				locked = append(locked, name)
			}
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(locked)
	return locked
}
