package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// found returns what one check of a store finds.
func found(t *testing.T, s *memory.Store, check string) []doctor.Finding {
	t.Helper()
	checks, err := doctor.Named(doctor.Checks(s), []string{check})
	must(t, err)
	return doctor.Run(t.Context(), checks, doctor.Options{Total: time.Hour}).Findings()
}

// TestNoRelay: messages that no relay has ever taken are a fault after a minute, until one runs.
func TestNoRelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		o, err := outbox.New(s, outbox.Config{Source: "test"})
		must(t, err)
		found := func() []doctor.Finding { return found(t, s, "relay.none") }
		if f := found(); len(f) > 0 {
			t.Errorf("of an empty outbox: %+v", f)
		}
		_, err = o.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			_, err := o.Publish(ctx, tx, &postrider.Message{Type: "order.placed"})
			return err
		})
		must(t, err)
		time.Sleep(time.Minute - time.Second)
		if f := found(); len(f) > 0 {
			t.Errorf("within a minute: %+v", f)
		}
		time.Sleep(2 * time.Second)
		if f := found(); len(f) != 1 || f[0].Level != doctor.Fault || !strings.Contains(f[0].Message, "No relay has run on this outbox") {
			t.Errorf("after a minute: %+v", f)
		}
		_, err = s.Heartbeat(t.Context(), "to-nats", store.Owner{ID: "r-1"}, time.Minute)
		must(t, err)
		if f := found(); len(f) > 0 {
			t.Errorf("when a relay has run: %+v", f)
		}
	})
}

// TestUntaken: a topic that no relay takes, until one does.
func TestUntaken(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Config{Partitions: 1})
	o := store.Owner{ID: "r-1", Topics: []string{"orders"}}
	acquire := func() []store.Lease {
		t.Helper()
		_, err := s.Heartbeat(t.Context(), "r", o, time.Minute)
		must(t, err)
		leases, err := s.Acquire(t.Context(), "r", o, store.AcquireRequest{Claims: []store.LeaseClaim{{Token: store.NewToken()}}, TTL: time.Minute})
		must(t, err)
		return leases
	}
	leases := acquire()
	if f := found(t, s, "route.untaken"); len(f) > 0 {
		t.Errorf("before: %+v", f)
	}
	_, err := s.Settle(t.Context(), "r", []store.Settlement{{Token: leases[0].Token, Number: 1, Unrouted: []store.UnroutedCount{{Topic: "in voices", Count: 3}}}})
	must(t, err)
	f := found(t, s, "route.untaken")
	if len(f) != 1 || f[0].Target != "in voices" || !strings.Contains(f[0].Message, "3 messages") || f[0].Fix[1].Command != "postrider route explain 'in voices'" {
		t.Fatalf("%+v", f)
	}
	o.Topics, o.ID = []string{"*"}, "r-2" // the fix: a process that takes it, after the old one has left
	must(t, s.Leave(t.Context(), "r", store.Owner{ID: "r-1"}))
	acquire()
	if f := found(t, s, "route.untaken"); len(f) > 0 {
		t.Errorf("after the fix: %+v", f)
	}
}

// TestWindow: what a consumer that runs has noted, until it notes that nothing is wrong.
func TestWindow(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Config{Partitions: 1})
	ctx := t.Context()
	must(t, s.Enroll(ctx, "view"))
	must(t, stored.Note(ctx, s, stored.NoteWindow, "view", "IDs are kept for 1 h, and the broker redelivers for 24 h"))
	if f := found(t, s, "inbox.window"); len(f) > 0 {
		t.Errorf("of a consumer that does not run: %+v", f)
	}
	_, err := s.Heartbeat(ctx, "view", store.Owner{ID: "view-1"}, time.Minute)
	must(t, err)
	if f := found(t, s, "inbox.window"); len(f) != 1 || f[0].Target != "view" || !strings.Contains(f[0].Message, "redelivers for 24 h") {
		t.Errorf("%+v", f)
	}
	must(t, stored.Note(ctx, s, stored.NoteWindow, "view", ""))
	if f := found(t, s, "inbox.window"); len(f) > 0 {
		t.Errorf("after the fix: %+v", f)
	}
}

// TestDisk: a file system that is nearly full.
func TestDisk(t *testing.T) {
	t.Parallel()
	for free, want := range map[int64]doctor.Level{200: "", 100: "", 99: doctor.Warning, 30: doctor.Warning, 29: doctor.Fault, 0: doctor.Fault} {
		f := doctor.Space("/var/lib/my data", free, 1000)
		if got := append(f, doctor.Finding{})[0].Level; got != want {
			t.Errorf("%d of 1000 free: %q, want %q", free, got, want)
		}
		if len(f) > 0 && !strings.Contains(f[0].Fix[0].Command, "'/var/lib/my data'") {
			t.Errorf("the fix is %s", f[0].Fix[0].Command)
		}
	}
	r := doctor.Run(t.Context(), []doctor.Check{doctor.Disk(t.TempDir()), doctor.Disk("/no/such/folder"), doctor.Disk("")}, doctor.Options{Total: time.Hour})
	if r.Results[0].Outcome == doctor.CouldNotCheck || r.Results[1].Outcome != doctor.CouldNotCheck || !r.Results[2].Missing {
		t.Errorf("%+v", r.Results)
	}
}

// TestNamed: names and areas select checks, each once, in the order of the names.
func TestNamed(t *testing.T) {
	t.Parallel()
	var all []doctor.Check
	for _, name := range []string{"db.clock", "db.disk", "dbx.other", "relay.dead"} {
		all = append(all, doctor.Check{Name: name, Run: func(context.Context) ([]doctor.Finding, error) { return nil, nil }})
	}
	chosen, err := doctor.Named(all, []string{"relay.dead", "db", "db.disk", "db"})
	must(t, err)
	var names []string
	for _, c := range chosen {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"relay.dead", "db.clock", "db.disk"}) {
		t.Errorf("%q", names)
	}
	if _, err := doctor.Named(all, []string{"d"}); err == nil || !strings.Contains(err.Error(), "there are db.clock, db.disk, ") {
		t.Error(err)
	}
}
