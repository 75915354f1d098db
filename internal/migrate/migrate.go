// Package migrate reads the numbered migrations that a store embeds and plans the steps from one schema version to
// another. It is database-independent: a store applies the steps itself, each together with its record of the version, in
// a transaction that locks out other instances.
//
// A migration is a pair of files, NNNN_name.up.sql and NNNN_name.down.sql. Numbers start at 0001 and have no gaps, so
// that the version of a schema is the number of its newest migration, and 0 is a database without the schema.
//
// An older program can continue with a newer schema if every newer migration allows it. The up file declares this in
// separate lines: "-- oldest program: 7" is the oldest program version that may relay, consume and operate with the
// schema after the migration, "-- oldest publisher: 6" the oldest that may publish. The default is the migration's own
// version. A store records both with the version, for programs that do not know the migration.
//
// "-- locks: leases, log", in an up or a down file, names the existing tables whose readers or writers the migration keeps out. A
// store whose migrations are transactions takes these locks first.
package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Latest as a target means the newest version.
const Latest = -1

// The reasons why a program cannot work with a schema; Check's error wraps one of them.
var (
	ErrMissing = errors.New("the schema does not exist")
	// ErrNoVersion: this program knows no such version.
	ErrNoVersion = errors.New("no schema version")
	ErrOlder     = errors.New("the schema is older than this program")
	ErrNewer     = errors.New("the schema is newer than this program")
)

// Migration is one numbered change of the schema.
type Migration struct {
	Version  int
	Name     string
	Up, Down string
	Window
}

// Window says which programs can continue with a schema, by the versions that they know.
type Window struct {
	// Oldest is the oldest program, OldestPublisher the oldest that only publishes.
	Oldest          int `json:"oldest_program,omitempty"`
	OldestPublisher int `json:"oldest_publisher,omitempty"`
}

// Record is the database's record of an applied migration. Its Window is zero if none was recorded.
type Record struct {
	At time.Time
	Window
}

// Records returns the records of a store that keeps no windows.
func Records(applied map[int]time.Time) map[int]Record {
	records := make(map[int]Record, len(applied))
	for version, at := range applied {
		records[version] = Record{At: at}
	}
	return records
}

// Set is all migrations of a store, in order.
type Set struct {
	migrations []Migration
}

// Step is one migration to apply: its Up, or, if Down is set, its Down.
type Step struct {
	// Version and Name are the migration's; the schema's version is Version after an up, Version-1 after a down.
	Version int
	Name    string
	Down    bool
	SQL     string
	Window
}

// String names the step for operators, e.g. "up 0001_outbox".
func (s Step) String() string {
	direction := "up"
	if s.Down {
		direction = "down"
	}
	return fmt.Sprintf("%s %04d_%s", direction, s.Version, s.Name)
}

// Locks returns the tables whose readers or writers the step keeps out, without their prefix.
func (s Step) Locks() []string {
	if line := locksLine.FindStringSubmatch(s.SQL); line != nil {
		return strings.Split(line[1], ", ")
	}
	return nil
}

// Status is the status of one migration in a database.
type Status struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
	// AppliedAt is on the database's clock, zero if Applied is not set.
	AppliedAt time.Time `json:"applied_at,omitzero"`
	// Unknown: the database has this migration and the program does not.
	Unknown bool `json:"unknown,omitempty"`
	Window
}

var (
	fileName    = regexp.MustCompile(`^([0-9]{4})_([a-z0-9_]+)\.(up|down)\.sql$`)
	windowLine  = regexp.MustCompile(`(?m)^-- oldest (program|publisher): ([0-9]+)$`)
	locksLine   = regexp.MustCompile(`(?m)^-- locks: (.+)$`)
	placeholder = regexp.MustCompile(`\{[a-z_]+\}`)
)

// Load reads every migration in the root of fsys. Each {name} in their SQL is replaced by vars["name"], unchanged: the
// caller has checked and quoted it. A file that is not a migration, a gap, a missing half or an unknown placeholder is an
// error.
func Load(fsys fs.FS, vars map[string]string) (*Set, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	halves := make(map[int]*Migration)
	var faults []error
	for _, e := range entries {
		if err := loadFile(fsys, e.Name(), vars, halves); err != nil {
			faults = append(faults, err)
		}
	}
	set := &Set{}
	for version := 1; version <= len(halves); version++ {
		m := halves[version]
		if m == nil {
			faults = append(faults, fmt.Errorf("migration %04d is missing", version))
			continue
		}
		if m.Up == "" || m.Down == "" {
			faults = append(faults, fmt.Errorf("migration %04d_%s needs both an up and a down file", version, m.Name))
		}
		set.migrations = append(set.migrations, *m)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return set, nil
}

func loadFile(fsys fs.FS, name string, vars map[string]string, halves map[int]*Migration) error {
	parts := fileName.FindStringSubmatch(name)
	if parts == nil {
		return fmt.Errorf("%s: not named like a migration (NNNN_name.up.sql or NNNN_name.down.sql)", name)
	}
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	sql, err := expand(string(text), vars)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	version, _ := strconv.Atoi(parts[1]) // four digits always parse
	m := halves[version]
	if m == nil {
		m = &Migration{Version: version, Name: parts[2]}
		halves[version] = m
	}
	if m.Name != parts[2] {
		return fmt.Errorf("%s: migration %04d is already named %s", name, version, m.Name)
	}
	if parts[3] == "up" {
		m.Up = sql
		if m.Window, err = window(version, sql); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	} else {
		m.Down = sql
	}
	return nil
}

// window parses the lines that say which programs can continue.
func window(version int, up string) (Window, error) {
	w := Window{Oldest: version, OldestPublisher: version}
	for _, line := range windowLine.FindAllStringSubmatch(up, -1) {
		n, err := strconv.Atoi(line[2])
		if err != nil || n < 1 || n > version {
			return w, fmt.Errorf("%q: want 1 to %d", line[0], version)
		}
		if line[1] == "program" {
			w.Oldest = n
		} else {
			w.OldestPublisher = n
		}
	}
	w.OldestPublisher = min(w.OldestPublisher, w.Oldest) // a program that may relay may publish
	return w, nil
}

func expand(text string, vars map[string]string) (string, error) {
	var unknown []string
	sql := placeholder.ReplaceAllStringFunc(text, func(p string) string {
		v, ok := vars[p[1:len(p)-1]]
		if !ok {
			unknown = append(unknown, p)
		}
		return v
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("unknown placeholder %s", strings.Join(unknown, ", "))
	}
	return sql, nil
}

// Latest returns the newest version.
func (s *Set) Latest() int { return len(s.migrations) }

// All returns every migration in order.
func (s *Set) All() []Migration { return slices.Clone(s.migrations) }

// Plan returns the steps from version from to version to (Latest for the newest), which may be higher or lower. Errors:
// ErrNewer when from is a version that the set does not have, since its down migrations are unknown.
func (s *Set) Plan(from, to int) ([]Step, error) {
	if to == Latest {
		to = s.Latest()
	}
	if to < 0 || to > s.Latest() {
		return nil, fmt.Errorf("%w %d: this program knows 0 to %d", ErrNoVersion, to, s.Latest())
	}
	if from > s.Latest() {
		return nil, fmt.Errorf("%w: it has version %d, this program knows 0 to %d; migrate with the newer program",
			ErrNewer, from, s.Latest())
	}
	var steps []Step
	for v := from + 1; v <= to; v++ {
		m := s.migrations[v-1]
		steps = append(steps, Step{Version: v, Name: m.Name, SQL: m.Up, Window: m.Window})
	}
	for v := from; v > to; v-- {
		m := s.migrations[v-1]
		steps = append(steps, Step{Version: v, Name: m.Name, Down: true, SQL: m.Down})
	}
	return steps, nil
}

// Check says whether a program with this set can work with a schema of version have, and what to do if not. Errors:
// ErrMissing, ErrOlder, ErrNewer.
func (s *Set) Check(have int) error { return s.CheckWindow(have, have) }

// CheckWindow is Check for a schema with which programs from version oldest on can continue.
func (s *Set) CheckWindow(have, oldest int) error {
	switch {
	case have == 0:
		return fmt.Errorf("%w: run `postrider migrate up`", ErrMissing)
	case have < s.Latest():
		return fmt.Errorf("%w: it has version %d and version %d is needed; run `postrider migrate up`",
			ErrOlder, have, s.Latest())
	case have > s.Latest() && oldest > s.Latest():
		return fmt.Errorf("%w: it has version %d, for programs that know version %d, and this one knows %d; use the program that ran "+
			"`postrider migrate up`, or go back with its `postrider migrate down`", ErrNewer, have, oldest, s.Latest())
	}
	return nil
}

// Status merges the set with the database's applied migrations (version → record), in order of version.
func (s *Set) Status(applied map[int]Record) []Status {
	list := make([]Status, 0, len(s.migrations))
	for _, m := range s.migrations {
		r, ok := applied[m.Version]
		if r.Window == (Window{}) {
			r.Window = m.Window
		}
		list = append(list, Status{Version: m.Version, Name: m.Name, Applied: ok, AppliedAt: r.At, Window: r.Window})
	}
	for version, r := range applied {
		if r.Window == (Window{}) {
			r.Window = Window{Oldest: version, OldestPublisher: version}
		}
		if version > s.Latest() {
			list = append(list, Status{Version: version, Applied: true, AppliedAt: r.At, Unknown: true, Window: r.Window})
		}
	}
	slices.SortFunc(list, func(a, b Status) int { return a.Version - b.Version })
	return list
}
