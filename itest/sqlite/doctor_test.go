package sqlite_test

import (
	"database/sql"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/store/sqlite"
)

var update = flag.Bool("update", false, "write objects.txt as migrations leave the objects")

// TestObjectsAreThoseOfMigrations: objects.txt lists what the migrations leave.
func TestObjectsAreThoseOfMigrations(t *testing.T) {
	t.Parallel()
	_, s := checked(t)
	got, err := s.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const path = "../../store/sqlite/objects.txt"
	text := doctor.FormatObjects(got)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != text {
		t.Errorf("%s is not what migrations leave (%v); run this test with -update", path, err)
	}
}

func checked(t *testing.T) (*sql.DB, *sqlite.Store) {
	t.Helper()
	db := file(filepath.Join(t.TempDir(), "outbox.db")).open(t, "")
	if _, err := sqlite.Migrate(t.Context(), db, sqlite.Config{}, sqlite.Latest); err != nil {
		t.Fatal(err)
	}
	return db, newStore(t, db, sqlite.Config{})
}

// finding runs one check, and returns its first finding; none if it passed.
func finding(t *testing.T, s doctor.Store, check string) doctor.Finding {
	t.Helper()
	for _, r := range doctor.Run(t.Context(), doctor.Checks(s), doctor.Options{Total: time.Hour}).Results {
		if r.Check == check && r.Outcome == doctor.CouldNotCheck {
			t.Fatalf("%s: %s", check, r.Reason)
		}
		if r.Check == check && len(r.Findings) > 0 {
			return r.Findings[0]
		}
	}
	return doctor.Finding{}
}

func TestDoctorPasses(t *testing.T) {
	t.Parallel()
	_, s := checked(t)
	for _, r := range doctor.Run(t.Context(), doctor.Checks(s), doctor.Options{Total: time.Hour}).Results {
		if r.Outcome != doctor.Passed && r.Check != "db.disk" {
			t.Errorf("%s of a new file: %+v", r.Check, r)
		}
	}
}

func TestDoctorFindsAMissingIndex(t *testing.T) {
	t.Parallel()
	db, s := checked(t)
	var index string
	err := db.QueryRow("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'postrider_parked' AND sql IS NOT NULL LIMIT 1").Scan(&index)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DROP INDEX " + index); err != nil {
		t.Fatal(err)
	}
	f := finding(t, s, "schema.objects")
	if f.Target != index || len(f.Fix) == 0 {
		t.Fatalf("without index %s: %+v", index, f)
	}
	if _, err := db.Exec(f.Fix[0].Command); err != nil {
		t.Fatalf("the fix %q: %v", f.Fix[0].Command, err)
	}
	if f := finding(t, s, "schema.objects"); f.Message != "" {
		t.Errorf("after its fix: %+v", f)
	}
	if _, err := db.Exec("DROP TABLE postrider_unrouted"); err != nil {
		t.Fatal(err)
	}
	if f := finding(t, s, "schema.objects"); f.Target != "postrider_unrouted" || f.Level != doctor.Fault {
		t.Errorf("without a table: %+v", f)
	}
}

func TestDoctorFindsAWriteAheadLog(t *testing.T) {
	t.Parallel()
	db, s := checked(t)
	var path string
	if err := db.QueryRow("SELECT file FROM pragma_database_list").Scan(&path); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path+"-wal", 2<<30); err != nil { // zeros are no frames
		t.Fatal(err)
	}
	f := finding(t, s, "db.old_transaction")
	if f.Level != doctor.Warning || len(f.Fix) != 2 {
		t.Fatalf("a large write-ahead log: %+v", f)
	}
	if _, err := db.Exec(f.Fix[1].Command); err != nil {
		t.Fatal(err)
	}
	if f := finding(t, s, "db.old_transaction"); f.Message != "" {
		t.Errorf("after its fix: %+v", f)
	}
}

func TestDoctorFindsLostDurability(t *testing.T) {
	t.Parallel()
	path := file(filepath.Join(t.TempDir(), "outbox.db"))
	if _, err := sqlite.Migrate(t.Context(), path.open(t, ""), sqlite.Config{}, sqlite.Latest); err != nil {
		t.Fatal(err)
	}
	if f := finding(t, newStore(t, path.open(t, "_pragma=synchronous(off)"), sqlite.Config{}), "db.durability"); f.Level != doctor.Fault {
		t.Errorf("synchronous off: %+v", f)
	}
	if f := finding(t, newStore(t, path.open(t, "_pragma=synchronous(full)"), sqlite.Config{}), "db.durability"); f.Message != "" {
		t.Errorf("synchronous full: %+v", f)
	}
}
