//go:build !race

package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/postrider/postrider/store/postgres"
)

// TestMigrationScripts: the scripts for other tools make the same schema as Migrate, keep the search path of the transaction, and take
// everything back.
func TestMigrationScripts(t *testing.T) {
	t.Parallel()
	pool, ctx := newPool(t, dsn(t), 4), context.Background()
	schemaOf := func(schema string) string {
		return one[string](t, pool, `select string_agg(md5(replace(def, $1::text, '')), ',' order by def) from (
			select table_name || column_name || data_type || coalesce(column_default, '') as def from information_schema.columns where table_schema = $1::text
			union all select indexdef from pg_indexes where schemaname = $1::text
			union all select pg_get_functiondef(p.oid) from pg_proc p where pronamespace = $1::text::regnamespace) as d`, schema)
	}
	config := postgres.Config{Schema: newSchema(t, pool)}
	if _, err := postgres.Migrate(ctx, pool, config, postgres.Latest); err != nil {
		t.Fatal(err)
	}
	want := schemaOf(config.Schema)

	config.Schema = newSchema(t, pool)
	scripts, err := postgres.MigrationScripts(config)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	run := func(text string) {
		t.Helper()
		if err := conn.Conn().PgConn().Exec(ctx, text).Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range scripts {
		run("begin; " + s.Up[0] + fmt.Sprintf("; create temp table found_%d (id int); drop table found_%[1]d; commit", s.Version))
	}
	if got := schemaOf(config.Schema); got != want {
		t.Error("the schema differs from that of Migrate")
	}
	open(t, pool, config)
	states, err := postgres.MigrationStatus(ctx, pool, config)
	if err != nil || !slices.ContainsFunc(states, func(s postgres.MigrationState) bool { return s.Version == 1 && s.Applied && s.Oldest > 0 }) {
		t.Errorf("status %+v, %v; want versions with their oldest programs", states, err)
	}
	for _, s := range slices.Backward(scripts) {
		run(s.SQL(true))
	}
	if n := one[int](t, pool, "select count(*)::int4 from pg_class where relnamespace = $1::text::regnamespace", config.Schema); n != 0 {
		t.Errorf("%d tables, indexes and sequences are left", n)
	}
}
