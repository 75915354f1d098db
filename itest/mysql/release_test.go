//go:build !race

package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// watched connects to a database and calls behind after each statement, with the connection that executed it.
type watched struct {
	driver.Connector
	after func(conn driver.Conn, statement string)
}

func (c watched) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return watchedConn{conn, c.after}, err
}

type watchedConn struct {
	driver.Conn
	after func(conn driver.Conn, statement string)
}

func (c watchedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

func (c watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	c.after(c.Conn, query)
	return res, err
}

func (c watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	c.after(c.Conn, query)
	return rows, err
}

// TestReleasedKeyIsHeldAgainMeanwhile: a settlement releases a key that is no longer held, while a consumer parks the next
// message of the key. The message must not be left waiting for a key that is not held.
func TestReleasedKeyIsHeldAgainMeanwhile(t *testing.T) {
	t.Parallel()
	d, ctx := newDatabase(t), t.Context()
	plain := newStore(t, d.migrated(t, nil, mysqlstore.Config{Partitions: 1}), mysqlstore.Config{})
	connector, err := mysql.NewConnector(d.config.Clone())
	must(t, err)
	meanwhile := func() {}
	db := sql.OpenDB(watched{connector, func(_ driver.Conn, query string) {
		if strings.Contains(query, "FROM postrider_held") && strings.HasSuffix(query, "FOR UPDATE") {
			meanwhile()
		}
	}})
	t.Cleanup(func() { must(t, db.Close()) })
	s := newStore(t, db, mysqlstore.Config{})
	park := func(id string) {
		t.Helper()
		tx, err := plain.Begin(ctx)
		must(t, err)
		m := &postrider.Message{ID: id, Type: "t", Key: "k"}
		m.FillDefaults("test", time.Now())
		must(t, plain.Park(ctx, tx, "view", []store.ParkRequest{{Message: m, Reason: store.ParkRetry}}))
		must(t, plain.Commit(ctx, tx))
	}
	must(t, plain.Enroll(ctx, "view"))
	leases, err := s.Acquire(ctx, "view", owner, claim(time.Hour))
	must(t, err)
	due := func() int64 {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
			res, err := plain.Due(ctx, "view", store.DueRequest{Leases: []store.LeaseRef{leases[0].Ref()}, Runs: 10, RunLength: 10, MaxBytes: 1 << 20})
			must(t, err)
			if len(res.Runs) == 1 && len(res.Runs[0].Entries) == 1 {
				return res.Runs[0].Entries[0].Message.Sequence
			}
		}
		t.Fatal("the parked message does not come due")
		return 0
	}

	park("first")
	settle := []store.Settlement{{Partition: 0, Token: leases[0].Token, Number: 1, Removed: []int64{due()}, Release: []string{"k"}}}
	_, err = s.Settle(ctx, "view", settle)
	must(t, err)
	asked := 0
	meanwhile = func() {
		if asked++; asked == 1 {
			park("second")
		}
	}
	settle[0].Number, settle[0].Removed = 2, nil
	_, err = s.Settle(ctx, "view", settle)
	must(t, err)
	if asked == 0 {
		t.Error("the settlement has not looked for the key; nothing was tried")
	}
	due()
}
