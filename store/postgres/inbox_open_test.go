package postgres_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// eachMode runs a test with each way in which pgx sends statements, and behind PgBouncer, where transactions are
// REPEATABLE READ unless they ask for something else.
func eachMode(t *testing.T, f func(t *testing.T, b *bundle)) {
	t.Parallel()
	for name, source := range map[string]string{
		"prepared":  dsn(t),
		"simple":    withParam(t, dsn(t), "default_query_exec_mode", "simple_protocol"),
		"pgbouncer": withParam(t, startPgBouncer(t), "default_query_exec_mode", "exec"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, setupWith(t, source, postgres.Config{Partitions: 2}, 5))
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTransactionBegunWithAClaim(t *testing.T) {
	eachMode(t, func(t *testing.T, b *bundle) {
		ctx := t.Context()
		claim := func(msgs ...inbox.Candidate) (pgx.Tx, []inbox.Standing) {
			t.Helper()
			tx, standings, err := b.BeginClaim(ctx, "c", msgs)
			must(t, err)
			return tx, standings
		}
		want := func(what string, got []inbox.Standing, want ...inbox.Standing) {
			if !slices.Equal(got, want) {
				t.Errorf("%s: %+v, want %+v", what, got, want)
			}
		}
		first, got := claim(inbox.Candidate{ID: "a", Key: "k"})
		want("first", got, inbox.Standing{Fresh: true})
		m := &postrider.Message{ID: "a", Type: "t", Topic: "t", Source: "s", Key: "k", ContentType: "text/plain", Time: time.Now()}
		if err := b.Park(ctx, first, "c", []inbox.Parked{{Message: m, Reason: relay.ParkRetry}}); err != nil {
			t.Fatal(err)
		}
		var second pgx.Tx
		got = whileLocked(t, b, first, func() (out []inbox.Standing, err error) {
			second, out, err = b.BeginClaim(ctx, "c", []inbox.Candidate{{ID: "a", Key: "k"}, {ID: "b", Key: "k"}, {ID: "d"}})
			return out, err
		})
		want("after the wait", got, inbox.Standing{Held: true}, inbox.Standing{Fresh: true, Held: true}, inbox.Standing{Fresh: true})
		must(t, b.Rollback(ctx, second))
		third, got := claim(inbox.Candidate{ID: "b"})
		want("after a rollback", got, inbox.Standing{Fresh: true})
		must(t, b.Commit(ctx, third))
		fourth, got := claim()
		want("of nothing", got)
		must(t, b.Rollback(ctx, fourth))
	})
}

func TestTransactionBegunWithAWatermark(t *testing.T) {
	eachMode(t, func(t *testing.T, b *bundle) {
		ctx := t.Context()
		at := postrider.Position{Partition: "p", Epoch: "1", Offset: 7}
		mark := func(at postrider.Position) (pgx.Tx, inbox.Watermark) {
			t.Helper()
			tx, w, err := b.BeginWatermark(ctx, "c", at)
			must(t, err)
			return tx, w
		}
		for _, before := range []inbox.Watermark{{}, {Known: true, Offset: 7}, {Known: true, Offset: 8}} {
			first, w := mark(at)
			if w != before {
				t.Errorf("watermark %+v, want %+v", w, before)
			}
			must(t, b.SetWatermark(ctx, first, "c", at))
			var second pgx.Tx
			w = whileLocked(t, b, first, func() (w inbox.Watermark, err error) {
				second, w, err = b.BeginWatermark(ctx, "c", at)
				return w, err
			})
			if (w != inbox.Watermark{Known: true, Offset: at.Offset}) {
				t.Errorf("watermark after the wait: %+v, want %d", w, at.Offset)
			}
			must(t, b.Rollback(ctx, second))
			at.Offset++
		}
		at.Epoch = "2"
		tx, w := mark(at)
		if (w != inbox.Watermark{Earlier: "1"}) {
			t.Errorf("watermark of a new log: %+v", w)
		}
		must(t, b.Rollback(ctx, tx))
	})
}

// TestTransactionThatCannotBeBegunLeavesNothing: no connection is kept, and no claim.
func TestTransactionThatCannotBeBegunLeavesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, b *bundle) {
		ended, end := context.WithCancel(t.Context())
		end()
		for what, c := range map[string]struct {
			ctx context.Context
			id  string
		}{"a context that has ended": {ended, "a"}, "an ID that no database holds": {t.Context(), "a\x00"}} {
			if tx, _, err := b.BeginClaim(c.ctx, "c", []inbox.Candidate{{ID: "b"}, {ID: c.id}}); err == nil || tx != nil {
				t.Errorf("%s: transaction %v, error %v", what, tx, err)
			}
		}
		if n := b.pool.Stat().AcquiredConns(); n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
		tx, standings, err := b.BeginClaim(t.Context(), "c", []inbox.Candidate{{ID: "b"}})
		if err != nil || !standings[0].Fresh {
			t.Fatalf("claim: %+v, %v", standings, err)
		}
		must(t, b.Rollback(t.Context(), tx))
	})
}
