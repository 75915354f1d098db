package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

func openingFails(t *testing.T, db *sql.DB, want error, hint string) {
	t.Helper()
	_, err := sqlite.New(db, sqlite.Config{})
	if !errors.Is(err, want) || !strings.Contains(err.Error(), hint) {
		t.Errorf("new: %v, want %v with %q", err, want, hint)
	}
}

func TestDatabaseInMemoryIsRefused(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	openingFails(t, db, sqlite.ErrUnsuitable, "use a file")
}

func TestFileThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	f := file(filepath.Join(t.TempDir(), "no", "such", "directory", "outbox.db"))
	openingFails(t, f.open(t, ""), sqlite.ErrCannotOpen, "path")
}

func TestFileThatIsNoDatabase(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	if err := os.WriteFile(string(f), []byte(strings.Repeat("this is not a database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	openingFails(t, f.open(t, ""), sqlite.ErrCorrupt, "integrity_check")
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	db := f.migrated(t, sqlite.Config{})
	s := newStore(t, db, sqlite.Config{})
	publish(t.Context(), t, s, benchMessages(2000)...)
	execute(t, db, `PRAGMA wal_checkpoint(TRUNCATE)`)
	leases := lease(t, s, "r", store.Owner{ID: "a"})
	text, err := os.ReadFile(string(f))
	if err != nil {
		t.Fatal(err)
	}
	for i := len(text) / 4; i < len(text); i++ {
		text[i] = 0xFF
	}
	if err := os.WriteFile(string(f), text, 0o600); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, f.open(t, ""), sqlite.Config{}) // with its own cache
	_, err = s.Fetch(t.Context(), "r", request(leases, 1000))
	if !errors.Is(err, sqlite.ErrCorrupt) || !strings.Contains(err.Error(), "backup") {
		t.Errorf("fetch: %v, want ErrCorrupt with what to do", err)
	}
}

func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	writable := newStore(t, f.migrated(t, sqlite.Config{}), sqlite.Config{})
	publish(t.Context(), t, writable, benchMessages(1)...)
	s := newStore(t, f.open(t, "mode=ro"), sqlite.Config{})
	if st, err := s.Status(t.Context()); err != nil || st.Partitions != sqlite.DefaultPartitions {
		t.Errorf("status of a read-only database: %+v, %v", st, err)
	}
	_, err := s.Heartbeat(t.Context(), "r", store.Owner{ID: "a"}, 1e9)
	if !errors.Is(err, sqlite.ErrReadOnly) || !strings.Contains(err.Error(), "mode=ro") {
		t.Errorf("heartbeat: %v, want ErrReadOnly with what to do", err)
	}
}

// TestFullDatabase: a publish without space leaves nothing behind, committed messages are delivered, and publishing works
// again after retention has freed space.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	f.migrated(t, sqlite.Config{})
	db := f.open(t, "_pragma=max_page_count(400)")
	s := newStore(t, db, sqlite.Config{})
	execute(t, db, `CREATE TABLE business (n INTEGER)`)
	batch := func() []*postrider.Message { return benchMessages(250) } // more than one statement
	committed := 0
	var err error
	for err == nil {
		var tx *sql.Tx
		if tx, err = s.Begin(t.Context()); err != nil {
			break
		}
		if err = s.Insert(t.Context(), tx, batch()); err == nil {
			err = s.Commit(t.Context(), tx)
		} else if commit := tx.Commit(); commit != nil {
			t.Logf("a user who commits all the same is told: %v", commit)
		}
		if err == nil {
			committed += 250
		}
	}
	if !errors.Is(err, sqlite.ErrFull) || !strings.Contains(err.Error(), "max_page_count") {
		t.Fatalf("publish: %v, want ErrFull with what to do", err)
	}
	owner := store.Owner{ID: "a"}
	leases := lease(t, s, "r", owner)
	batches, err := s.Fetch(t.Context(), "r", request(leases, 10_000))
	if err != nil {
		t.Fatal(err)
	}
	var sts []store.Settlement
	n := 0
	for _, b := range batches {
		n += len(b.Entries)
		sts = append(sts, store.Settlement{Partition: b.Partition, Token: leases[b.Partition].Token, Number: 1, Moved: true, Cursor: b.Next})
	}
	if n != committed || n == 0 {
		t.Errorf("fetched %d messages, committed %d", n, committed)
	}
	settle(t, s, sts...) // in a full database
	if m, err := s.Maintain(t.Context(), store.Retention{}); err != nil || m.Dropped != int64(committed) {
		t.Fatalf("maintain: %+v, %v; want %d dropped", m, err, committed)
	}
	publish(t.Context(), t, s, batch()...)
}

// TestSequencesAreNeverGivenAgain: sequences are not reused, even after retention has emptied the log, or after a
// restart.
func TestSequencesAreNeverGivenAgain(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	s := newStore(t, f.migrated(t, sqlite.Config{Partitions: 1}), sqlite.Config{})
	owner := store.Owner{ID: "a"}
	l := lease(t, s, "r", owner)[0]
	for round := range int64(3) {
		publish(t.Context(), t, s, benchMessages(10)...)
		batches, err := s.Fetch(t.Context(), "r", request([]store.Lease{l}, 100))
		if err != nil || len(batches) != 1 || batches[0].Entries[0].Message.Sequence != 10*round+1 {
			t.Fatalf("round %d: %+v, %v", round, batches, err)
		}
		l.Cursor = batches[0].Next
		settle(t, s, store.Settlement{Token: l.Token, Number: round + 1, Cursor: l.Cursor, Moved: true})
		if m, err := s.Maintain(t.Context(), store.Retention{}); err != nil || m.Dropped != 10 {
			t.Fatalf("maintain: %+v, %v", m, err)
		}
		s = newStore(t, f.open(t, ""), sqlite.Config{})
	}
}

// TestSizeOfALargeLogIsEstimated: with more messages than are sampled, the size limit is accurate to a tenth.
func TestSizeOfALargeLogIsEstimated(t *testing.T) {
	t.Parallel()
	const n, each = 20_000, 700
	s := newStore(t, newFile(t).migrated(t, sqlite.Config{Partitions: 3}), sqlite.Config{})
	publish(t.Context(), t, s, benchMessages(n)...)
	owner := store.Owner{ID: "a"}
	var sts []store.Settlement
	for _, l := range lease(t, s, "r", owner) {
		sts = append(sts, store.Settlement{Partition: l.Partition, Token: l.Token, Number: 1, Moved: true, Cursor: store.Cursor{Position: n}})
	}
	settle(t, s, sts...)
	m, err := s.Maintain(t.Context(), store.Retention{For: 1e18, MaxBytes: n / 2 * each})
	if err != nil || m.Dropped < n*4/10 || m.Dropped > n*6/10 {
		t.Errorf("maintain to half the size: %+v, %v; want about %d dropped", m, err, n/2)
	}
	again, err := s.Maintain(t.Context(), store.Retention{For: 1e18, MaxBytes: n / 2 * each})
	if err != nil || again.Dropped > n/20 {
		t.Errorf("maintain again: %+v, %v; want hardly any dropped", again, err)
	}
}
