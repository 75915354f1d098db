package sqlite_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

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

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	db := f.open(t, "")
	cfg := sqlite.Config{Prefix: "my_"}
	for range 2 {
		done, err := sqlite.Migrate(t.Context(), db, cfg, sqlite.Latest)
		if err != nil || !slices.Equal(done, []string{"up 0001_outbox"}) {
			t.Fatalf("migrate up: %v, %v", done, err)
		}
		if done, err = sqlite.Migrate(t.Context(), db, cfg, sqlite.Latest); err != nil || len(done) > 0 {
			t.Fatalf("migrate up again: %v, %v; want nothing to do", done, err)
		}
		status, err := sqlite.MigrationStatus(t.Context(), db, cfg)
		if err != nil || len(status) != 1 || !status[0].Applied || status[0].AppliedAt.IsZero() {
			t.Fatalf("status: %+v, %v", status, err)
		}
		for _, name := range tables(t, f) {
			if !strings.HasPrefix(name, "my_") {
				t.Errorf("%s does not begin with the prefix", name)
			}
		}
		newStore(t, db, cfg)
		done, err = sqlite.Migrate(t.Context(), db, cfg, 0)
		if err != nil || !slices.Equal(done, []string{"down 0001_outbox"}) {
			t.Fatalf("migrate down: %v, %v", done, err)
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
	if !slices.Equal(all, []string{"up 0001_outbox"}) {
		t.Errorf("applied by all instances together: %v", all)
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
	f.migrated(t, sqlite.Config{})
	if _, err := db.ExecContext(t.Context(), `INSERT INTO postrider_migrations VALUES (2, 'of_the_future', 1)`); err != nil {
		t.Fatal(err)
	}
	refused(sqlite.ErrSchemaNewer)
	if _, err := sqlite.Migrate(t.Context(), db, sqlite.Config{}, 0); !errors.Is(err, sqlite.ErrSchemaNewer) {
		t.Errorf("migrating down from an unknown version: %v, want ErrSchemaNewer", err)
	}
	status, err := sqlite.MigrationStatus(t.Context(), db, sqlite.Config{})
	if err != nil || len(status) != 2 || !status[1].Unknown {
		t.Errorf("status: %+v, %v; want the unknown migration shown", status, err)
	}
}

func TestPartitionsOfAnExistingOutboxCount(t *testing.T) {
	t.Parallel()
	db := newFile(t).migrated(t, sqlite.Config{Partitions: 5})
	if n, err := newStore(t, db, sqlite.Config{}).Partitions(t.Context()); n != 5 || err != nil {
		t.Errorf("%d partitions, %v; want 5", n, err)
	}
	if _, err := sqlite.New(db, sqlite.Config{Partitions: 6}); err == nil || !strings.Contains(err.Error(), "made with 5") {
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
