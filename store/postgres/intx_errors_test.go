//go:build !race

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// modes are the ways in which pgx executes statements.
var modes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// failure is a transaction that fails.
type failure struct {
	name, want string
	do         func(ctx context.Context, tx pgx.Tx) error
}

// refusals are transactions whose messages the database does not write.
func (b ordersBundle) refusals(t *testing.T) []failure {
	return []failure{
		{"refused at commit", "commit transaction: commit: insert messages: ERROR: refused", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertOrder, 1)
			return errors.Join(err, b.publish(ctx, tx, "refuse"))
		}},
		{"refused before the next statement", "insert messages: ERROR: refused", func(ctx context.Context, tx pgx.Tx) error {
			if err := b.publish(ctx, tx, "refuse"); err != nil {
				t.Errorf("Publish: %v", err)
			}
			_, err := tx.Exec(ctx, insertOrder, 1)
			return err
		}},
		{"refused, and the error ignored", "commit unexpectedly resulted in rollback", func(ctx context.Context, tx pgx.Tx) error {
			_ = b.publish(ctx, tx, "refuse")
			_, _ = tx.Exec(ctx, insertOrder, 1)
			return nil
		}},
		{"not written at commit", "look for a trigger or rule", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertOrder, 1)
			return errors.Join(err, b.publish(ctx, tx, "vanish"))
		}},
		{"not written before a statement", "look for a trigger or rule", func(ctx context.Context, tx pgx.Tx) error {
			_ = b.publish(ctx, tx, "vanish")
			_, err := tx.Exec(ctx, insertOrder, 1)
			return err
		}},
		{"not written, and the error ignored", "commit unexpectedly resulted in rollback", func(ctx context.Context, tx pgx.Tx) error {
			_ = b.publish(ctx, tx, "vanish")
			_, _ = tx.Exec(ctx, insertOrder, 1)
			_, _ = tx.Exec(ctx, insertOrder, 1)
			return nil
		}},
	}
}

// mistakes are transactions with a statement that fails.
func (b ordersBundle) mistakes(t *testing.T) []failure {
	return []failure{
		{"a parameter that cannot be encoded", "unable to encode", func(ctx context.Context, tx pgx.Tx) error {
			_ = b.publish(ctx, tx, "order.placed")
			_, err := tx.Exec(ctx, insertOrder, make(chan int))
			return errIf(err, "unable to encode", "cannot convert")
		}},
		{"a constraint that commit checks", "late_other_fkey", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into public.late values ($1, $2)", 1, 2)
			return errors.Join(err, b.publish(ctx, tx, "order.placed"))
		}},
		{"a first statement with a mistake", "syntax error", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "selec $1", 1)
			return err
		}},
		{"a first statement with a mistake, ignored", "commit unexpectedly resulted in rollback", func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "selec $1", 1)
			_, err := tx.Exec(ctx, insertOrder, 1)
			if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != failedTransaction {
				t.Errorf("in an aborted transaction: %v", err)
			}
			if err := b.publish(ctx, tx, "order.placed"); err == nil {
				t.Error("Publish in an aborted transaction succeeded")
			}
			return nil
		}},
	}
}

// TestInTxErrors finds out where each error comes up, that nothing is written then, and that the connection is used again.
func TestInTxErrors(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setupOrders(t, withParam(t, dsn(t), "default_query_exec_mode", mode))
			b.exec(t, `create function public.refuse() returns trigger language plpgsql as $$ begin
				if new.type = 'vanish' then return null; end if;
				if new.type = 'refuse' then raise exception 'refused' using errcode = 'XX001'; end if;
				return new; end $$`)
			b.exec(t, "create trigger refuse before insert on "+b.table("log")+" for each row execute function public.refuse()")
			b.exec(t, `create table public.late (id bigint primary key, other bigint references public.late deferrable initially deferred)`)
			for _, c := range append(b.refusals(t), b.mistakes(t)...) {
				_, err := b.InTx(t.Context(), c.do)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want %q", c.name, err, c.want)
				}
				b.want(t, 0)
			}
			ended, cancel := context.WithCancel(t.Context())
			if _, err := b.InTx(ended, func(ctx context.Context, tx pgx.Tx) error {
				defer cancel()
				return b.publish(ctx, tx, "order.placed")
			}); !errors.Is(err, context.Canceled) {
				t.Errorf("the context ended before the commit: %v", err)
			}
			b.want(t, 0)
			if _, err := b.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				return b.publish(ctx, tx, "order.placed")
			}); err != nil {
				t.Error(err)
			}
			b.want(t, 0, "x")
			if n := b.pool.Stat().NewConnsCount(); n > int64(b.pool.Config().MaxConns) {
				t.Errorf("%d connections were opened: some were closed on the way", n)
			}
		})
	}
}

// errIf replaces an error that has one of several texts by the first of them.
func errIf(err error, texts ...string) error {
	for _, text := range texts {
		if err != nil && strings.Contains(err.Error(), text) {
			return errors.New(texts[0])
		}
	}
	return err
}

// TestInTxRows reads results that come after BEGIN and messages in the same round trip.
func TestInTxRows(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setupOrders(t, withParam(t, dsn(t), "default_query_exec_mode", mode))
			_, err := b.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				for n := range 3 {
					if _, err := b.Publish(ctx, tx, orderPlaced(fmt.Sprint(n))); err != nil {
						return err
					}
					rows, err := tx.Query(ctx, "select generate_series(1, $1::int)", 1000)
					if err != nil {
						return err
					}
					if n == 0 { // not read to the end
						rows.Next()
						if _, err := b.Publish(ctx, tx, orderPlaced("meanwhile")); err != nil {
							return err
						}
						if _, err := tx.Exec(ctx, insertOrder, 1); err == nil {
							t.Error("a statement was executed while rows were read")
						}
						rows.Close()
						if err := rows.Err(); err != nil {
							return err
						}
						continue
					}
					if all, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil || len(all) != 1000 || rows.CommandTag().RowsAffected() != 1000 {
						return fmt.Errorf("%d rows, %w", len(all), err)
					}
				}
				var none int
				if err := tx.QueryRow(ctx, "select id from public.orders where id = $1", 7).Scan(&none); !errors.Is(err, pgx.ErrNoRows) {
					t.Errorf("no row: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			b.want(t, 0, "0", "meanwhile", "1", "2")
			_, err = b.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				_, _ = b.Publish(ctx, tx, orderPlaced("lost"))
				var n int
				return tx.QueryRow(ctx, "select 1 / $1::int", 0).Scan(&n)
			})
			if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "22012" {
				t.Errorf("division by zero: %v", err)
			}
		})
	}
}
