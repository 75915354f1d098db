package migrate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/postrider/postrider/internal/migrate"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func twoMigrations(t *testing.T) *migrate.Set {
	t.Helper()
	set, err := migrate.Load(fstest.MapFS{
		"0001_first.up.sql":    file("create table {prefix}a (headers text default '{}')"),
		"0001_first.down.sql":  file("drop table {prefix}a"),
		"0002_second.up.sql":   file("-- oldest publisher: 1\ncreate table {prefix}b ()"),
		"0002_second.down.sql": file("drop table {prefix}b"),
	}, map[string]string{"prefix": "x_"})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestLoadReplacesPlaceholders(t *testing.T) {
	t.Parallel()
	all := twoMigrations(t).All()
	want := []migrate.Migration{
		{Version: 1, Name: "first", Up: "create table x_a (headers text default '{}')", Down: "drop table x_a", Window: migrate.Window{Oldest: 1, OldestPublisher: 1}},
		{Version: 2, Name: "second", Up: "-- oldest publisher: 1\ncreate table x_b ()", Down: "drop table x_b", Window: migrate.Window{Oldest: 2, OldestPublisher: 1}},
	}
	if !slices.Equal(all, want) {
		t.Fatalf("got %+v, want %+v", all, want)
	}
}

func TestLoadReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := migrate.Load(fstest.MapFS{
		"readme.md":          file("hello"),
		"0001_a.up.sql":      file("select '{nobody}'"),
		"0002_b.up.sql":      file("select 1"),
		"0004_d.up.sql":      file("select 1"),
		"0004_d.down.sql":    file("select 1"),
		"0004_dd.down.sql":   file("select 1"),
		"0005_e.down.sql":    file("select 1"),
		"0005_e.up.sql":      file("select 1"),
		"0006_fine.up.sql":   file("select 1"),
		"0006_fine.down.sql": file("select 1"),
	}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"readme.md: not named like a migration", "0001_a.up.sql: unknown placeholder {nobody}",
		"migration 0001 is missing", "0002_b needs both", "migration 0003 is missing", "0004 is already named d",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	set := twoMigrations(t)
	tests := []struct {
		from, to int
		want     string
	}{
		{0, migrate.Latest, "up 0001_first, up 0002_second"},
		{1, 2, "up 0002_second"},
		{2, migrate.Latest, ""},
		{2, 0, "down 0002_second, down 0001_first"},
		{2, 1, "down 0002_second"},
	}
	for _, tt := range tests {
		steps, err := set.Plan(tt.from, tt.to)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range steps {
			names = append(names, s.String())
		}
		if got := strings.Join(names, ", "); got != tt.want {
			t.Errorf("plan %d to %d: got %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
	if _, err := set.Plan(3, 0); !errors.Is(err, migrate.ErrNewer) {
		t.Errorf("plan from an unknown version: got %v, want ErrNewer", err)
	}
	if _, err := set.Plan(0, 3); err == nil {
		t.Error("plan to an unknown version: no error")
	}
}

func TestCheckNamesTheCommand(t *testing.T) {
	t.Parallel()
	set := twoMigrations(t)
	if err := set.Check(2); err != nil {
		t.Errorf("the newest version: %v", err)
	}
	for have, want := range map[int]error{0: migrate.ErrMissing, 1: migrate.ErrOlder, 3: migrate.ErrNewer} {
		err := set.Check(have)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "postrider migrate up") {
			t.Errorf("version %d: got %v, want %v naming the command", have, err, want)
		}
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	got := twoMigrations(t).Status(map[int]migrate.Record{1: {At: at}, 3: {At: at}, 4: {At: at, Window: migrate.Window{Oldest: 2, OldestPublisher: 1}}})
	want := []migrate.Status{
		{Version: 1, Name: "first", Applied: true, AppliedAt: at, Window: migrate.Window{Oldest: 1, OldestPublisher: 1}},
		{Version: 2, Name: "second", Window: migrate.Window{Oldest: 2, OldestPublisher: 1}},
		{Version: 3, Applied: true, AppliedAt: at, Unknown: true, Window: migrate.Window{Oldest: 3, OldestPublisher: 3}},
		{Version: 4, Applied: true, AppliedAt: at, Unknown: true, Window: migrate.Window{Oldest: 2, OldestPublisher: 1}},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestCheckWindow(t *testing.T) {
	t.Parallel()
	set := twoMigrations(t)
	for oldest, want := range map[int]error{1: nil, 2: nil, 3: migrate.ErrNewer} {
		if err := set.CheckWindow(4, oldest); !errors.Is(err, want) {
			t.Errorf("version 4 for programs from %d on: %v, want %v", oldest, err, want)
		}
	}
	if err := set.CheckWindow(1, 1); !errors.Is(err, migrate.ErrOlder) {
		t.Errorf("version 1: %v, want ErrOlder", err)
	}
}

func TestLoadRefusesAFaultyWindow(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"-- oldest program: 2", "-- oldest publisher: 0"} {
		_, err := migrate.Load(fstest.MapFS{"0001_a.up.sql": file(line + "\nselect 1"), "0001_a.down.sql": file("select 1")}, nil)
		if err == nil || !strings.Contains(err.Error(), "want 1 to 1") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
