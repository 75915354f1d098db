package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

// fetchAll reads all committed messages.
func fetchAll(t testing.TB, s *sqlite.Store) []*postrider.Message {
	t.Helper()
	return fetchUnder(t, s, lease(t, s, "all", store.Owner{ID: "all"}))
}

// fetchUnder reads all committed messages under leases of the relay "all".
func fetchUnder(t testing.TB, s *sqlite.Store, leases []store.Lease) []*postrider.Message {
	t.Helper()
	batches, err := s.Fetch(t.Context(), "all", request(leases, 1_000_000))
	if err != nil {
		t.Fatal(err)
	}
	var out []*postrider.Message
	for _, b := range batches {
		for _, r := range b.Entries {
			out = append(out, r.Message)
		}
	}
	return out
}

func execute(t testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// TestReadersDoNotWaitForAWriter: while a user transaction is open, messages can be fetched, due ones polled and the
// status shown; writers wait until it ends.
func TestReadersDoNotWaitForAWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, readersDoNotWait)
}

func readersDoNotWait(t *testing.T) {
	f := newFile(t)
	s := newStore(t, f.migrated(t, sqlite.Config{}), sqlite.Config{})
	publish(t.Context(), t, s, benchMessages(10)...)
	owner := store.Owner{ID: "a"}
	leases := lease(t, s, "r", owner)

	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Insert(t.Context(), tx, benchMessages(1)); err != nil {
		t.Fatal(err)
	}
	batches, err := s.Fetch(t.Context(), "r", request(leases, 100))
	n := 0
	for _, b := range batches {
		n += len(b.Entries)
	}
	if n != 10 || err != nil {
		t.Fatalf("fetched %d while a writer is at work, %v; want the 10 committed", n, err)
	}
	if _, err := s.Due(t.Context(), "r", store.DueRequest{Leases: []store.LeaseRef{leases[0].Ref(), leases[1].Ref()}, Runs: 1, RunLength: 1, MaxBytes: 1}); err != nil {
		t.Errorf("due: %v", err)
	}
	if _, err := s.Status(t.Context()); err != nil {
		t.Errorf("status: %v", err)
	}
	settled := make(chan error, 1)
	go func() {
		_, err := s.Settle(t.Context(), "r", []store.Settlement{{Token: leases[0].Token, Number: 1, DeliveredCount: 1}})
		settled <- err
	}()
	synctest.Wait() // until it waits between two tries
	select {
	case err := <-settled:
		t.Fatalf("settled while another transaction writes: %v", err)
	default:
	}
	if err := s.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Errorf("settle after the writer ended: %v", err)
	}
}

func TestBusyTimeoutBoundsTheWait(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	cfg := sqlite.Config{BusyTimeout: 100 * time.Millisecond}
	f.migrated(t, cfg)
	s := newStore(t, f.open(t, ""), cfg)
	other := f.open(t, "_txlock=immediate")
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	_, err = s.Heartbeat(t.Context(), "r", store.Owner{ID: "a"}, time.Second)
	if !errors.Is(err, sqlite.ErrBusy) || !strings.Contains(err.Error(), "BusyTimeout") {
		t.Errorf("heartbeat: %v, want ErrBusy with what to do", err)
	}
	if _, err := s.Begin(t.Context()); !errors.Is(err, sqlite.ErrBusy) {
		t.Errorf("begin: %v, want ErrBusy", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("begin under a context that ends: %v, want its error", err)
	}
	if m, err := s.Maintain(t.Context(), store.Retention{}); err != nil || !strings.Contains(m.Deferred, "locked") {
		t.Errorf("maintain: %+v, %v; want it deferred", m, err)
	}
}

// TestReadModifyWriteInInTx: transactions that read before they write never fail because of another writer, from any
// number of processes, since InTx takes the write lock at its beginning.
func TestReadModifyWriteInInTx(t *testing.T) {
	t.Parallel()
	const handles, workers, rounds = 2, 4, 25
	f := newFile(t)
	execute(t, f.migrated(t, sqlite.Config{}), `CREATE TABLE stock (n INTEGER NOT NULL); INSERT INTO stock VALUES (0)`)
	var wg sync.WaitGroup
	for range handles {
		s := newStore(t, f.open(t, ""), sqlite.Config{BusyTimeout: time.Minute})
		o, err := outbox.New(s, outbox.Config{Source: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		for range workers {
			wg.Go(func() {
				for range rounds {
					_, err := o.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
						var n int
						if err := tx.QueryRowContext(ctx, `SELECT n FROM stock`).Scan(&n); err != nil {
							return err
						}
						if _, err := tx.ExecContext(ctx, `UPDATE stock SET n = ?`, n+1); err != nil {
							return err
						}
						_, err := o.Publish(ctx, tx, &postrider.Message{
							Type: "stock.changed", Key: "stock", AggregateVersion: int64(n + 1), Payload: []byte(`{}`),
						})
						return err
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	got := fetchAll(t, newStore(t, f.open(t, ""), sqlite.Config{BusyTimeout: time.Minute}))
	if len(got) != handles*workers*rounds {
		t.Fatalf("%d messages, want %d", len(got), handles*workers*rounds)
	}
	for i, m := range got {
		if m.AggregateVersion != int64(i+1) {
			t.Fatalf("message %d is of version %d: the order of the log is not that of the commits", i+1, m.AggregateVersion)
		}
	}
}

// TestOvertakenTransactionIsTold: a user's own transaction that reads first and is overtaken can no longer write.
func TestOvertakenTransactionIsTold(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	db := f.migrated(t, sqlite.Config{})
	s := newStore(t, db, sqlite.Config{})
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM postrider_log`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	publish(t.Context(), t, s, benchMessages(1)...)
	err = s.Insert(t.Context(), tx, benchMessages(1))
	if !errors.Is(err, sqlite.ErrBusy) || !strings.Contains(err.Error(), "InTx") {
		t.Errorf("insert: %v, want ErrBusy with what to do", err)
	}
}

// TestOneConnectionIsEnough: nothing requests a second connection while it holds one.
func TestOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	f.migrated(t, sqlite.Config{})
	db := f.open(t, "_txlock=immediate")
	db.SetMaxOpenConns(1)
	s := newStore(t, db, sqlite.Config{})
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	msgs := benchMessages(450)
	if err := s.Insert(t.Context(), tx, msgs); err != nil {
		t.Fatal(err)
	}
	if written, err := s.Written(t.Context(), tx, []string{msgs[7].ID, "never"}); err != nil || len(written) != 1 {
		t.Fatalf("written: %v, %v", written, err)
	}
	if err := s.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if got := fetchAll(t, s); len(got) != len(msgs) {
		t.Errorf("fetched %d of %d", len(got), len(msgs))
	}
	owner := store.Owner{ID: "a"}
	leases := lease(t, s, "r", owner)
	settlement := store.Settlement{
		Token: leases[0].Token, Number: 1, Held: []store.HeldKey{{Key: "k", Sequence: 1, Reason: store.ParkRetry}},
	}
	settle(t, s, settlement)
	if due, err := s.Due(t.Context(), "r", store.DueRequest{Leases: []store.LeaseRef{leases[0].Ref()}, Runs: 10, RunLength: 10, MaxBytes: 1}); err != nil || len(due.Runs) != 1 {
		t.Errorf("due: %+v, %v", due, err)
	}
	for h, err := range held.New(s).ListHeld(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		d := store.Decision{ID: store.NewToken(), Relay: h.Relay, Key: h.Key, Verb: store.VerbRetry, By: "op"}
		if err := errors.Join(held.New(s).RecordDecision(t.Context(), d), held.New(s).Apply(t.Context(), "r", leases[0].Ref(), d.ID)); err != nil {
			t.Errorf("retry while listing: %v", err)
		}
	}
}

// TestTransactionEndedByItselfKeepsNobodyOut: the store does not notice the end of a transaction that it began. The next
// writer waits a second in vain, the one after that does not wait.
func TestTransactionEndedByItselfKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newFile(t).migrated(t, sqlite.Config{}), sqlite.Config{})
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for _, most := range []time.Duration{time.Second, 0, 0} {
			began := time.Now()
			publish(t.Context(), t, s, benchMessages(1)...)
			if waited := time.Since(began); waited > most {
				t.Errorf("waited %s, want at most %s", waited, most)
			}
		}
	})
}

// TestWritersTakeTurns: within one process, no writer requests the lock while another has it, so none ever pauses. In a
// bubble, where time passes only in pauses, everything happens at once.
func TestWritersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newFile(t).migrated(t, sqlite.Config{}), sqlite.Config{})
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for range 20 {
					if i == 0 {
						if _, err := s.Heartbeat(t.Context(), "r", store.Owner{ID: "a"}, time.Minute); err != nil {
							t.Error(err)
						}
						continue
					}
					publish(t.Context(), t, s, benchMessages(1)...)
				}
			})
		}
		wg.Wait()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("writers paused for %s together", waited)
		}
	})
}

// TestSettlingLeavesTheConnectionAsItWas: settling does not wait for the disk, but the user's next transaction does.
func TestSettlingLeavesTheConnectionAsItWas(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]int{"off": 0, "normal": 1, "full": 2, "extra": 3} {
		f := newFile(t)
		f.migrated(t, sqlite.Config{})
		db := f.open(t, "_pragma=synchronous("+level+")")
		db.SetMaxOpenConns(1)
		s := newStore(t, db, sqlite.Config{})
		lease(t, s, "r", store.Owner{ID: "a"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Settle(ctx, "r", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("settle under a context that has ended: %v", err)
		}
		var got int
		if err := db.QueryRowContext(t.Context(), `PRAGMA synchronous`).Scan(&got); err != nil || got != want {
			t.Errorf("synchronous is %d after settling, %v; want %d", got, err, want)
		}
	}
}

func TestManyHandlesTakeLeasesOnce(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	f.migrated(t, sqlite.Config{Partitions: 16})
	var mu sync.Mutex
	holders := make(map[int]string)
	var wg sync.WaitGroup
	for i := range 4 {
		s := newStore(t, f.open(t, ""), sqlite.Config{BusyTimeout: time.Minute})
		wg.Go(func() {
			for p := range 16 {
				leases, err := s.Acquire(t.Context(), "r", store.Owner{ID: fmt.Sprint(i)}, store.AcquireRequest{
					Claims: []store.LeaseClaim{{Partition: p, Token: store.NewToken()}}, TTL: time.Minute,
				})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, l := range leases {
					if other := holders[l.Partition]; other != "" {
						t.Errorf("partition %d is held by %s and %s", l.Partition, other, l.Owner)
					}
					holders[l.Partition] = l.Owner
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(holders) != 16 {
		t.Errorf("%d of 16 partitions are held", len(holders))
	}
}
