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
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// watched connects to a database and calls behind after each query.
type watched struct {
	driver.Connector
	behind func(query string)
}

func (c watched) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return watchedConn{conn, c.behind}, err
}

type watchedConn struct {
	driver.Conn
	behind func(query string)
}

func (c watchedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

func (c watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	c.behind(query)
	return rows, err
}

// TestReleasedKeyIsHeldAnewMeanwhile: a settlement that releases a key is repeated, because its answer was lost, while a
// consumer puts the next message of the key aside. The message must not be left waiting behind a key that nobody holds.
func TestReleasedKeyIsHeldAnewMeanwhile(t *testing.T) {
	t.Parallel()
	d, ctx := newDatabase(t), t.Context()
	plain := newStore(t, d.migrated(t, nil, mysqlstore.Config{Partitions: 1}), mysqlstore.Config{})
	connector, err := mysql.NewConnector(d.config.Clone())
	must(t, err)
	meanwhile := func() {}
	db := sql.OpenDB(watched{connector, func(query string) {
		if strings.Contains(query, "FROM postrider_held") && strings.HasSuffix(query, "FOR UPDATE") {
			meanwhile()
		}
	}})
	t.Cleanup(func() { must(t, db.Close()) })
	store := newStore(t, db, mysqlstore.Config{})
	park := func(id string) {
		t.Helper()
		tx, err := plain.Begin(ctx)
		must(t, err)
		m := &postrider.Message{ID: id, Type: "t", Key: "k"}
		m.FillDefaults("test", time.Now())
		must(t, plain.Park(ctx, tx, "view", []inbox.Parked{{Message: m, Reason: relay.ParkRetry}}))
		must(t, plain.Commit(ctx, tx))
	}
	due := func() int64 {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
			res, err := plain.Due(ctx, "view", relay.DueRequest{Partitions: []int{0}, Runs: 10, RunLength: 10, MaxBytes: 1 << 20})
			must(t, err)
			if len(res.Runs) == 1 && len(res.Runs[0].Records) == 1 {
				return res.Runs[0].Records[0].Message.Sequence
			}
		}
		t.Fatal("the parked message does not come due")
		return 0
	}

	must(t, plain.Enroll(ctx, "view"))
	leases, err := store.Acquire(ctx, "view", owner, []int{0}, time.Hour, relay.FromOldest)
	must(t, err)
	park("first")
	settle := []relay.Settlement{{Partition: 0, Epoch: leases[0].Epoch, Removed: []int64{due()}, Release: []string{"k"}}}
	_, err = store.Settle(ctx, "view", owner, settle)
	must(t, err)
	asked := 0
	meanwhile = func() {
		if asked++; asked == 1 {
			park("second")
		}
	}
	_, err = store.Settle(ctx, "view", owner, settle)
	must(t, err)
	if asked == 0 {
		t.Error("the settlement has not looked for the key; nothing was tried")
	}
	due()
}
