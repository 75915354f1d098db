//go:build !race

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// The statements with which programs of version 6 insert one message, and several; the outbox has 8 partitions.
const (
	insertOfVersion6 = `insert into %[1]s (partition, id, topic, key, type, source, message_time, schema_version, content_type, payload)
values (case when %[2]s() = 8 then $1::int2
	else (('x' || substr(md5(convert_to(coalesce(nullif($4::text, ''), $2::text), 'UTF8')), 1, 8))::bit(32)::int8 %% %[2]s())::int2 end, $2::text, $3::text, $4::text, $5::text, $6::text, $7::timestamptz, $8::int4, $9::text, $10::bytea)`
	insertManyOfVersion6 = `insert into %[1]s (partition, id, topic, key, type, source, message_time, schema_version, content_type, payload)
select case when %[2]s() = 8 then partition
	else (('x' || substr(md5(convert_to(coalesce(nullif(key, ''), id), 'UTF8')), 1, 8))::bit(32)::int8 %% %[2]s())::int2 end, id, topic, key, type, source, message_time, schema_version, content_type, payload from (select unnest($1::int2[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[]), unnest($5::text[]),
	unnest($6::text[]), unnest($7::timestamptz[]), unnest($8::int4[]), unnest($9::text[]), unnest($10::bytea[])) as m (partition, id, topic, key, type, source, message_time, schema_version, content_type, payload)`
)

// TestPublisherOfVersion6: a program from before the lease tokens, the segments and the marks publishes while the schema is
// migrated, on the same connection with the same prepared statements, and continues afterwards.
func TestPublisherOfVersion6(t *testing.T) {
	t.Parallel()
	b, migrate := older(t, 6)
	conn, ctx, n := connect(t, dsn(t)), t.Context(), 0
	publish := func() {
		t.Helper()
		n++
		id := fmt.Sprintf("one %d", n)
		partition := int16(postrider.PartitionOf("k", id, 8))
		if _, err := conn.Exec(ctx, fmt.Sprintf(insertOfVersion6, b.table("log"), b.table("partitions")), partition, id, "t", "k", "t", "s", time.Now(), 1,
			"application/json", []byte("{}")); err != nil {
			t.Fatal(err)
		}
		many := fmt.Sprintf("many %d", n)
		if _, err := conn.Exec(ctx, fmt.Sprintf(insertManyOfVersion6, b.table("log"), b.table("partitions")), []int16{partition, partition},
			[]string{many + "a", many + "b"}, []string{"t", "t"}, []string{"k", "k"}, []string{"t", "t"}, []string{"s", "s"}, []time.Time{time.Now(), time.Now()},
			[]int32{1, 1}, []string{"application/json", "application/json"}, [][]byte{[]byte("{}"), []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []int{6, 7, 8, postgres.Latest, 6, postgres.Latest} {
		migrate(version)
		publish()
		publish()
	}
	b.Store = open(t, b.pool, b.config)
	if got := b.deliverAll(t, "r", b.lease(t, "r")); got != 3*n {
		t.Errorf("%d messages are delivered, want %d", got, 3*n)
	}
}

// publishTwo publishes a message through a store of the previous version, and one through database/sql. It returns how many
// were published.
func publishTwo(t *testing.T, b *bundle, before *postgres.Store, allowed bool) (published int) {
	t.Helper()
	db, err := sql.Open("pgx", dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i, err := range []error{publishOne(t.Context(), before, 1), publishOne(t.Context(), fresh(t, b).SQL(db), 2)} {
		if errors.Is(err, postgres.ErrSchemaNewer) == allowed || err != nil && allowed {
			t.Errorf("publish %d: %v, want it to work: %t", i, err, allowed)
		}
		if err == nil {
			published++
		}
	}
	return published
}

// TestVersionsSideBySide: if the last migration allows it, a program of the previous version works with the new schema, at the
// same time as one of the new version. It only publishes if the migration says so, and is refused otherwise.
func TestVersionsSideBySide(t *testing.T) {
	t.Parallel()
	latest := len(migrations(t))
	for name, c := range map[string]struct {
		window              string
		relays, publishes   bool
		shown, shownPublish int
	}{
		"goes on":   {fmt.Sprintf("-- oldest program: %d\n", latest), true, true, latest, latest},
		"publishes": {fmt.Sprintf("-- oldest publisher: %d\n", latest), false, true, latest + 1, latest},
		"neither":   {"", false, false, latest + 1, latest + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, ctx := setup(t, postgres.Config{Partitions: 1}), t.Context()
			newer, err := b.config.Newer(c.window+"alter table {prefix}relays add column next_version text;\n", "alter table {prefix}relays drop column next_version;\n")
			if err != nil {
				t.Fatal(err)
			}
			running := b.Store // from before the migration
			if _, err := postgres.Migrate(ctx, b.pool, newer, postgres.Latest); err != nil {
				t.Fatal(err)
			}
			before, err := postgres.New(b.pool, b.config) // started after the migration
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(before.Close)
			after := open(t, b.pool, newer)
			if err := before.Open(ctx); errors.Is(err, postgres.ErrSchemaNewer) == c.relays || err != nil && c.relays {
				t.Errorf("open: %v, want it to work: %t", err, c.relays)
			}
			published := publishTwo(t, b, before, c.publishes)
			if err := errors.Join(publishOne(ctx, running, 3), publishOne(ctx, after, 4)); err != nil {
				t.Fatal(err)
			}
			want, relaying := published+2, after
			if c.relays {
				relaying = before
			}
			b.Store = relaying
			if got := b.deliverAll(t, "r", b.lease(t, "r")); got != want {
				t.Errorf("%d messages are delivered, want %d", got, want)
			}
			states, err := postgres.MigrationStatus(ctx, b.pool, b.config)
			if err != nil {
				t.Fatal(err)
			}
			if last := states[len(states)-1]; !last.Unknown || last.Oldest != c.shown || last.OldestPublisher != c.shownPublish {
				t.Errorf("status: %+v, want the oldest to be %d and %d", last, c.shown, c.shownPublish)
			}
			if _, err := postgres.Migrate(ctx, b.pool, newer, latest); err != nil { // migrate back
				t.Fatal(err)
			}
			if err := errors.Join(fresh(t, b).Open(ctx), publishOne(ctx, running, 5)); err != nil {
				t.Errorf("after the way back: %v", err)
			}
		})
	}
}

func migrations(t *testing.T) []postgres.MigrationState {
	t.Helper()
	all, err := postgres.MigrationStatus(t.Context(), newPool(t, dsn(t), 1), postgres.Config{Schema: "not_there"})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fresh returns a store as in a process that starts now.
func fresh(t *testing.T, b *bundle) *postgres.Store {
	t.Helper()
	s, err := postgres.New(b.pool, b.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func publishOne[Tx any](ctx context.Context, s store.Outbox[Tx], n int) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	m := &postrider.Message{ID: fmt.Sprintf("p%d", n), Type: "t", Topic: "t", Key: "k", Time: time.Now(), Payload: []byte("{}")}
	if err := s.Insert(ctx, tx, []*postrider.Message{m}); err != nil {
		return errors.Join(err, s.Rollback(ctx, tx))
	}
	return s.Commit(ctx, tx)
}
