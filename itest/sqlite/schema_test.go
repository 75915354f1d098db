package sqlite_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

func tables(t *testing.T, f file) []string {
	t.Helper()
	rows, err := f.open(t, "").QueryContext(t.Context(), `SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		out = append(out, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// steps are the names of all migrations, up and down.
func steps(t *testing.T) (up, down []string) {
	t.Helper()
	all, err := sqlite.MigrationStatus(t.Context(), newFile(t).open(t, ""), sqlite.Config{})
	if err != nil || len(all) == 0 {
		t.Fatalf("migrations of an empty database: %+v, %v", all, err)
	}
	for _, m := range all {
		up = append(up, fmt.Sprintf("up %04d_%s", m.Version, m.Name))
		down = append(down, fmt.Sprintf("down %04d_%s", m.Version, m.Name))
	}
	slices.Reverse(down)
	return up, down
}

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	db := f.open(t, "")
	cfg := sqlite.Config{Prefix: "my_"}
	up, down := steps(t)
	for range 2 {
		done, err := sqlite.Migrate(t.Context(), db, cfg, sqlite.Latest)
		if err != nil || !slices.Equal(done, up) {
			t.Fatalf("migrate up: %v, %v; want %v", done, err, up)
		}
		if done, err = sqlite.Migrate(t.Context(), db, cfg, sqlite.Latest); err != nil || len(done) > 0 {
			t.Fatalf("migrate up again: %v, %v; want nothing to do", done, err)
		}
		status, err := sqlite.MigrationStatus(t.Context(), db, cfg)
		if err != nil || len(status) != len(up) {
			t.Fatalf("status: %+v, %v", status, err)
		}
		for _, m := range status {
			if !m.Applied || m.AppliedAt.IsZero() {
				t.Errorf("status shows %+v after migrating up", m)
			}
		}
		for _, name := range tables(t, f) {
			if !strings.HasPrefix(name, "my_") {
				t.Errorf("%s does not begin with the prefix", name)
			}
		}
		newStore(t, db, cfg)
		done, err = sqlite.Migrate(t.Context(), db, cfg, 0)
		if err != nil || !slices.Equal(done, down) {
			t.Fatalf("migrate down: %v, %v; want %v", done, err, down)
		}
		if left := tables(t, f); len(left) > 0 {
			t.Fatalf("left after migrating down: %v", left)
		}
	}
}

func TestManyInstancesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	var mu sync.Mutex
	var all []string
	var wg sync.WaitGroup
	for range 8 {
		db := f.open(t, "")
		wg.Go(func() {
			done, err := sqlite.Migrate(t.Context(), db, sqlite.Config{}, sqlite.Latest)
			if err != nil {
				t.Error(err)
			}
			if _, err := sqlite.New(db, sqlite.Config{}); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, done...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	if up, _ := steps(t); !slices.Equal(all, up) {
		t.Errorf("applied by all instances together: %v, want each of %v once", all, up)
	}
}

func TestPrintedMigrationsMakeAWorkingSchema(t *testing.T) {
	t.Parallel()
	text, err := sqlite.PrintMigrations(sqlite.Config{Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	db := newFile(t).open(t, "")
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if n, err := newStore(t, db, sqlite.Config{}).Partitions(t.Context()); n != 3 || err != nil {
		t.Errorf("%d partitions, %v; want 3", n, err)
	}
}

// TestMigrationScripts: the scripts for other tools make a working schema, one by one, and take it back.
func TestMigrationScripts(t *testing.T) {
	t.Parallel()
	scripts, err := sqlite.MigrationScripts(sqlite.Config{Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	db := newFile(t).open(t, "")
	run := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	for _, s := range scripts {
		run(s.SQL(false))
	}
	if n, err := newStore(t, db, sqlite.Config{}).Partitions(t.Context()); n != 3 || err != nil {
		t.Errorf("%d partitions, %v; want 3", n, err)
	}
	for _, s := range slices.Backward(scripts) {
		run(s.SQL(true))
	}
	var left int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_schema WHERE name LIKE 'postrider%'`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d tables and indexes are left, %v", left, err)
	}
}

func TestSchemaOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	db := f.open(t, "")
	refused := func(want error) {
		t.Helper()
		_, err := sqlite.New(db, sqlite.Config{})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "postrider migrate up") {
			t.Errorf("got %v, want %v with the command that helps", err, want)
		}
	}
	refused(sqlite.ErrSchemaMissing)
	if up, _ := steps(t); len(up) > 1 {
		if _, err := sqlite.Migrate(t.Context(), db, sqlite.Config{}, len(up)-1); err != nil {
			t.Fatal(err)
		}
		refused(sqlite.ErrSchemaOlder)
	}
	f.migrated(t, sqlite.Config{})
	if _, err := db.ExecContext(t.Context(), `INSERT INTO postrider_migrations VALUES (9999, 'of_the_future', 1)`); err != nil {
		t.Fatal(err)
	}
	refused(sqlite.ErrSchemaNewer)
	if _, err := sqlite.Migrate(t.Context(), db, sqlite.Config{}, 0); !errors.Is(err, sqlite.ErrSchemaNewer) {
		t.Errorf("migrating down from an unknown version: %v, want ErrSchemaNewer", err)
	}
	status, err := sqlite.MigrationStatus(t.Context(), db, sqlite.Config{})
	if err != nil || !status[len(status)-1].Unknown {
		t.Errorf("status: %+v, %v; want the unknown migration shown", status, err)
	}
}

func TestPartitionsOfAnExistingOutboxCount(t *testing.T) {
	t.Parallel()
	db := newFile(t).migrated(t, sqlite.Config{Partitions: 5})
	if n, err := newStore(t, db, sqlite.Config{}).Partitions(t.Context()); n != 5 || err != nil {
		t.Errorf("%d partitions, %v; want 5", n, err)
	}
	if _, err := sqlite.New(db, sqlite.Config{Partitions: 6}); err == nil ||
		!strings.Contains(err.Error(), "is 6") || !strings.Contains(err.Error(), "has 5") {
		t.Errorf("another number of partitions: %v, want an error that names both", err)
	}
}

func TestTwoOutboxesInOneFile(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	a := newStore(t, f.migrated(t, sqlite.Config{Prefix: "a_"}), sqlite.Config{Prefix: "a_"})
	b := newStore(t, f.migrated(t, sqlite.Config{Prefix: "b_"}), sqlite.Config{Prefix: "b_"})
	publish(t.Context(), t, a, benchMessages(3)...)
	for s, want := range map[*sqlite.Store]int{a: 3, b: 0} {
		if got := fetchAll(t, s); len(got) != want {
			t.Errorf("fetched %d, want %d", len(got), want)
		}
	}
}

// TestFenceMigrationKeepsWhatIsThere: after migrating up, partitions without a holder are free at once and those of a
// process that counts as alive are not; after migrating down, leases and decisions are gone and everything else stays.
func TestFenceMigrationKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	db := newFile(t).open(t, "")
	cfg := sqlite.Config{Partitions: 3}
	migrate := func(to int) {
		t.Helper()
		if _, err := sqlite.Migrate(t.Context(), db, cfg, to); err != nil {
			t.Fatal(err)
		}
	}
	migrate(5)
	hour := time.Now().Add(time.Hour).UnixMicro()
	for _, text := range []string{
		`INSERT INTO postrider_relays (relay, owner, host, version, started_at, seen_at, alive_until) VALUES ('r', 'old', 'h', 'v', 1, 1, ` +
			fmt.Sprint(hour) + `), ('r', 'dead', 'h', 'v', 1, 1, 2)`,
		`INSERT INTO postrider_cursors (relay, partition, position, owner, epoch, lease_until, delivered, settled_at) VALUES
			('r', 0, 7, 'old', 3, ` + fmt.Sprint(hour) + `, 5, 1), ('r', 1, 8, '', 2, 0, 6, 1), ('r', 2, 9, 'dead', 1, 2, 7, 1)`,
	} {
		execute(t, db, text)
	}
	migrate(sqlite.Latest)
	s := newStore(t, db, cfg)
	req := claim(3, time.Hour)
	got, err := s.Acquire(t.Context(), "r", store.Owner{ID: "new"}, req)
	if err != nil || len(got) != 2 || got[0].Partition != 1 || got[0].Cursor.Position != 8 || got[1].Partition != 2 {
		t.Fatalf("acquired %+v, %v; want partitions 1 and 2", got, err)
	}
	migrate(5)
	var delivered, held, known int
	err = db.QueryRowContext(t.Context(), `SELECT sum(delivered), sum(owner <> ''), count(*) FROM postrider_cursors WHERE epoch > 0
		AND position = partition + 7`).Scan(&delivered, &held, &known)
	if err != nil || delivered != 18 || held != 0 || known != 3 {
		t.Errorf("after the way down: %d delivered, %d leases, %d partitions, %v", delivered, held, known, err)
	}
	migrate(sqlite.Latest)
}
