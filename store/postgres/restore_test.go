//go:build !race

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestRestoredLogIsDeliveredAgainRatherThanLost gives the log and the cursors transaction ids of another cluster, some far in the
// future and one of a message that was late and undelivered when the dump was made.
func TestRestoredLogIsDeliveredAgainRatherThanLost(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	log, cursors := b.table("log"), b.table("cursors")
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) select 0, i::text, 't', 'x' from generate_series(1, 10) as i", log))
	leases := b.lease(t, "r")
	b.deliverAll(t, "r", leases)
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'fresh', 't', 'x')", log))
	// In that cluster, rows 1 to 10 were written by transactions far ahead of this cluster's, and that of row 7 was still open.
	b.exec(t, "update "+log+" set xid = (1000000000000 + seq)::text::xid8")
	b.exec(t, "update "+cursors+" set snapshot = '1000000000007:1000000000011:1000000000007', ceiling = '1000000000011'")
	b.exec(t, "update "+b.table("meta")+" set system_identifier = 42")

	// Leasing a partition detects the restore; the leases from before are gone.
	before := b.following(t, leases[0], store.Settlement{Moved: true, Cursor: leases[0].Cursor})
	leases = b.lease(t, "r")
	settled, err := b.Settle(t.Context(), "r", []store.Settlement{before})
	if err != nil || len(settled.Lost) != 1 {
		t.Errorf("settled from before the restore: %+v, %v", settled, err)
	}
	if leases[0].Cursor.Position != 6 {
		t.Errorf("the cursor is at %d, want 6: before the one that was not delivered", leases[0].Cursor.Position)
	}
	if n := b.deliverAll(t, "r", leases); n != 5 {
		t.Errorf("%d messages after the restore, want 7 to 10 and the fresh one", n)
	}
	if n := b.deliverAll(t, "r", leases); n != 0 {
		t.Errorf("%d messages again", n)
	}
	b.exec(t, fmt.Sprintf("select %s('t', 'k', 'x', '{}'::text)", b.table("publish")))
	if n := b.deliverAll(t, "r", leases); n != 1 {
		t.Errorf("%d new messages, want 1", n)
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("meta")+" where restored_from = 42 and restored_at is not null"); n != 1 {
		t.Error("the restore is not recorded")
	}
	if st, err := b.Status(t.Context()); err != nil || len(st.Notices) != 1 {
		t.Errorf("notices %q, %v", st.Notices, err)
	}
}

// TestSequenceBelowTheLogStartsOver: a copy left the sequence behind, as logical replication does.
func TestSequenceBelowTheLogStartsOver(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) select 0, i::text, 't', 'x' from generate_series(1, 10) as i", b.table("log")))
	b.deliverAll(t, "r", b.lease(t, "r"))
	b.exec(t, fmt.Sprintf("select setval('%s', 3)", b.table("log_seq_seq")))
	b.exec(t, "update "+b.table("meta")+" set system_identifier = 42")
	again := &bundle{Store: open(t, b.pool, b.config), pool: b.pool, config: b.config}
	leases := again.lease(t, "r")
	b.exec(t, fmt.Sprintf("select %s('t', 'k', 'x', '{}'::text)", b.table("publish")))
	if n := again.deliverAll(t, "r", leases); n != 11 {
		t.Errorf("%d messages, want all 11", n)
	}
	if seq := one[int64](t, b.pool, fmt.Sprintf("select nextval('%s')", b.table("log_seq_seq"))); seq <= 10 {
		t.Errorf("the sequence goes on at %d", seq)
	}
}

// TestSequenceThatHasPassedTheLogStartsOver: the sequence was left behind, and publishing raised it past the log before a relay
// checked. Some sequences exist twice, or the older row is gone.
func TestSequenceThatHasPassedTheLogStartsOver(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]int{"old rows are there": 5, "old rows are gone": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, postgres.Config{Partitions: 2})
			insert := fmt.Sprintf("insert into %s (partition, id, topic, type) select $2::int4, i::text, 't', 'x' from generate_series(1, $1::int4) as i", b.table("log"))
			b.exec(t, insert, 5, 0)
			b.deliverAll(t, "r", b.lease(t, "r"))
			b.exec(t, "delete from "+b.table("log")+" where seq > $1::int4", kept)
			b.exec(t, fmt.Sprintf("select setval('%s', 1, false)", b.table("log_seq_seq")))
			b.exec(t, "update "+b.table("meta")+" set system_identifier = 42")
			b.exec(t, "update "+b.table("cursors")+" set snapshot = '900000000:900000000:', ceiling = '900000000'")
			b.exec(t, insert, 8, 1) // of another partition: the index refuses the same number in one
			again := &bundle{Store: open(t, b.pool, b.config), pool: b.pool, config: b.config}
			if n := again.deliverAll(t, "r", again.lease(t, "r")); n != kept+8 {
				t.Errorf("%d messages, want all %d", n, kept+8)
			}
		})
	}
}
