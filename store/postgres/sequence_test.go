//go:build !race

package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestSequenceThatIsSetBackIsRepaired: messages written below the cursors meanwhile are delivered.
func TestSequenceThatIsSetBackIsRepaired(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]int{"old rows are there": 10, "old rows are gone": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, postgres.Config{Partitions: 1})
			insert := fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, $1::text, 't', 'x')", b.table("log"))
			for i := range 10 {
				b.exec(t, insert, fmt.Sprint("old ", i))
			}
			leases := b.lease(t, "r")
			b.deliverAll(t, "r", leases)
			b.exec(t, "delete from "+b.table("log")+" where seq > $1::int4", kept)
			b.exec(t, fmt.Sprintf("select setval('%s', 3)", b.table("log_seq_seq")))
			if kept == 0 { // the index refuses a number that is taken
				b.exec(t, insert, "below the cursor")
				b.deliverAll(t, "r", leases) // moves the cursor's snapshot beyond that row
			}
			b.maintain(t, store.Retention{})
			b.exec(t, insert, "new")
			settled, err := b.Settle(t.Context(), "r", []store.Settlement{b.following(t, leases[0], store.Settlement{})})
			if err != nil || len(settled.Lost) != 1 {
				t.Errorf("a lease from before the repair: %+v, %v", settled, err)
			}
			var ids []string
			for _, r := range b.deliver(t, "r", b.lease(t, "r")) {
				ids = append(ids, r.Message.ID)
			}
			if !slices.Contains(ids, "new") || kept == 0 && !slices.Contains(ids, "below the cursor") {
				t.Errorf("delivered: %q", ids)
			}
			if m := b.maintain(t, store.Retention{}); m.Deferred != "" {
				t.Errorf("deferred: %s", m.Deferred)
			}
			if n := b.deliverAll(t, "r", b.lease(t, "r")); n != 0 {
				t.Errorf("%d messages again after a second maintenance", n)
			}
		})
	}
}

// TestSequenceWithoutASegmentGetsOne: somebody set it far ahead, or back to a segment that was dropped.
func TestSequenceWithoutASegmentGetsOne(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	insert := fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'm', 't', 'x')", b.table("log"))
	want := 0
	publish := func() {
		t.Helper()
		b.maintain(t, store.Retention{})
		b.exec(t, insert)
		want++
	}
	publish()
	b.exec(t, fmt.Sprintf("select setval('%s', $1::int8)", b.table("log_seq_seq")), int64(1)<<60)
	publish()
	b.exec(t, fmt.Sprintf("select setval('%s', $1::int8)", b.table("log_seq_seq")), int64(1)<<59) // between two segments
	publish()
	if n := b.deliverAll(t, "r", b.lease(t, "r")); n != want {
		t.Errorf("%d messages, want all %d", n, want)
	}
}

// TestSequenceIsNeverSetBack: the function that sets the sequence never lowers it, and refuses a number without a segment.
func TestSequenceIsNeverSetBack(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	advance := func(to int64) (done bool, err error) {
		err = b.pool.QueryRow(t.Context(), fmt.Sprintf("select %s($1::int8)", b.table("log_advance")), to).Scan(&done)
		return done, err
	}
	if done, err := advance(1 << 39); err != nil || !done || b.next(t) != 1<<39 {
		t.Errorf("to the next segment: %v, %v; %d is next", done, err, b.next(t))
	}
	for _, to := range []int64{100, 1 << 39, 1<<39 + 1<<20} {
		if done, err := advance(to); err != nil || done || b.next(t) != 1<<39 {
			t.Errorf("to %d: %v, %v; %d is next", to, done, err, b.next(t))
		}
	}
	if _, err := advance(3 << 39); err == nil || b.next(t) != 1<<39 {
		t.Errorf("to where no segment is: %v; %d is next", err, b.next(t))
	}
}
