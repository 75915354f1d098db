//go:build !race

package postgres_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestSettlementDoesNotWaitForTheDisk checks the setting in force when a settlement commits, on every code path.
func TestSettlementDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	leases := b.lease(t, "r")
	b.exec(t, fmt.Sprintf(`create table %[1]s.seen (setting text);
create function %[1]s.see() returns trigger language plpgsql as $$ begin
	insert into %[1]s.seen values (current_setting('synchronous_commit'));
	return null;
end $$;
create constraint trigger see after insert on %[2]s deferrable initially deferred for each row execute function %[1]s.see()`,
		b.config.Schema, b.table("cursors")), pgx.QueryExecModeSimpleProtocol)
	for name, st := range map[string]store.Settlement{
		"only cursors":   {DeliveredCount: 1},
		"with held keys": {Held: []store.HeldKey{{Key: "k", Sequence: 1, Reason: store.ParkRetry, After: time.Hour}}},
	} {
		if _, err := b.Settle(t.Context(), "r", []store.Settlement{b.following(t, leases[0], st)}); err != nil {
			t.Fatal(err)
		}
		if v := one[string](t, b.pool, "delete from "+b.config.Schema+".seen returning setting"); v != "off" {
			t.Errorf("%s: committed with synchronous_commit %s", name, v)
		}
		if v := one[string](t, b.pool, "show synchronous_commit"); v != "on" {
			t.Errorf("%s: synchronous_commit is %s afterwards", name, v)
		}
	}
}

// TestSettlementLooksUpRows: the cost of a settlement does not grow with parked messages, held keys and dead letters, even though
// its plans were made when there were none.
func TestSettlementLooksUpRows(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	l := b.lease(t, "r")[0]
	b.exec(t, fmt.Sprintf("analyze %s, %s, %s, %s", b.table("parked"), b.table("held"), b.table("dead"), b.table("log")))
	var st store.Settlement
	st.Token = l.Token
	for seq := int64(101); seq <= 110; seq++ {
		key := fmt.Sprint("k", seq)
		st.Parked = append(st.Parked, store.ParkOutcome{Sequence: seq, Key: key, FromLog: true, Waits: true, Reason: store.ParkRetry, Cause: "x"})
		st.Dead = append(st.Dead, store.DeadOutcome{Sequence: seq + 100, Key: key, Reason: "x"},
			store.DeadOutcome{Sequence: seq + 200, Key: key, FromLog: true, Reason: "x"})
		st.Removed = append(st.Removed, seq+300)
		st.Held = append(st.Held, store.HeldKey{Key: key, Sequence: seq, Reason: store.ParkRetry, UntilDecided: true})
		st.Release = append(st.Release, fmt.Sprint("k", seq+300))
	}
	const many = 2000
	message := `'m' || n, 't', 'k' || n, 'x', 's', '', '', now(), 1, 0, '', '{}', '', '', '', null, now()`
	plan, err := b.ExplainSettle(t.Context(), "r", st, func() error {
		for _, sql := range []string{
			`insert into ` + b.table("log") + ` (partition, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
				content_type, headers, correlation_id, causation_id, payload, available_at, created_at) select 0, ` + message,
			`insert into ` + b.table("parked") + ` select 'r', 0, n + 110, ` + message + `, 'retry', null, 1, '[]', 0, now()`,
			`insert into ` + b.table("held") + ` select 'r', 'k' || n, 0, n, 'retry', '', 1, now(), now()`,
			`insert into ` + b.table("dead") + ` (relay, partition, seq, id, topic, key, type, source, subject, tenant, message_time, schema_version,
				aggregate_version, content_type, headers, correlation_id, causation_id, payload, available_at, created_at, reason,
				cause, attempts, history, died_at, redrives) select 'r', 0, n + 5000, ` + message + `, 'x', '', 1, '[]', now(), 0`,
		} {
			if _, err := b.pool.Exec(t.Context(), sql+` from generate_series(1, $1::int8) as n`, int64(many)); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	scans := 0
	for line := range strings.Lines(plan) {
		// Rows and loops of nodes that read a table.
		m := regexp.MustCompile(`Scan .*_(?:parked|held|dead|log)\S* .*rows=(\d+) loops=(\d+)`).FindStringSubmatch(line)
		removed := regexp.MustCompile(`Rows Removed by .*: (\d+)`).FindStringSubmatch(line)
		if m != nil {
			scans++
		}
		if m != nil && len(m[1]) > 1 || removed != nil && len(removed[1]) > 2 {
			t.Errorf("%s", line)
		}
	}
	if scans < 10 || t.Failed() {
		t.Errorf("%d scans: %s", scans, plan)
	}
}
