package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// proofs is how many constraints there are on the default segment.
func (b *bundle) proofs(t *testing.T) int64 {
	t.Helper()
	return one[int64](t, b.pool, "select count(*) from pg_constraint where conname like 'proof%' and conrelid = $1::text::regclass", b.table("log_default"))
}

// TestLargeDefaultSegmentIsNotReadUnderALock: the next segment begins so late that it can be proved while others write.
func TestLargeDefaultSegmentIsNotReadUnderALock(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.uncover(t)
	b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, type, payload)
		select i %% 8, i::text, 't', 'x', convert_to(repeat('x', 1500), 'UTF8') from generate_series(1, 12000) as i`, b.table("log")))
	if m := b.maintain(t, relay.Retention{For: time.Hour}); !strings.Contains(m.Deferred, "default segment") {
		t.Errorf("deferred: %q, want that the present has no segment", m.Deferred)
	}
	if n := b.proofs(t); n != 0 {
		t.Errorf("%d constraints are left on the default segment", n)
	}
	for _, ahead := range []string{"5 minutes", "61 minutes", "8 hours"} {
		b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (0, 'ahead', 't', 'x', now() + interval '%s')", b.table("log"), ahead))
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("log_default")+" where id = 'ahead'"); n != 1 {
		t.Errorf("%d messages of the time ahead are in the default segment, want the one of the next minutes", n)
	}
	before := one[int64](t, b.pool, "select count(*) from pg_inherits where inhparent = $1::text::regclass", b.table("log"))
	b.maintain(t, relay.Retention{For: time.Hour})
	if after := one[int64](t, b.pool, "select count(*) from pg_inherits where inhparent = $1::text::regclass", b.table("log")); after != before {
		t.Errorf("%d segments, then %d", before, after)
	}
}

// TestConstraintOfACrashedProcessIsRemoved, but not that of one that is at work.
func TestConstraintOfACrashedProcessIsRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	now := time.Now()
	for _, age := range []time.Duration{6 * time.Minute, time.Minute} {
		b.exec(t, fmt.Sprintf("alter table %s add constraint proof_%d_%d check (created_at < '%s' or created_at >= '%s') not valid", b.table("log_default"),
			now.Add(-age).Unix(), now.Add(time.Hour).Unix(), now.Add(time.Hour).Format(time.RFC3339), now.Add(2*time.Hour).Format(time.RFC3339)))
	}
	b.maintain(t, relay.Retention{For: time.Hour})
	if n := b.proofs(t); n != 1 {
		t.Errorf("%d constraints are left, want the young one", n)
	}
}

// TestPublishingBehindACrashedProcessSaysWhatHelps, when no relay has run for so long that its constraint has come true.
func TestPublishingBehindACrashedProcessSaysWhatHelps(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.uncover(t)
	now := time.Now()
	b.exec(t, fmt.Sprintf("alter table %s add constraint proof_%d_%d check (created_at < '%s' or created_at >= '%s') not valid", b.table("log_default"),
		now.Add(-2*time.Hour).Unix(), now.Add(-time.Hour).Unix(), now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	publish := func() error {
		return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error { return b.Insert(t.Context(), tx, newMessages(1)) })
	}
	if err := publish(); err == nil || !strings.Contains(err.Error(), "start a relay, or drop the constraint proof_") {
		t.Errorf("publish: %v", err)
	}
	b.maintain(t, relay.Retention{For: time.Hour})
	if err := publish(); err != nil {
		t.Errorf("publish after a relay has run: %v", err)
	}
}
