//go:build !race

package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestMessagesAreFoundByAnIndex: explaining a message must not read all parked messages or dead letters.
func TestMessagesAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, postgres.Config{}), t.Context()
	must(t, b.Enroll(ctx, "view"))
	tx, err := b.Begin(ctx)
	must(t, err)
	var parked []store.ParkRequest
	var dead []store.DeadLetterRequest
	for n := range 1000 {
		p := &postrider.Message{ID: fmt.Sprintf("parked-%d", n), Type: "t"}
		p.FillDefaults("test", time.Now())
		parked = append(parked, store.ParkRequest{Message: p, Reason: store.ParkRetry, After: time.Hour})
		d := &postrider.Message{ID: fmt.Sprintf("dead-%d", n), Type: "t"}
		d.FillDefaults("test", time.Now())
		dead = append(dead, store.DeadLetterRequest{Message: d, Reason: "refused", Cause: "no"})
	}
	must(t, b.Park(ctx, tx, "view", parked))
	must(t, b.DeadLetter(ctx, tx, "view", dead, false))
	must(t, b.Commit(ctx, tx))
	b.exec(t, "analyze "+b.table("parked")+", "+b.table("dead"))
	parkedPlan, deadPlan, err := b.ExplainLookups(ctx, "view", "parked-50")
	must(t, err)
	for plan, index := range map[string]string{parkedPlan: "postrider_parked_id", deadPlan: "postrider_dead_id"} {
		if !strings.Contains(plan, "Index Scan using "+index) && !strings.Contains(plan, "Bitmap Index Scan on "+index) {
			t.Errorf("not found by %s:\n%s", index, plan)
		}
	}
}

// TestPagesAreReadByAnIndex: a page of a long list of held keys, or of parked messages, must not read the others. Many are due at
// the same time.
func TestPagesAreReadByAnIndex(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, postgres.Config{}), t.Context()
	must(t, b.Enroll(ctx, "view"))
	const n = 5_000
	b.exec(t, fmt.Sprintf(`insert into %s (relay, key, partition, seq, reason, cause, attempts, since, next_attempt_at)
		select 'view', 'key ' || i, i %% 8, i, 'retry', 'answer 503', 1, now() - (i / 100) * interval '1 second', now()
		from generate_series(1, %d) as i`, b.table("held"), n))
	b.exec(t, fmt.Sprintf(`insert into %s (relay, partition, seq, id, topic, key, type, source, subject, tenant, message_time, schema_version,
			aggregate_version, content_type, headers, correlation_id, causation_id, payload, created_at, reason, due_at, attempts, parked_at)
		select 'view', i %% 8, i, 'm-' || i, 'orders', case when queued then 'key ' || i else '' end, 't', '', '', '', now(), 0, 0, '',
			'{}', '', '', '', now(), 'retry', case when not queued then now() end, 1, now()
		from (select i, i <= %[2]d as queued from generate_series(1, 2 * %[2]d) as i) as m`, b.table("parked"), n))
	b.exec(t, "analyze "+b.table("parked")+", "+b.table("held"))
	plans, err := b.ExplainPages(ctx, "view")
	must(t, err)
	for i, index := range []string{"postrider_held_since", "postrider_parked_due"} {
		if plan := plans[i]; !strings.Contains(plan, "Index Scan using "+index) || strings.Contains(plan, "Sort Method") || strings.Contains(plan, "Seq Scan") {
			t.Errorf("a page is not read by %s:\n%s", index, plan)
		}
	}
	count := 0
	for h, err := range held.New(b).ListHeld(ctx, "") {
		must(t, err)
		if count++; h.MessageID == "" || h.Parked != 1 {
			t.Fatalf("held key %+v", h)
		}
	}
	for _, err := range held.New(b).ListParked(ctx, "") {
		must(t, err)
		count++
	}
	if count != 2*n {
		t.Errorf("%d held keys and parked messages are listed, want %d", count, 2*n)
	}
}
