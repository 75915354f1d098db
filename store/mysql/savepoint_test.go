package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/postrider/postrider/store"
)

// silentConn is a connection that dies without a word once a savepoint was made.
type silentConn struct {
	driver.Conn
	made bool
}

func (c *silentConn) Connect(context.Context) (driver.Conn, error)                 { return c, nil }
func (*silentConn) Driver() driver.Driver                                          { return nil }
func (c *silentConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }
func (*silentConn) Commit() error                                                  { return nil }
func (*silentConn) Rollback() error                                                { return nil }
func (*silentConn) Close() error                                                   { return nil }

func (c *silentConn) ExecContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Result, error) {
	if !c.made {
		c.made = true
		return driver.ResultNoRows, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSavepointOverASilentConnection: a handler fails whose connection has died meanwhile. Its worker goes on.
func TestSavepointOverASilentConnection(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	s := &Store{cfg: Config{ErrorCode: codeOf}}
	for name, run := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"of a handler": func(ctx context.Context, tx *sql.Tx) error {
			err := s.Savepoint(ctx, tx, func(context.Context, *sql.Tx) error { return wrong })
			if !errors.Is(err, store.ErrUndone) {
				t.Error(err)
			}
			return err
		},
		"of an insert": func(ctx context.Context, tx *sql.Tx) error {
			return txn{s: s, on: tx}.savepoint(ctx, "x", func() error { return wrong })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := sql.OpenDB(&silentConn{})
				defer func() { _ = db.Close() }()
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }()
				if err := run(t.Context(), tx); !errors.Is(err, wrong) {
					t.Error(err)
				}
			})
		})
	}
}
