package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// TestSegmentWithAnUncommittedRowIsNotDropped: a writer whose clock is behind has written to an empty segment of the past,
// and commits while the drop waits for its lock.
func TestSegmentWithAnUncommittedRowIsNotDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	ctx := t.Context()
	b.lease(t, "r")
	b.past(t, "log_old", 5, 0)
	at := time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour).Add(time.Minute).Format(time.RFC3339)
	w := b.begin(t)
	if _, err := w.Exec(ctx, fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (0, 'late', 't', 'x', '%s')",
		b.table("log"), at)); err != nil {
		t.Fatal(err)
	}
	// Commit as soon as somebody waits for the writer's lock, or the drop has given up.
	maintained := make(chan error, 1)
	go func() {
		_, err := b.Maintain(context.WithoutCancel(ctx), relay.Retention{For: time.Hour})
		maintained <- err
	}()
	for waits := false; !waits && len(maintained) == 0; {
		waits = one[bool](t, b.pool, "select exists (select 1 from pg_locks where not granted and $1::int4 = any(pg_blocking_pids(pid)))",
			int32(w.Conn().PgConn().PID()))
	}
	if err := w.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-maintained; err != nil {
		t.Fatal(err)
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("log")+" where id = 'late'"); n != 1 {
		t.Error("a committed row was dropped with its segment")
	}
}
