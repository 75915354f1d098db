//go:build !race

package postgres_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// eachMode runs a test in each mode in which pgx sends statements, and through PgBouncer, where transactions are REPEATABLE READ
// by default.
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

func TestTransactionBegunWithAClaim(t *testing.T) {
	eachMode(t, func(t *testing.T, b *bundle) {
		ctx := t.Context()
		claim := func(msgs ...store.ClaimRequest) (pgx.Tx, []store.ClaimResult) {
			t.Helper()
			tx, results, err := b.BeginClaim(ctx, "c", msgs)
			must(t, err)
			return tx, results
		}
		want := func(what string, got []store.ClaimResult, want ...store.ClaimResult) {
			if !slices.Equal(got, want) {
				t.Errorf("%s: %+v, want %+v", what, got, want)
			}
		}
		first, got := claim(store.ClaimRequest{ID: "a", Key: "k"})
		want("first", got, store.ClaimResult{Fresh: true})
		m := &postrider.Message{ID: "a", Type: "t", Topic: "t", Source: "s", Key: "k", ContentType: "text/plain", Time: time.Now()}
		if err := b.Park(ctx, first, "c", []store.ParkRequest{{Message: m, Reason: store.ParkRetry}}); err != nil {
			t.Fatal(err)
		}
		var second pgx.Tx
		got = whileLocked(t, b, first, func() (out []store.ClaimResult, err error) {
			second, out, err = b.BeginClaim(ctx, "c", []store.ClaimRequest{{ID: "a", Key: "k"}, {ID: "b", Key: "k"}, {ID: "d"}})
			return out, err
		})
		want("after the wait", got, store.ClaimResult{Held: true}, store.ClaimResult{Fresh: true, Held: true}, store.ClaimResult{Fresh: true})
		must(t, b.Rollback(ctx, second))
		third, got := claim(store.ClaimRequest{ID: "b"})
		want("after a rollback", got, store.ClaimResult{Fresh: true})
		must(t, b.Commit(ctx, third))
		fourth, got := claim()
		want("of nothing", got)
		must(t, b.Rollback(ctx, fourth))
	})
}

// TestTransactionThatCannotBeBegunLeavesNothing: neither a connection nor a claim is kept.
func TestTransactionThatCannotBeBegunLeavesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, b *bundle) {
		ended, end := context.WithCancel(t.Context())
		end()
		for what, c := range map[string]struct {
			ctx context.Context
			id  string
		}{"a context that has ended": {ended, "a"}, "an ID that no database holds": {t.Context(), "a\x00"}} {
			if tx, _, err := b.BeginClaim(c.ctx, "c", []store.ClaimRequest{{ID: "b"}, {ID: c.id}}); err == nil || tx != nil {
				t.Errorf("%s: transaction %v, error %v", what, tx, err)
			}
		}
		if n := b.pool.Stat().AcquiredConns(); n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
		tx, results, err := b.BeginClaim(t.Context(), "c", []store.ClaimRequest{{ID: "b"}})
		if err != nil || !results[0].Fresh {
			t.Fatalf("claim: %+v, %v", results, err)
		}
		must(t, b.Rollback(t.Context(), tx))
	})
}
