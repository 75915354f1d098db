//go:build !race

package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

var update = flag.Bool("update", false, "write objects.txt as migrations leave the objects")

// TestObjectsAreThoseOfMigrations: objects.txt lists what the migrations leave.
func TestObjectsAreThoseOfMigrations(t *testing.T) {
	t.Parallel()
	got, err := setup(t, postgres.Config{}).PresentObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := doctor.FormatObjects(got)
	if *update {
		if err := os.WriteFile("objects.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("objects.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("objects.txt is not what migrations leave; run this test with -update")
	}
}

// examine runs one check, and returns its result.
func (b *bundle) examine(t *testing.T, check string) doctor.Result {
	t.Helper()
	for _, c := range b.Store.ChecksNow() {
		if c.Name == check {
			return doctor.Run(t.Context(), []doctor.Check{c}, doctor.Options{Total: time.Hour}).Results[0]
		}
	}
	t.Fatalf("there is no check %s", check)
	return doctor.Result{}
}

// provoked checks that a check finds something about target, carries out its first fix of SQL as it is printed, on a connection of its
// own, and checks that the finding is gone.
func (b *bundle) provoked(t *testing.T, check, target string) {
	t.Helper()
	found := b.finding(t, check, target)
	conn, err := pgx.Connect(t.Context(), b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	fix := found.Fix[0].Command
	if _, err := conn.PgConn().Exec(t.Context(), fix).ReadAll(); err != nil {
		t.Fatalf("the fix %q: %v", fix, err)
	}
	b.gone(t, check, target)
}

// finding waits for a finding about target, and checks that it says everything.
func (b *bundle) finding(t *testing.T, check, target string) (found doctor.Finding) {
	t.Helper()
	eventually(t, func() bool {
		for _, f := range b.examine(t, check).Findings {
			if about(f.Target, target) {
				found = f
				return true
			}
		}
		return false
	}, fmt.Sprintf("%s finds nothing about %s: %+v", check, target, b.examine(t, check)))
	if found.Message == "" || found.Impact == "" || found.Evidence == "" || len(found.Fix) == 0 || found.Check != check {
		t.Errorf("a part of the finding is missing: %+v", found)
	}
	return found
}

func (b *bundle) gone(t *testing.T, check, target string) {
	t.Helper()
	eventually(t, func() bool {
		r := b.examine(t, check)
		for _, f := range r.Findings {
			if about(f.Target, target) {
				return false
			}
		}
		return r.Outcome != doctor.CouldNotCheck
	}, check+" still finds "+target)
}

func eventually(t *testing.T, ok func() bool, otherwise string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

func TestCheckObjects(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	if r := b.examine(t, "schema.objects"); r.Outcome != doctor.Passed {
		t.Errorf("a new schema: %+v", r)
	}
	b.exec(t, "drop index "+b.table("log_late"))
	b.provoked(t, "schema.objects", "log_late")
	b.exec(t, "drop index "+b.table("parked_due"))
	b.provoked(t, "schema.objects", "parked_due")
	b.exec(t, "alter table "+b.table("relays")+" drop column destination")
	if f := b.finding(t, "schema.objects", "relays.destination"); f.Level != doctor.Fault {
		t.Errorf("a missing column is %+v", f)
	}
	b.exec(t, "drop function "+b.table("log_drop"))
	b.finding(t, "schema.objects", "log_drop")
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	if r := b.examine(t, "schema.version"); r.Outcome != doctor.Passed {
		t.Errorf("a new schema: %+v", r)
	}
	if _, err := postgres.Migrate(t.Context(), b.pool, b.config, 14); err != nil {
		t.Fatal(err)
	}
	if f := b.finding(t, "schema.version", "migrations"); f.Fix[0].Command != "postrider migrate up" {
		t.Errorf("the fix is %+v", f.Fix)
	}
	if _, err := postgres.Migrate(t.Context(), b.pool, b.config, postgres.Latest); err != nil {
		t.Fatal(err)
	}
	b.gone(t, "schema.version", "migrations")
	if _, err := postgres.Migrate(t.Context(), b.pool, b.config, 0); err != nil {
		t.Fatal(err)
	}
	b.finding(t, "schema.version", "migrations")
}

func TestCheckRights(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	for _, what := range []string{"publisher", "relay", "consumer", "viewer", "operator", "admin"} {
		b.as(t, what)
	}
	if r := b.examine(t, "schema.rights"); r.Outcome != doctor.Passed {
		t.Errorf("roles with the documented rights: %+v", r)
	}
	b.exec(t, "revoke delete on "+b.table("cursors")+" from "+b.config.Schema+"_relay")
	b.exec(t, "revoke update on "+b.table("held")+" from "+b.config.Schema+"_relay")
	b.provoked(t, "schema.rights", "_relay")
	b.exec(t, "revoke insert on "+b.table("audit")+" from "+b.config.Schema+"_operator")
	b.provoked(t, "schema.rights", "_operator")
}

// TestCheckWithoutRights: as a role that sees nothing of other sessions, a check is not passed, and passes after the grant.
func TestCheckWithoutRights(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	viewer := b.as(t, "viewer")
	for _, check := range []string{"db.old_transaction", "db.blocked"} {
		r := viewer.examine(t, check)
		if r.Outcome != doctor.CouldNotCheck || r.Fix == nil || !r.Missing {
			t.Fatalf("%s without the right: %+v", check, r)
		}
		b.exec(t, r.Fix.Command)
		if r := viewer.examine(t, check); r.Outcome == doctor.CouldNotCheck { // others have transactions too
			t.Errorf("%s with the right: %+v", check, r)
		}
		b.exec(t, strings.NewReplacer("grant", "revoke", " to ", " from ").Replace(r.Fix.Command))
	}
	for _, c := range viewer.Store.ChecksNow() {
		if r := viewer.examine(t, c.Name); r.Outcome == doctor.CouldNotCheck && !r.Missing {
			t.Errorf("%s fails with the rights of a viewer: %s", c.Name, r.Reason)
		}
	}
}

func TestCheckTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	conn := b.connect(t)
	o, err := outbox.New(b.Store, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Publish(t.Context(), tx, &postrider.Message{Type: "t", Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if f := b.finding(t, "db.old_transaction", pid(conn)); !strings.Contains(f.Message, "published") {
		t.Errorf("a transaction that has published: %+v", f)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := b.pool.Exec(context.Background(), "truncate "+b.table("log"))
		waits <- err
	}()
	if f := b.finding(t, "db.blocked", "pid"); f.Level != doctor.Fault || !strings.Contains(f.Fix[0].Command, strings.TrimPrefix(pid(conn), "pid ")) {
		t.Errorf("a statement that waits: %+v", f)
	}
	b.provoked(t, "db.blocked", "pid")
	b.gone(t, "db.old_transaction", pid(conn))
	if err := <-waits; err != nil {
		t.Error(err)
	}
	_ = conn.Close(t.Context())
}

func TestCheckPrepared(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{}, 4) // others would see it
	conn := b.connect(t)
	gid := "it's " + randomName()
	b.run(t, conn, "begin", "insert into "+b.table("records")+" (kind, id, body) values ('k', 'i', '')", "prepare transaction '"+strings.ReplaceAll(gid, "'", "''")+"'")
	b.provoked(t, "db.old_transaction", gid)
}

func TestCheckIdle(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	conn := b.connect(t)
	b.run(t, conn, "begin", "select from "+b.table("held"))
	if f := b.finding(t, "db.old_transaction", pid(conn)); !strings.Contains(f.Message, "idle") {
		t.Errorf("an idle session: %+v", f)
	}
	b.provoked(t, "db.old_transaction", pid(conn))
}

func TestCheckAutovacuum(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.exec(t, "alter table "+b.table("cursors")+" set (autovacuum_enabled = false)")
	b.provoked(t, "db.autovacuum", "cursors")
}

// TestCheckDatabase has a database of its own, whose settings it changes.
func TestCheckDatabase(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{}, 4)
	u, err := url.Parse(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	database, role := strings.TrimPrefix(u.Path, "/"), b.role(t)
	b.exec(t, "alter database "+database+" set default_transaction_read_only = on")
	b.pool.Reset()
	conn := b.connect(t)
	if _, err := conn.PgConn().Exec(t.Context(), b.finding(t, "db.standby", "server").Fix[0].Command).ReadAll(); err != nil {
		t.Fatal(err)
	}
	b.pool.Reset() // the fix says to connect again
	b.gone(t, "db.standby", "server")

	b.exec(t, "alter role "+role+" in database "+database+" set synchronous_commit = off")
	b.pool.Reset()
	if f := b.finding(t, "db.durability", role); f.Level != doctor.Warning {
		t.Errorf("asynchronous commits: %+v", f)
	}
	b.exec(t, "alter role "+role+" in database "+database+" reset synchronous_commit")
	b.pool.Reset()
	b.gone(t, "db.durability", role)
}

func TestCheckSegments(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	if r := b.examine(t, "db.maintenance"); r.Outcome != doctor.Passed {
		t.Errorf("a new log: %+v", r)
	}
	var last string
	err := b.pool.QueryRow(t.Context(), "select string_agg(c.relname, ',' order by c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = $1::regclass",
		b.table("log")).Scan(&last)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(last, ",")[1:] {
		b.exec(t, "drop table "+b.config.Schema+"."+name)
	}
	b.finding(t, "db.maintenance", "log")
	// The fix: every relay maintains the log as soon as it runs.
	eventually(t, func() bool { _, err := b.Maintain(t.Context(), store.Retention{}); return err == nil }, "maintenance fails")
	b.gone(t, "db.maintenance", "log")
}

// TestCheckPooler needs PgBouncer in transaction mode.
func TestCheckPooler(t *testing.T) {
	t.Parallel()
	pooled := setup(t, postgres.Config{ListenDSN: withParam(t, startPgBouncer(t), "default_query_exec_mode", "exec")})
	pooled.finding(t, "db.pooler", "listen_url")
	_, err := postgres.New(pooled.pool, postgres.Config{ListenDSN: "postgres://u:top:secret%zz@h/d"})
	if err == nil || strings.Contains(err.Error(), "top") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a malformed address: %v", err)
	}
	direct := setup(t, postgres.Config{ListenDSN: dsn(t)})
	if r := direct.examine(t, "db.pooler"); r.Outcome != doctor.Passed {
		t.Errorf("without a pooler: %+v", r)
	}
}

func TestCheckConnections(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	role := b.config.Schema + "_few"
	b.exec(t, "create role "+role+" login superuser connection limit 2")
	t.Cleanup(func() { b.exec(t, "drop role "+role) })
	u, err := url.Parse(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	pool := newPool(t, u.String(), 2)
	few := &bundle{Store: open(t, pool, b.config), pool: pool, config: b.config, dsn: u.String()}
	few.finding(t, "db.connections", "pool of this process")
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	few.finding(t, "db.connections", "role of this program")
	held.Release()
	pool.Close()
	pool = newPool(t, u.String(), 2)
	b.exec(t, "alter role "+role+" connection limit -1")
	few = &bundle{Store: open(t, newPool(t, u.String(), 8), b.config), pool: pool, config: b.config, dsn: u.String()}
	if r := few.examine(t, "db.connections"); r.Outcome != doctor.Passed {
		t.Errorf("with more connections: %+v", r)
	}
}

// TestChecksPass: all checks pass on a new outbox, in a transaction that may change nothing, except what the settings of the
// test server are.
func TestChecksPass(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{}, 8)
	for _, r := range doctor.Run(t.Context(), b.Store.Checks(), doctor.Options{Total: time.Hour}).Results {
		if r.Outcome != doctor.Passed && r.Check != "db.durability" && r.Check != "db.connections" && r.Check != "db.slot" {
			t.Errorf("%s: %+v", r.Check, r)
		}
	}
}

func TestCheckSlot(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	slot := b.config.Schema + "_slot"
	if _, err := b.pool.Exec(t.Context(), "select pg_create_physical_replication_slot($1, true)", slot); err != nil {
		t.Fatal(err)
	}
	b.exec(t, "insert into "+b.table("records")+" (kind, id, body) select 'k', g::text, decode(repeat('ab', 500), 'hex') from generate_series(1, 200) as g")
	b.provoked(t, "db.slot", slot)
}

func pid(c *pgx.Conn) string { return fmt.Sprintf("pid %d", c.PgConn().PID()) }

func (b *bundle) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (b *bundle) run(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func (b *bundle) role(t *testing.T) (role string) {
	t.Helper()
	if err := b.pool.QueryRow(t.Context(), "select current_user").Scan(&role); err != nil {
		t.Fatal(err)
	}
	return role
}
