//go:build !race

package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/storetest"
)

// beginOfVersion10 is the statement with which programs of version 10 register a name in 4 partitions, consumers with cursors at
// the end of the log.
const beginOfVersion10 = `
with new as (
	insert into %[1]s (relay, partition) select $1::text, p from generate_series(0, 4 - 1) as p
	on conflict do nothing returning partition
), free as (
	insert into %[2]s (relay, partition, incarnation) select $1::text, partition, %[4]s() from new
	on conflict (relay, partition) do update set owner = '', token = '', incarnation = excluded.incarnation
)
insert into %[3]s (relay, partition, n, position, snapshot, ceiling)
select $1::text, partition, 0, $2::int8, '18446744073709551615:18446744073709551615:'::pg_snapshot, pg_current_xact_id() from new`

func (b *bundle) beginAsVersion10(t testing.TB, name string, position int64) {
	t.Helper()
	b.exec(t, fmt.Sprintf(beginOfVersion10, b.table("relay_partitions"), b.table("leases"), b.table("cursors"), b.table("incarnation")),
		name, position)
}

// consumersOfVersion10 returns the names that programs of version 10 take for consumers.
func (b *bundle) consumersOfVersion10(t testing.TB) []string {
	t.Helper()
	return one[[]string](t, b.pool, fmt.Sprintf("select array_agg(distinct relay order by relay) from %s where position = $1::int8",
		b.table("cursors")), int64(storetest.OldConsumerPosition))
}

func TestMigrateKinds(t *testing.T) {
	t.Parallel()
	migrate := func(to int) func(t testing.TB, s storetest.Store[pgx.Tx]) {
		return func(t testing.TB, s storetest.Store[pgx.Tx]) {
			t.Helper()
			b := s.(*bundle)
			if _, err := postgres.Migrate(t.Context(), b.pool, b.config, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.MigrateKinds(t, storetest.Features{CoarseRetention: coarse}, harness(dsn(t)), storetest.KindMigration[pgx.Tx]{
		Down: migrate(10), Up: migrate(postgres.Latest),
		Begin: func(t testing.TB, s storetest.Store[pgx.Tx], name string, position int64) {
			s.(*bundle).beginAsVersion10(t, name, position)
		},
		Consumers: func(t testing.TB, s storetest.Store[pgx.Tx]) []string { return s.(*bundle).consumersOfVersion10(t) },
	})
}

// TestKindsOfVersion10: programs of version 10 register names and remove them after the migration, next to newer programs. Each
// recognizes the consumers of the other.
func TestKindsOfVersion10(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, postgres.Config{Partitions: 4}), t.Context()
	b.beginAsVersion10(t, "old-c", storetest.OldConsumerPosition)
	b.beginAsVersion10(t, "old-r", 0)
	for _, name := range []string{"old-c", "new-c"} {
		if err := b.Enroll(ctx, name); err != nil {
			t.Fatal(err)
		}
		tx := b.begin(t)
		if err := b.Park(ctx, tx, name, []store.ParkRequest{{Message: &postrider.Message{ID: "m-" + name, Type: "t", Topic: "t", Time: time.Now(), Payload: []byte("{}")}, Dead: &store.DeadRequest{Reason: "refused"}}}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.consumersOfVersion10(t); !slices.Equal(got, []string{"new-c", "old-c"}) {
		t.Errorf("version 10 takes %v for consumers", got)
	}
	b.wantKinds(t, map[string]store.Kind{"old-c": store.KindConsumer, "old-r": store.KindRelay, "new-c": store.KindConsumer})
	if n, err := deadletter.New(b).CountDead(ctx, store.DeadFilter{Side: store.KindConsumer}); err != nil || n != 2 {
		t.Errorf("%d dead letters of consumers, %v, want 2", n, err)
	}
	req := acquire(0, 1, 2, 3)
	for name, want := range map[string]error{"old-c": store.ErrNameOfConsumer, "old-r": store.ErrNameOfRelay} {
		req.Kind = store.KindRelay
		if want == store.ErrNameOfRelay {
			req.Kind = store.KindConsumer
		}
		if leases, err := b.Acquire(ctx, name, store.Owner{ID: "a"}, req); !errors.Is(err, want) || len(leases) > 0 {
			t.Errorf("acquire %s as a %s: %v, %v, want %v", name, req.Kind, leases, err, want)
		}
	}
	if err := b.Enroll(ctx, "old-r"); !errors.Is(err, store.ErrNameOfRelay) {
		t.Errorf("enroll under the name of a relay: %v", err)
	}
	if err := b.Repartition(ctx, 6); !errors.Is(err, store.ErrAlive) {
		t.Fatalf("repartition: %v, want ErrAlive", err) // the refused processes are alive
	}
	b.exec(t, "delete from "+b.table("relays"))
	if err := b.Repartition(ctx, 6); err != nil {
		t.Fatal(err)
	}
	b.wantKinds(t, map[string]store.Kind{"old-c": store.KindConsumer, "old-r": store.KindRelay, "new-c": store.KindConsumer})
	if n := one[int64](t, b.pool, fmt.Sprintf("select count(*) from %s where position = $1::int8", b.table("cursors")), int64(storetest.OldConsumerPosition)); n != 12 {
		t.Errorf("%d cursors at the end of the log, want those of 2 consumers in 6 partitions", n)
	}
	for _, table := range []string{"cursors", "leases", "relay_partitions"} { // as version 10 removes a name
		b.exec(t, "delete from "+b.table(table)+" where relay = 'new-c'")
	}
	b.beginAsVersion10(t, "new-c", 0)
	b.wantKinds(t, map[string]store.Kind{"new-c": store.KindRelay})
}

func (b *bundle) wantKinds(t *testing.T, want map[string]store.Kind) {
	t.Helper()
	st, err := b.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	consumers, err := b.Consumers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range want {
		i := slices.IndexFunc(st.Relays, func(r store.RelayStatus) bool { return r.Name == name })
		if i < 0 || st.Relays[i].Kind != kind || (len(st.Relays[i].Topics) > 0) != (kind == store.KindRelay) {
			t.Errorf("status, want %s to be a %s: %+v", name, kind, st.Relays)
		}
		listed := slices.ContainsFunc(consumers, func(c store.ConsumerStatus) bool { return c.Name == name })
		if listed != (kind == store.KindConsumer) {
			t.Errorf("consumers, want %s to be a %s: %+v", name, kind, consumers)
		}
	}
}
