//go:build !race

package postgres_test

import (
	"database/sql"
	_ "embed"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/storetest"
)

// plantedSQL creates functions and operators in the schema public whose parameters match calls better than those of PostgreSQL do
// (CVE-2018-1058). Each fails when it is called.
//
//go:embed testdata/planted.sql
var plantedSQL string

// TestPlanted: the contract holds, and no planted function or operator is called, with public in the search path.
func TestPlanted(t *testing.T) {
	t.Parallel()
	notInShort(t)
	h := harness(dsn(t))
	h.Open = func(t testing.TB, partitions int) storetest.Store[pgx.Tx] {
		return clonedFrom(t, kind{partitions: partitions, before: plantedSQL}, dsn(t), postgres.Config{Partitions: partitions}, 16)
	}
	t.Run("Contract", func(t *testing.T) {
		t.Parallel()
		storetest.Contract(t, again, h)
	})
	t.Run("Inbox", func(t *testing.T) {
		t.Parallel()
		storetest.Inbox(t, again, h)
	})
	t.Run("Sagas", func(t *testing.T) {
		t.Parallel()
		storetest.Sagas(t, again, h)
	})
}

// TestPlantedFunctionsAreCalledUnqualified: the planted functions are those that a statement without precautions calls.
func TestPlantedFunctionsAreCalledUnqualified(t *testing.T) {
	t.Parallel()
	b := clonedFrom(t, kind{partitions: 1, before: plantedSQL}, dsn(t), postgres.Config{Partitions: 1}, 2)
	for _, call := range []string{"cardinality($1::text[])", "array(select unnest($1::int2[]))", "format($1::text, 1)", "jsonb '{}' ->> 'a'",
		"$1::int8 * interval '1 second'", "$1::oid = 'pg_class'::regclass", "hashtextextended($1::text, 0)"} {
		if _, err := b.pool.Exec(t.Context(), "select "+call, pgx.QueryExecModeSimpleProtocol, "1"); err == nil {
			t.Errorf("%s does not call a planted function", call)
		}
	}
}

// TestPublishWithPlanted: whoever publishes, in any way, calls no planted function, and the transaction keeps its search path.
func TestPublishWithPlanted(t *testing.T) {
	t.Parallel()
	notInShort(t)
	b := clonedFrom(t, kind{partitions: 4, before: plantedSQL}, dsn(t), postgres.Config{Partitions: 4}, 4)
	ctx := t.Context()
	messages := func() []*postrider.Message {
		m := &postrider.Message{Topic: "a", Type: "a", Key: "k", Payload: []byte("{}"), Headers: map[string]string{"a": "b"}, DeliverAfter: 1}
		return []*postrider.Message{m, {Topic: "a", Type: "b", Payload: []byte("{}")}}
	}
	tx := b.begin(t)
	if _, err := tx.Exec(ctx, "set search_path = public, \"x y\""); err != nil {
		t.Fatal(err)
	}
	before := one[string](t, tx, "show search_path")
	o, err := outbox.New(b.Store, outbox.Config{Source: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, some := range [][]*postrider.Message{messages(), messages()[:1], messages()[1:]} {
		if _, err := o.Publish(ctx, tx, some...); err != nil {
			t.Fatal(err)
		}
	}
	if after := one[string](t, tx, "show search_path"); after != before {
		t.Errorf("publishing has set the search path to %s, before %s", after, before)
	}
	for _, payload := range []string{"'{}'::bytea", "'{}'::text", "'{}'::json", "'{}'::jsonb"} {
		if _, err := tx.Exec(ctx, `select `+b.table("publish")+`(topic => 'a'::text, key => 'k'::text, type => 'a'::text, payload => `+payload+
			`, headers => '{"a": "b"}'::jsonb, deliver_after => '1 second'::interval)`); err != nil {
			t.Errorf("publish %s: %v", payload, err)
		}
		sub, err := tx.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sub.Exec(ctx, `select `+b.table("publish")+`(topic => 'a'::text, key => 'k'::text, type => ''::text, payload => `+payload+
			`, schema_version => -1, aggregate_version => -1)`)
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "22023" {
			t.Errorf("publish %s without a type: %v", payload, err)
		}
		if err := sub.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for _, driver := range []string{"pgx", "postgres"} {
		b.publishBySQL(t, driver, messages())
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("log")); n != 4+4+2*2 {
		t.Errorf("%d messages are in the log", n)
	}
}

// publishBySQL publishes in a transaction of database/sql.
func (b *bundle) publishBySQL(t *testing.T, driver string, messages []*postrider.Message) {
	t.Helper()
	db, err := sql.Open(driver, withParam(t, b.dsn, "sslmode", "disable")) // lib/pq asks for TLS unless told otherwise
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	o, err := outbox.New(b.SQL(db), outbox.Config{Source: "s"})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := o.Publish(t.Context(), tx, messages...)
	if err != nil {
		t.Fatalf("%s: %v", driver, err)
	}
	if written, err := b.SQL(db).Written(t.Context(), tx, ids); err != nil || len(written) != len(ids) {
		t.Errorf("%s: written are %v, %v", driver, written, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
