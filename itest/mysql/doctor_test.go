//go:build !race

package mysql_test

import (
	"context"
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

// found waits for a finding about target.
func found(t *testing.T, s *mysqlstore.Store, check, target string) doctor.Finding {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r := result(t, s, check)
		for _, f := range r.Findings {
			if strings.Contains(f.Target, target) {
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
			still = still || strings.Contains(f.Target, target)
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
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	var id int64
	must(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
	for _, statement := range []string{"BEGIN", "UPDATE postrider_meta SET value = value + 1 WHERE name = 'partitions'"} {
		_, err := conn.ExecContext(t.Context(), statement)
		must(t, err)
	}
	thread := fmt.Sprintf("thread %d", id)
	if f := found(t, s, "db.old_transaction", thread); f.Level != doctor.Fault {
		t.Errorf("a transaction of two hours: %+v", f)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.Background(), "UPDATE postrider_meta SET value = value + 0 WHERE name = 'partitions'")
		waits <- err
	}()
	var blocked doctor.Finding
	for blocked.Fix == nil || !strings.Contains(blocked.Evidence, thread) {
		blocked = found(t, s, "db.blocked", "thread")
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
