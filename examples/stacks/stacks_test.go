package stacks_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"net/url"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/examples/stacks"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/postridertest"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// world is a service's database, with its outbox.
type world struct {
	db    *sql.DB
	dsn   string
	store *postgres.SQLStore
	box   stacks.Outbox
}

// newDatabase creates a database that lives as long as the test.
func newDatabase(t *testing.T) (dsn string) {
	t.Helper()
	u, err := url.Parse(servertest.Get(t, servertest.Postgres))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 6)
	_, _ = rand.Read(random) // never fails
	name := "stacks_" + hex.EncodeToString(random)
	if _, err := admin.ExecContext(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "drop database "+name+" with (force)")
		if err := errors.Join(err, admin.Close()); err != nil {
			t.Error(err)
		}
	})
	u.Path = "/" + name
	return u.String()
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{dsn: newDatabase(t)}
	var err error
	if w.db, err = sql.Open("pgx", w.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.db.Close() })
	if _, err := postgres.MigrateSQL(t.Context(), w.db, postgres.Config{}, postgres.Latest); err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.ExecContext(t.Context(), "create table orders (id text primary key, total integer not null)"); err != nil {
		t.Fatal(err)
	}
	if w.store, err = postgres.NewSQL(w.db, postgres.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.store.Close)
	if w.box, err = outbox.New(w.store, outbox.Config{Source: "shop"}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) gorm(t *testing.T, prepare bool) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: w.db}), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// TestStacks: with each library, an order and its message are committed together, or neither.
func TestStacks(t *testing.T) {
	t.Parallel()
	type place func(ctx context.Context, o stacks.Order) error
	for name, with := range map[string]func(t *testing.T, w *world) place{
		"gorm": func(t *testing.T, w *world) place {
			db := w.gorm(t, false)
			return func(ctx context.Context, o stacks.Order) error { return stacks.PlaceWithGORM(ctx, db, w.box, o) }
		},
		"gorm with PrepareStmt": func(t *testing.T, w *world) place {
			db := w.gorm(t, true)
			return func(ctx context.Context, o stacks.Order) error { return stacks.PlaceWithGORM(ctx, db, w.box, o) }
		},
		"sqlx": func(_ *testing.T, w *world) place {
			db := sqlx.NewDb(w.db, "pgx")
			return func(ctx context.Context, o stacks.Order) error { return stacks.PlaceWithSqlx(ctx, db, w.box, o) }
		},
		"bun": func(_ *testing.T, w *world) place {
			db := bun.NewDB(w.db, pgdialect.New())
			return func(ctx context.Context, o stacks.Order) error { return stacks.PlaceWithBun(ctx, db, w.box, o) }
		},
		"ent": func(_ *testing.T, w *world) place {
			return func(ctx context.Context, o stacks.Order) error { return stacks.PlaceWithEnt(ctx, w.box, o) }
		},
		"sqlc": func(_ *testing.T, w *world) place {
			return func(ctx context.Context, o stacks.Order) error { return stacks.PlaceWithSqlc(ctx, w.db, w.box, o) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			place := with(t, w)
			if err := place(t.Context(), stacks.Order{ID: "42", Total: 1999}); err != nil {
				t.Fatal(err)
			}
			if err := place(t.Context(), stacks.Order{ID: "42", Total: 1}); err == nil {
				t.Error("an order was inserted twice")
			}
			if err := place(t.Context(), stacks.Order{ID: string(make([]byte, 300)), Total: 1}); err == nil {
				t.Error("an order whose message is not valid was placed")
			}
			w.wantDelivered(t, "order/42")
		})
	}
}

// wantDelivered runs a relay on the *sql.DB of the service, and compares what it delivers and what is in the table of orders.
func (w *world) wantDelivered(t *testing.T, key string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, err := relay.New(w.store, relay.Config{Name: "shipping"})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	delivered := make(chan struct{}, 10)
	err = relay.Handle(r, stacks.OrderPlaced, func(_ context.Context, m postrider.Typed[stacks.OrderPlacedData]) error {
		keys = append(keys, m.Key) // one key at a time
		delivered <- struct{}{}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-delivered:
	case err := <-ended:
		t.Fatal(err)
	}
	if err := r.Drain(ctx); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var orders, total int
	if err := w.db.QueryRowContext(t.Context(), "select count(*), sum(total) from orders").Scan(&orders, &total); err != nil {
		t.Fatal(err)
	}
	if len(keys) != 1 || keys[0] != key || orders != 1 || total != 1999 {
		t.Errorf("delivered %v, %d orders with %d in total; want one of each", keys, orders, total)
	}
}

// TestInHandlers: each library works in a transaction that the outbox, or a consumer, has begun.
func TestInHandlers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, insert := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"gorm": func(ctx context.Context, tx *sql.Tx) error {
			return stacks.GORMIn(ctx, w.gorm(t, false), tx).Exec("insert into orders (id, total) values ('1', 1)").Error
		},
		"gorm with PrepareStmt": func(ctx context.Context, tx *sql.Tx) error {
			return stacks.GORMIn(ctx, w.gorm(t, true), tx).Exec("insert into orders (id, total) values ('1', 1)").Error
		},
		"sqlx": func(ctx context.Context, tx *sql.Tx) error {
			_, err := stacks.SqlxIn(sqlx.NewDb(w.db, "pgx"), tx).ExecContext(ctx, "insert into orders (id, total) values ($1, 1)", "1")
			return err
		},
		"bun": func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "insert into orders (id, total) values ('1', 1), ('2', 2)"); err != nil {
				return err
			}
			return stacks.CancelWithBun(ctx, bun.NewDB(w.db, pgdialect.New()), tx, "2")
		},
		"ent": func(ctx context.Context, tx *sql.Tx) error {
			return stacks.EntIn(tx).Order.Create().SetID("1").SetTotal(1).Exec(ctx)
		},
	} {
		rolledBack := errors.New("rolled back")
		_, err := w.box.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if err := insert(ctx, tx); err != nil {
				return err
			}
			var n int
			if err := tx.QueryRowContext(ctx, "select count(*) from orders").Scan(&n); err != nil || n != 1 {
				t.Errorf("%s: %d orders in the transaction, %v; want 1", name, n, err)
			}
			return rolledBack
		})
		if !errors.Is(err, rolledBack) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var n int
	if err := w.db.QueryRowContext(t.Context(), "select count(*) from orders").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d orders after the rollbacks, %v; want none", n, err)
	}
}

// TestGORMSavepoints: a nested transaction of GORM that fails undoes its messages, and those around it stay.
func TestGORMSavepoints(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, prepare := range []bool{false, true} {
		undone := errors.New("undone")
		err := w.gorm(t, prepare).Transaction(func(db *gorm.DB) error {
			if err := stacks.PlaceWithGORM(t.Context(), db, w.box, stacks.Order{ID: "outer", Total: 1}); err != nil {
				return err
			}
			err := db.Transaction(func(db *gorm.DB) error {
				return errors.Join(stacks.PlaceWithGORM(t.Context(), db, w.box, stacks.Order{ID: "inner", Total: 1}), undone)
			})
			if !errors.Is(err, undone) {
				t.Errorf("nested transaction: %v", err)
			}
			tx, err := stacks.TxOfGORM(db)
			if err != nil {
				return err
			}
			postridertest.RequirePublished(t, t.Context(), w.box, tx, stacks.OrderPlaced, postridertest.Key("order/outer"))
			postridertest.RequireNotPublished(t, t.Context(), w.box, tx, stacks.OrderPlaced, postridertest.Key("order/inner"))
			return undone
		})
		if !errors.Is(err, undone) {
			t.Error(err)
		}
	}
	if _, err := stacks.TxOfGORM(w.gorm(t, false)); err == nil {
		t.Error("a *gorm.DB without a transaction was accepted")
	}
}
