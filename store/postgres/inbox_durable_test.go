//go:build !race

package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestInboxTransactionsAreDurable: a transaction that claims a message or applies an operator's decision waits for
// the disk, whatever the role's default is; settings that wait for more are kept.
func TestInboxTransactionsAreDurable(t *testing.T) { //nolint:tparallel // a few statements each
	t.Parallel()
	owner := setup(t, postgres.Config{})
	for _, c := range []struct{ set, want string }{
		{"off", "on"}, {"local", "local"}, {"on", "on"}, {"remote_write", "remote_write"}, {"remote_apply", "remote_apply"},
	} {
		role := owner.config.Schema + "_" + c.set
		owner.exec(t, fmt.Sprintf("create role %s login superuser", role))
		t.Cleanup(func() { owner.exec(t, "drop role "+role) })
		owner.exec(t, fmt.Sprintf("alter role %s set synchronous_commit = %s", role, c.set))
		t.Run(c.set, func(t *testing.T) {
			pool := newPool(t, withParam(t, dsn(t), "user", role), 4)
			if v := one[string](t, pool, "show synchronous_commit"); v != c.set {
				t.Fatalf("the role's synchronous_commit is %s", v)
			}
			b := &bundle{Store: open(t, pool, owner.config), pool: pool, config: owner.config}
			durable(t, b, c.want)
			if v := one[string](t, pool, "show synchronous_commit"); v != c.set {
				t.Errorf("synchronous_commit is %s afterwards", v)
			}
		})
	}
}

func durable(t *testing.T, b *bundle, want string) {
	t.Helper()
	ctx := context.Background()
	check := func(what string, tx pgx.Tx, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if v := one[string](t, tx, "show synchronous_commit"); v != want {
			t.Errorf("%s: synchronous_commit is %s, want %s", what, v, want)
		}
		if err := b.Commit(ctx, tx); err != nil {
			t.Errorf("%s: commit: %v", what, err)
		}
	}
	if v, err := b.DecisionCommits(ctx); err != nil || v != want {
		t.Errorf("an operator's transaction: synchronous_commit is %s, %v; want %s", v, err, want)
	}
	tx, _, err := b.BeginClaim(ctx, "c", []store.ClaimRequest{{ID: postrider.NewID()}})
	check("claim", tx, err)
	tx, _, err = b.BeginClaim(ctx, "c", []store.ClaimRequest{{ID: postrider.NewID(), Key: "k"}, {ID: postrider.NewID()}})
	check("claims", tx, err)
	// A user's transaction, for inbox.Process.
	tx, err = b.pool.Begin(ctx)
	if err == nil {
		_, err = b.Claim(ctx, tx, "c", []store.ClaimRequest{{ID: postrider.NewID()}})
	}
	check("claim in another transaction", tx, err)

	db := stdlib.OpenDBFromPool(b.pool)
	defer func() { _ = db.Close() }()
	s := b.SQL(db)
	std, err := s.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = std.Rollback() }()
	var v string
	if _, err = s.Claim(ctx, std, "c", []store.ClaimRequest{{ID: postrider.NewID()}}); err == nil {
		err = std.QueryRowContext(ctx, "show synchronous_commit").Scan(&v)
	}
	if err != nil || v != want {
		t.Errorf("claim on database/sql: synchronous_commit is %s (%v), want %s", v, err, want)
	}
}
