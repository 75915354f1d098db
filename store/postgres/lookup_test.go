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
	var dead []store.ParkRequest
	for n := range 1000 {
		p := &postrider.Message{ID: fmt.Sprintf("parked-%d", n), Type: "t"}
		p.FillDefaults("test", time.Now())
		parked = append(parked, store.ParkRequest{Message: p, Reason: store.ParkRetry, After: time.Hour})
		d := &postrider.Message{ID: fmt.Sprintf("dead-%d", n), Type: "t"}
		d.FillDefaults("test", time.Now())
		dead = append(dead, store.ParkRequest{Message: d, Dead: &store.DeadRequest{Reason: "refused"}, Cause: "no"})
	}
	must(t, b.Park(ctx, tx, "view", parked))
	must(t, b.Park(ctx, tx, "view", dead))
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
		plan := plans[i]
		scans := strings.Contains(plan, "Seq Scan on postrider_held ") || strings.Contains(plan, "Seq Scan on postrider_parked ")
		if !strings.Contains(plan, "Index Scan using "+index) || strings.Contains(plan, "Sort Method") || scans {
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

// TestListsAreReadByAnIndex: a page of dead letters, filtered or not, of redrives, documents (replays, erasures, purges) or the audit
// comes in the order of an index, and what has an index of its own is found by that.
func TestListsAreReadByAnIndex(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, postgres.Config{}), t.Context()
	must(t, b.Enroll(ctx, "view"))
	b.exec(t, fmt.Sprintf(deadRowsSQL, b.table("dead"), 5_000))
	b.exec(t, fmt.Sprintf(redriveRowsSQL, b.table("redrives"), 5_000))
	for table, kind := range map[string]string{"records": "replay", "audit": "audit"} {
		b.exec(t, fmt.Sprintf("insert into %s (kind, id, body) select $1::text, lpad(i::text, 5, '0'), '{}' from generate_series(1, 5000) as i",
			b.table(table)), kind)
	}
	b.exec(t, "analyze")
	plans, err := b.ExplainLists(ctx)
	must(t, err)
	for what, index := range map[string]string{
		"open dead letters of a relay": "dead_open", "dead letters in any state": "dead_pkey", "dead letters of a type": "dead_pkey",
		"open dead letters with one cause": "dead_fingerprint", "dead letters of a redrive": "dead_redrive",
		"redrives": "redrives_pkey", "running redrives": "redrives_running", "replays": "records_list", "further replays": "records_list",
		"audit": "audit_pkey", "further audit": "audit_pkey",
	} {
		plan := plans[what]
		sorts := strings.Contains(plan, "Sort") && index != "dead_fingerprint" && index != "dead_redrive" // which find few
		if !strings.Contains(plan, " postrider_"+index) || sorts || strings.Contains(plan, "Seq Scan on postrider_"+strings.SplitN(index, "_", 2)[0]+" ") {
			t.Errorf("%s are not read by %s:\n%s", what, index, plan)
		}
	}
}

// TestFiltersArePlannedEachTime: after some calls, the server would keep one plan for all filters, which finds a dead letter by its ID by
// reading all dead letters.
func TestFiltersArePlannedEachTime(t *testing.T) {
	t.Parallel()
	b, ctx := setupWith(t, dsn(t), postgres.Config{}, 1), t.Context()
	must(t, b.Enroll(ctx, "view"))
	b.exec(t, fmt.Sprintf(deadRowsSQL, b.table("dead"), 5_000))
	b.exec(t, "analyze "+b.table("dead"))
	find := func(r store.Reader) error {
		for _, f := range []store.DeadFilter{{Key: "none"}, {Type: "none"}, {MessageID: "m-4000", State: store.DeadAny}} {
			found, err := r.DeadLetters(ctx, store.DeadQuery{DeadFilter: f, Limit: 100})
			if err != nil {
				return err
			}
			if want := len(f.MessageID) / len("m-4000"); len(found) != want {
				t.Errorf("%d dead letters with %+v, want %d", len(found), f, want)
			}
		}
		return nil
	}
	op := store.Operation{Method: "Find", Doing: "find a dead letter"}
	for range 10 {
		must(t, b.View(ctx, op, find))
		must(t, b.Change(ctx, op, func(w store.Writer) error { return find(w) }))
	}
	const plans = "select coalesce(sum(%s), 0)::int8 from pg_prepared_statements where statement like '%%order by number limit%%' and statement not like '%%pg_prepared%%'"
	generic, custom := one[int64](t, b.pool, fmt.Sprintf(plans, "generic_plans")), one[int64](t, b.pool, fmt.Sprintf(plans, "custom_plans"))
	if generic != 0 || custom != 60 {
		t.Errorf("%d generic plans, and %d custom ones, want none and 60", generic, custom)
	}
}

const (
	// deadRowsSQL inserts open and discarded dead letters into %s, %d of them.
	deadRowsSQL = `insert into %s (relay, partition, seq, id, topic, key, type, source, subject, tenant, message_time, schema_version,
	aggregate_version, content_type, headers, correlation_id, causation_id, payload, created_at, reason, cause, attempts, history, died_at,
	redrives, state, resolved_at, resolved_by, fingerprint, redrive)
select case when i %% 100 = 0 then 'view' else 'other' end, i %% 8, i, 'm-' || i, 'orders', 'k-' || i, case when i %% 3 = 0 then 't' else 'u' end,
	's', '', 'tenant-' || i %% 100, now(), 0, 0, 'application/json', '{}', '', '', '{}', now(), 'refused', 'no', 1, '[]', now(), 0,
	case when i %% 5 = 1 then 'discarded' else 'open' end, case when i %% 5 = 1 then now() end, 'eva', 'f-' || i %% 500,
	case when i %% 50 = 0 then i %% 40 + 7 else 0 end
from generate_series(1, %d) as i`

	// redriveRowsSQL inserts redrives into %s, %d of them, few of which are running.
	redriveRowsSQL = `insert into %s (filter, rate, state, started_by, selected, up_to)
select '{}', 0, case when i %% 1000 = 0 then 'running' else 'finished' end, 'eva', 1, 1 from generate_series(1, %d) as i`
)
