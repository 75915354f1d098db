package sqlite_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

// copyTo copies the database, like a backup.
func (f file) copyTo(t *testing.T, to file) {
	t.Helper()
	execute(t, f.open(t, ""), `VACUUM INTO '`+string(to)+`'`)
}

// replaceWith replaces this file with another, like an operator who restores a backup.
func (f file) replaceWith(t *testing.T, other file) {
	t.Helper()
	for _, end := range []string{"-wal", "-shm"} {
		if err := os.Remove(string(f) + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(string(other), string(f)); err != nil {
		t.Fatal(err)
	}
}

// replacements are ways to replace or remove the file of a running process.
var replacements = map[string]func(*testing.T, file){
	"replaced": func(t *testing.T, f file) {
		backup := newFile(t)
		f.copyTo(t, backup)
		f.replaceWith(t, backup)
	},
	"removed": func(t *testing.T, f file) {
		if err := os.Rename(string(f), string(f)+".old"); err != nil {
			t.Fatal(err)
		}
	},
}

// TestReplacedFileEndsTheRelay: a relay whose file is replaced ends with an error that says so, long before its leases
// end.
func TestReplacedFileEndsTheRelay(t *testing.T) {
	t.Parallel()
	for name, replace := range replacements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFile(t)
			s := newStore(t, f.migrated(t, sqlite.Config{}), sqlite.Config{})
			delivered := make(chan struct{}, 10)
			r, err := relay.New(s, relay.Config{Name: "r", LeaseTTL: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			err = r.HandleFunc("order.placed", func(context.Context, *postrider.Message) error {
				delivered <- struct{}{}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- r.Run(t.Context()) }()
			publish(t.Context(), t, s, benchMessages(1)...)
			<-delivered
			replace(t, f)
			select {
			case err := <-ended:
				if !errors.Is(err, store.ErrReplaced) {
					t.Errorf("the relay ended with %v, want ErrReplaced", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the relay works on a file that was replaced a minute ago")
			}
			if _, err := s.Begin(t.Context()); !errors.Is(err, store.ErrReplaced) {
				t.Errorf("begin: %v, want ErrReplaced", err)
			}
		})
	}
}

// TestNothingIsDoneUnderALeaseInAReplacedFile: not even by connections that are recreated and reach the new file.
func TestNothingIsDoneUnderALeaseInAReplacedFile(t *testing.T) {
	t.Parallel()
	for name, replace := range replacements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testNothingIsDone(t, replace)
		})
	}
}

func testNothingIsDone(t *testing.T, replace func(*testing.T, file)) {
	f := newFile(t)
	db := f.migrated(t, sqlite.Config{})
	db.SetMaxIdleConns(-1) // each call opens a connection, which creates an empty file if there is none
	s := newStore(t, db, sqlite.Config{})
	leases := lease(t, s, "r", store.Owner{ID: "a"})
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replace(t, f)
	ref := leases[0].Ref()
	st := store.Settlement{Token: ref.Token, Number: 1, DeliveredCount: 1}
	_, fetch := s.Fetch(t.Context(), "r", request(leases, 1))
	_, due := s.Due(t.Context(), "r", store.DueRequest{Leases: []store.LeaseRef{ref}, Runs: 1, RunLength: 1, MaxBytes: 1})
	_, find := s.FindHeld(t.Context(), "r", []store.LeaseRef{ref}, []string{"k"})
	_, commit := s.CommitSettled(t.Context(), tx, "r", st)
	_, settled := s.Settle(t.Context(), "r", []store.Settlement{st})
	_, heartbeat := s.Heartbeat(t.Context(), "r", store.Owner{ID: "a"}, time.Hour)
	_, acquire := s.Acquire(t.Context(), "r", store.Owner{ID: "a"}, claim(8, time.Hour))
	for call, err := range map[string]error{
		"fetch": fetch, "due": due, "find held": find, "commit settled": commit, "settle": settled, "heartbeat": heartbeat, "acquire": acquire,
		"decide": held.New(s).Apply(t.Context(), "r", ref, "d"),
	} {
		if !errors.Is(err, store.ErrReplaced) {
			t.Errorf("%s: %v, want ErrReplaced", call, err)
		}
	}
}

// TestLeasesOfACopyDoNotHold: a copy contains the leases of its time, with tokens and owners that count as alive.
func TestLeasesOfACopyDoNotHold(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	db := f.migrated(t, sqlite.Config{})
	a, b := store.Owner{ID: "a"}, store.Owner{ID: "b"}
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	cfg := sqlite.Config{Clock: func() time.Time { return now }}
	s := newStore(t, db, cfg)
	publish(t.Context(), t, s, benchMessages(8)...)
	leases := lease(t, s, "r", a)
	settle(t, s, store.Settlement{Token: leases[0].Token, Number: 1, DeliveredCount: 1})
	restored := newFile(t)
	f.copyTo(t, restored)

	c := newStore(t, restored.open(t, ""), cfg)
	view, err := c.Heartbeat(t.Context(), "r", b, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range view.Partitions {
		if p.Owner != "" {
			t.Errorf("partition %d of the copy is held by %s", p.Partition, p.Owner)
		}
	}
	res, err := c.Settle(t.Context(), "r", []store.Settlement{{Token: leases[0].Token, Number: 2, DeliveredCount: 1}})
	if err != nil || len(res.Lost) != 1 {
		t.Errorf("settle under a lease of the file that was copied: %+v, %v", res, err)
	}
	batches, err := c.Fetch(t.Context(), "r", request(leases, 10))
	if err != nil || len(batches) != 8 || !batches[0].Lost || len(batches[0].Entries) > 0 {
		t.Errorf("fetch under leases of the file that was copied: %+v, %v", batches, err)
	}
	// The owner counts as alive, and may still be working: no other owner gets its partitions before the longest TTL has
	// passed.
	got, err := c.Acquire(t.Context(), "r", b, claim(8, time.Hour))
	if err != nil || len(got) != 0 {
		t.Fatalf("acquired %d partitions at once, %v", len(got), err)
	}
	resume := claim(1, time.Hour)
	resume.Claims[0].Resume = true
	if got, err = c.Acquire(t.Context(), "r", a, resume); err != nil || len(got) != 1 || got[0].Settled != 1 {
		t.Errorf("the owner goes on with %+v, %v", got, err)
	}
	now = now.Add(time.Hour)
	if got, err = c.Acquire(t.Context(), "r", b, claim(8, time.Hour)); err != nil || len(got) != 8 {
		t.Errorf("acquired %d partitions after the TTL, %v; want all", len(got), err)
	}
}

// TestRepeatedSettlementCountsOnce: and a settlement that is not the next one is lost.
func TestRepeatedSettlementCountsOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t, newFile(t).migrated(t, sqlite.Config{Partitions: 1}), sqlite.Config{})
	publish(t.Context(), t, s, benchMessages(3)...)
	l := lease(t, s, "r", store.Owner{ID: "a"})[0]
	st := store.Settlement{
		Token: l.Token, Number: 1, Moved: true, Cursor: store.Cursor{Position: 2}, DeliveredCount: 1, FailedCount: 1,
		Parked: []store.ParkOutcome{{Sequence: 2, FromLog: true, Reason: store.ParkRetry, Attempts: 1, Cause: "no"}},
	}
	settle(t, s, st)
	settle(t, s, st)
	other, stale := st, st
	other.DeliveredCount, stale.Number = 2, 3
	for name, st := range map[string]store.Settlement{"other content": other, "one was lost": stale} {
		if res, err := s.Settle(t.Context(), "r", []store.Settlement{st}); err != nil || len(res.Lost) != 1 {
			t.Errorf("%s: %+v, %v; want lost", name, res, err)
		}
	}
	status, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := status.Relays[0]
	if r.Delivered != 1 || r.Failed != 1 || r.Parked.N != 1 || r.Partitions[0].Settlements != 1 {
		t.Errorf("after a repeated settlement: %+v", r)
	}
}

// TestOneFailedSettlementHindersNoOther: neither a message that is not in the log nor a row that the database refuses
// affects others.
func TestOneFailedSettlementHindersNoOther(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	db := f.migrated(t, sqlite.Config{Partitions: 4})
	s := newStore(t, db, sqlite.Config{})
	execute(t, db, `CREATE TRIGGER refuse BEFORE INSERT ON postrider_held WHEN NEW.key = 'bad' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
	leases := lease(t, s, "r", store.Owner{ID: "a"})
	var sts []store.Settlement
	for _, l := range leases {
		sts = append(sts, store.Settlement{Partition: l.Partition, Token: l.Token, Number: 1, DeliveredCount: 1})
	}
	sts[0].Held = []store.HeldKey{{Key: "bad", Sequence: 1, Reason: store.ParkRetry}}
	sts[2].Parked = []store.ParkOutcome{{Sequence: 99, FromLog: true, Reason: store.ParkRetry}}
	sts[3].Token = store.NewToken()
	for range 2 { // a repetition changes nothing
		res, err := s.Settle(t.Context(), "r", sts)
		if err != nil || len(res.Failed) != 2 || res.Failed[0] == nil || res.Failed[2] == nil || len(res.Lost) != 1 || res.Lost[0] != 3 {
			t.Fatalf("settle: %+v, %v; want partitions 0 and 2 to fail and 3 lost", res, err)
		}
	}
	status, err := s.Status(t.Context())
	if err != nil || status.Relays[0].Delivered != 1 || status.Relays[0].Held.N != 0 {
		t.Errorf("status: %+v, %v; want one delivery", status, err)
	}
}
