//go:build !race

package mysql_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/doctor"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

var update = flag.Bool("update", false, "write objects.txt as migrations leave the objects")

// TestObjectsAreThoseOfMigrations: objects.txt lists what the migrations leave.
func TestObjectsAreThoseOfMigrations(t *testing.T) {
	t.Parallel()
	got, err := newStore(t, newDatabase(t).migrated(t, nil, mysqlstore.Config{}), mysqlstore.Config{}).Objects(t.Context())
	must(t, err)
	const path = "../../store/mysql/objects.txt"
	text := doctor.FormatObjects(got)
	if *update {
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != text {
		t.Errorf("%s is not what migrations leave (%v); run this test with -update", path, err)
	}
}

func result(t *testing.T, s *mysqlstore.Store, check string) doctor.Result {
	t.Helper()
	for _, c := range doctor.Checks(s) {
		if c.Name == check {
			return doctor.Run(t.Context(), []doctor.Check{c}, doctor.Options{Total: time.Hour}).Results[0]
		}
	}
	t.Fatalf("there is no check %s", check)
	return doctor.Result{}
}

// about says whether a finding is about target, and not about a thread whose number begins with that of target.
func about(f doctor.Finding, target string) bool {
	_, rest, found := strings.Cut(f.Target, target)
	return found && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

// found waits for a finding about target.
func found(t *testing.T, s *mysqlstore.Store, check, target string) doctor.Finding {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r := result(t, s, check)
		for _, f := range r.Findings {
			if about(f, target) {
				return f
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s finds nothing about %s: %+v", check, target, r)
		}
	}
}

func gone(t *testing.T, s *mysqlstore.Store, check, target string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		still := false
		for _, f := range result(t, s, check).Findings {
			still = still || about(f, target)
		}
		if !still {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s still finds %s", check, target)
		}
	}
}

func TestDoctorPasses(t *testing.T) {
	t.Parallel()
	s := newStore(t, newDatabase(t).migrated(t, nil, mysqlstore.Config{}), mysqlstore.Config{})
	for _, r := range doctor.Run(t.Context(), doctor.Checks(s), doctor.Options{Total: time.Hour}).Results {
		if r.Outcome != doctor.Passed && r.Check != "db.durability" && r.Check != "db.blocked" && r.Check != "db.connections" {
			t.Errorf("%s of a new database: %+v", r.Check, r)
		}
	}
}

func TestDoctorFindsAMissingIndex(t *testing.T) {
	t.Parallel()
	db := newDatabase(t).migrated(t, nil, mysqlstore.Config{})
	s := newStore(t, db, mysqlstore.Config{})
	exec(t, db, "DROP PROCEDURE postrider_publish")
	found(t, s, "schema.objects", "publish")
	var table, index string
	must(t, db.QueryRow(`SELECT table_name, index_name FROM information_schema.statistics WHERE table_schema = DATABASE()
		AND index_name <> 'PRIMARY' AND table_name = 'postrider_parked' LIMIT 1`).Scan(&table, &index))
	exec(t, db, fmt.Sprintf("DROP INDEX %s ON %s", index, table))
	f := found(t, s, "schema.objects", index)
	exec(t, db, strings.TrimSuffix(f.Fix[0].Command, ";"))
	gone(t, s, "schema.objects", index)
}

// TestDoctorFindsAnOldTransaction: the sessions of the doctor think that it is two hours later.
func TestDoctorFindsAnOldTransaction(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.migrated(t, nil, mysqlstore.Config{})
	s := newStore(t, d.open(t, map[string]string{"timestamp": fmt.Sprint(time.Now().Add(2 * time.Hour).Unix())}), mysqlstore.Config{})
	session := func(first string) (conn *sql.Conn, thread string) {
		conn, err := db.Conn(t.Context())
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		var id int64
		must(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		_, err = conn.ExecContext(t.Context(), first)
		must(t, err)
		return conn, fmt.Sprintf("thread %d", id)
	}
	const change = "UPDATE postrider_meta SET value = value + %d WHERE name = 'partitions'"
	conn, thread := session("BEGIN")
	_, err := conn.ExecContext(t.Context(), fmt.Sprintf(change, 1))
	must(t, err)
	if f := found(t, s, "db.old_transaction", thread); f.Level != doctor.Fault {
		t.Errorf("a transaction of two hours: %+v", f)
	}
	waiter, waiting := session("SET SESSION innodb_lock_wait_timeout = 3600")
	waits := make(chan error, 1)
	go func() {
		_, err := waiter.ExecContext(context.Background(), fmt.Sprintf(change, 0))
		waits <- err
	}()
	blocked := found(t, s, "db.blocked", waiting)
	if blocked.Evidence != thread+" holds the lock" || blocked.Fix == nil {
		t.Fatalf("a statement that waits for %s: %+v", thread, blocked)
	}
	exec(t, db, strings.TrimSuffix(blocked.Fix[0].Command, ";"))
	must(t, <-waits)
	gone(t, s, "db.old_transaction", thread)
}

// TestDoctorFindsMissingRights: the account of a relay without one right, and an account that does not see other sessions.
func TestDoctorFindsMissingRights(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	owner := d.migrated(t, nil, mysqlstore.Config{})
	user := "u" + d.config.DBName[len(d.config.DBName)-12:]
	exec(t, owner, "CREATE USER '"+user+"'@'%' IDENTIFIED BY ''")
	t.Cleanup(func() { exec(t, owner, "DROP USER '"+user+"'@'%'") })
	grants, err := mysqlstore.Grants(mysqlstore.Config{}, "relay", user)
	must(t, err)
	for statement := range strings.SplitSeq(grants, ";\n") {
		if strings.Contains(statement, "GRANT") {
			exec(t, owner, statement)
		}
	}
	c := d.config.Clone()
	c.User, c.Passwd = user, ""
	s := newStore(t, open(t, c), mysqlstore.Config{})
	if r := result(t, s, "schema.rights"); r.Outcome != doctor.Passed {
		t.Errorf("the rights of a relay: %+v", r)
	}
	exec(t, owner, "REVOKE DELETE ON postrider_held FROM '"+user+"'@'%'")
	f := found(t, s, "schema.rights", user)
	exec(t, owner, strings.TrimSuffix(f.Fix[0].Command, ";"))
	gone(t, s, "schema.rights", user)
	r := result(t, s, "db.old_transaction")
	if r.Outcome != doctor.CouldNotCheck || !r.Missing || r.Fix == nil {
		t.Fatalf("without PROCESS: %+v", r)
	}
	exec(t, owner, strings.TrimSuffix(r.Fix.Command, ";"))
	s = newStore(t, open(t, c), mysqlstore.Config{}) // global rights are those at the beginning of a session
	if r := result(t, s, "db.old_transaction"); r.Outcome == doctor.CouldNotCheck {
		t.Errorf("with PROCESS: %+v", r)
	}
}
