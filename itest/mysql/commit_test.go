//go:build !race

package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestEndsAfterTheCommit: something ends after the server has committed and before it has got the rest of what the client sends then. For
// MySQL, that is several statements; here the store takes MariaDB for it.
func TestEndsAfterTheCommit(t *testing.T) { //nolint:tparallel // they share a connection to each server
	t.Parallel()
	asMySQL := elsewhere(t, "--version=8.0.36")
	for name, on := range map[string]*mysql.Config{"MariaDB": server(t), "MySQL": asMySQL} {
		d := databaseOn(t, on)
		plain := d.migrated(t, nil, mysqlstore.Config{})
		if mariaDB(t, plain) != (name == "MariaDB") {
			t.Fatalf("%s: another server", name)
		}
		for what, end := range map[string]func(conn driver.Conn, tx *sql.Tx, cancel func()){
			"context": func(_ driver.Conn, tx *sql.Tx, cancel func()) {
				cancel()
				for !errors.Is(tx.Commit(), sql.ErrTxDone) { // until database/sql has seen it
					runtime.Gosched()
				}
			},
			"connection": func(conn driver.Conn, _ *sql.Tx, _ func()) { _ = conn.Close() },
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var tx *sql.Tx
				ended := false
				connector, err := mysql.NewConnector(d.config.Clone())
				must(t, err)
				db := sql.OpenDB(watched{connector, func(conn driver.Conn, statement string) {
					if !ended && strings.Contains(statement, "COMMIT AND CHAIN") {
						ended = true
						end(conn, tx, cancel)
					}
				}})
				t.Cleanup(func() { must(t, db.Close()) })
				ids, err := publishOne(t, ctx, db, &tx)
				must(t, err)
				if !ended {
					t.Fatal("nothing was committed")
				}
				wantMessages(t, plain, 1, ids...)
			})
		}
	}
}

// TestAnswerToTheCommitIsLost: the caller is told that nobody knows, and the message is there.
func TestAnswerToTheCommitIsLost(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	plain := d.migrated(t, nil, mysqlstore.Config{})
	c := d.config.Clone()
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &losesAnswer{Conn: conn}, err
	}
	var tx *sql.Tx
	_, err := publishOne(t, t.Context(), open(t, c), &tx)
	if !errors.Is(err, store.ErrUncertain) || errors.Is(err, store.ErrNoTransaction) {
		t.Errorf("got %v, want store.ErrUncertain", err)
	}
	wantMessages(t, plain, 1)
}

// losesAnswer breaks when the answer to a COMMIT arrives.
type losesAnswer struct {
	net.Conn
	sent atomic.Bool
}

func (c *losesAnswer) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("COMMIT AND CHAIN")) {
		c.sent.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *losesAnswer) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.sent.Load() {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Conn.Close())
	}
	return n, err
}

// publishOne publishes a message with InTx and shows the transaction.
func publishOne(t *testing.T, ctx context.Context, db *sql.DB, shown **sql.Tx) ([]string, error) {
	t.Helper()
	o, err := outbox.New(newStore(t, db, mysqlstore.Config{}), outbox.Config{Source: "/shop"})
	must(t, err)
	return o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		*shown = tx
		_, err := o.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Key: "1"})
		return err
	})
}

// wantMessages counts the messages, or those with these IDs.
func wantMessages(t *testing.T, db *sql.DB, want int, ids ...string) {
	t.Helper()
	var n int
	must(t, db.QueryRow(`SELECT COUNT(*) FROM postrider_log WHERE id = ? OR ?`, strings.Join(ids, ""), len(ids) == 0).Scan(&n))
	if n != want {
		t.Errorf("%d messages, want %d", n, want)
	}
}
