//go:build !race

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// fromElsewhere makes the outbox one that was restored from another cluster. It has ten messages, of which relay r has delivered
// all but the seventh, whose transaction was still open when the dump was made.
func (b *bundle) fromElsewhere(t *testing.T) {
	t.Helper()
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) select 0, i::text, 't', 'x' from generate_series(1, 10) as i", b.table("log")))
	b.deliverAll(t, "r", b.lease(t, "r"))
	b.exec(t, "update "+b.table("log")+" set xid = (1000000000000 + seq)::text::xid8")
	b.exec(t, "update "+b.table("cursors")+" set snapshot = '1000000000007:1000000000011:1000000000007', ceiling = '1000000000011'")
	b.exec(t, "update "+b.table("meta")+" set system_identifier = 42")
}

// TestAdoptionOutlivesHeartbeats: adopting a restored outbox takes far longer than a heartbeat may. The relays go on asking, and
// publishers publish, until it is done.
func TestAdoptionOutlivesHeartbeats(t *testing.T) {
	t.Parallel()
	out := &logged{}
	b := setup(t, postgres.Config{Partitions: 1, Logger: slog.New(slog.NewTextHandler(out, nil))}.AdoptBy(3))
	b.fromElsewhere(t)
	b.exec(t, fmt.Sprintf(`create function %[1]s() returns trigger language plpgsql as 'begin perform pg_sleep(0.1); return new; end';
		create trigger slow before update on %[2]s for each row execute function %[1]s()`, b.table("slow"), b.table("log")))
	other := open(t, b.pool, b.config)
	heartbeat := func(s *postgres.Store) ([]store.Lease, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		return s.Acquire(ctx, "r", store.Owner{ID: "owner-of-r"}, acquire(0))
	}
	var leases []store.Lease
	early := 0
	for limit := time.Now().Add(patience); len(leases) == 0; {
		if _, err := heartbeat(other); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		got, err := heartbeat(b.Store)
		switch {
		case err == nil && len(got) == 1:
			leases = got
		case err == nil, !errors.Is(err, context.DeadlineExceeded) || time.Now().After(limit):
			t.Fatal(err)
		case strings.Contains(err.Error(), "is being adopted ("):
			b.exec(t, fmt.Sprintf("select %s('t', 'k', 'x', '{}'::text)", b.table("publish")))
			if st, err := b.Status(t.Context()); err != nil || early == 0 && (len(st.Notices) != 1 || !strings.Contains(st.Notices[0], "is being adopted (")) {
				t.Errorf("notices %q, %v", st.Notices, err)
			}
			early++
		}
	}
	if early == 0 {
		t.Error("it took no longer than a heartbeat")
	}
	if n := b.deliverAll(t, "r", leases); n != 4+early {
		t.Errorf("%d messages, want 7 to 10 and %d published meanwhile", n, early)
	}
	for _, text := range []string{"was restored from another cluster", "is being adopted", "phase=renew", "is adopted; relays continue"} {
		if !out.has(text) {
			t.Errorf("the log lacks %q", text)
		}
	}
	if n := one[int](t, b.pool, "select count(*) from "+b.table("records")); n != 0 {
		t.Error("the record of the progress is still there")
	}
}

// TestAdoptionContinues: the process dies after each number of steps, and another one continues: nothing is lost, and nothing is
// checked twice.
func TestAdoptionContinues(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1}.AdoptBy(3))
	b.fromElsewhere(t)
	steps := 0
	for done := false; !done; steps++ {
		if steps > 20 {
			t.Fatal("it does not end")
		}
		if steps == 7 { // cursors are back, and the ids of some messages are renewed
			b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'fresh', 't', 'x')", b.table("log")))
		}
		var err error
		if done, err = open(t, b.pool, b.config).AdoptSteps(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := b.pool.Exec(t.Context(), "select from "+b.table("meta")+" for update nowait"); err != nil {
			t.Fatal(err)
		}
	}
	if steps != 4+1+4+1 { // ten messages are read twice, by three
		t.Errorf("%d steps", steps)
	}
	leases := b.lease(t, "r")
	if leases[0].Cursor.Position != 6 {
		t.Errorf("the cursor is at %d, want 6: before the one that was not delivered", leases[0].Cursor.Position)
	}
	if n := b.deliverAll(t, "r", leases); n != 5 {
		t.Errorf("%d messages, want 7 to 10 and the fresh one", n)
	}
	if n := b.deliverAll(t, "r", leases); n != 0 {
		t.Errorf("%d messages again", n)
	}
}

// TestAdoptionDistrustsRelaysThatContinue: a relay that cannot see that the cluster is another one moves its cursor over the message of an open
// transaction after the log was checked. The message commits, and is delivered.
func TestAdoptionDistrustsRelaysThatContinue(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1}.AdoptBy(3))
	b.fromElsewhere(t)
	b.exec(t, "update "+b.table("cursors")+" set snapshot = '1000000000011:1000000000011:'")
	if _, err := b.AdoptSteps(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'open', 't', 'x')", b.table("log"))); err != nil {
		t.Fatal(err)
	}
	b.exec(t, "update "+b.table("cursors")+" set position = 11, snapshot = pg_current_snapshot(), settled_at = clock_timestamp()")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.deliverAll(t, "r", b.lease(t, "r")); n != 1 {
		t.Errorf("%d messages, want the one whose transaction was open", n)
	}
}

// TestAdoptionWithLowSequence: the process dies right after it has begun, with the sequence raised already or not. Another one
// knows that the sequence was too low.
func TestAdoptionWithLowSequence(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 2}.AdoptBy(3))
	b.fromElsewhere(t)
	b.exec(t, fmt.Sprintf("select setval('%s', 3)", b.table("log_seq_seq")))
	if _, err := b.AdoptSteps(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	b.exec(t, fmt.Sprintf("insert into %s (seq, partition, id, topic, type) overriding system value values (5, 1, 'twice', 't', 'x')", b.table("log")))
	again := &bundle{Store: open(t, b.pool, b.config), pool: b.pool, config: b.config}
	if n := again.deliverAll(t, "r", again.lease(t, "r")); n != 11 {
		t.Errorf("%d messages, want all 11", n)
	}
	if n := one[int](t, b.pool, "select count(distinct seq) from "+b.table("log")); n != 11 {
		t.Errorf("%d numbers, want 11", n)
	}
}

// TestPublishersNeedNoAdoption: a role that may only publish opens and uses an outbox that nobody has adopted yet.
func TestPublishersNeedNoAdoption(t *testing.T) {
	t.Parallel()
	owner := setup(t, postgres.Config{Partitions: 1})
	owner.fromElsewhere(t)
	owner.as(t, "publisher").exec(t, "select "+owner.table("publish")+"('t', 'k', 'x', '{}'::jsonb)")
	r := owner.as(t, "relay") // which may adopt it
	if n := r.deliverAll(t, "r", r.lease(t, "r")); n != 5 {
		t.Errorf("%d messages, want 7 to 10 and the new one", n)
	}
}
