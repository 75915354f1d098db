package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// roundTrips counts how often a client waits for an answer.
type roundTrips struct{ n atomic.Int64 }

// open connects through a counted connection, the only one.
func (r *roundTrips) open(t *testing.T, d database) *sql.DB {
	t.Helper()
	c := d.config.Clone()
	c.InterpolateParams = true // a statement with parameters is one round trip
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, addr)
		return &countedConn{Conn: conn, trips: r}, err
	}
	db := open(t, c)
	db.SetMaxOpenConns(1)
	return db
}

// of returns how many round trips f takes.
func (r *roundTrips) of(f func()) int64 {
	before := r.n.Load()
	f()
	return r.n.Load() - before
}

type countedConn struct {
	net.Conn
	trips *roundTrips
	asked atomic.Bool
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.asked.Store(true)
	return c.Conn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	if c.asked.Swap(false) {
		c.trips.n.Add(1)
	}
	return c.Conn.Read(b)
}

// TestInTxRoundTrips counts what a transaction takes beyond the user's own statements: begin, the settings, a message, the commit, and
// the end of the driver's transaction.
func TestInTxRoundTrips(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	exec(t, d.migrated(t, nil, mysqlstore.Config{}), `CREATE TABLE orders (id BIGINT NOT NULL)`)
	var trips roundTrips
	db := trips.open(t, d)
	s := newStore(t, db, mysqlstore.Config{})
	o, err := outbox.New(s, outbox.Config{Source: "/shop"})
	must(t, err)
	order := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?)`, 1)
		return err
	}
	publish := func(ctx context.Context, tx *sql.Tx) error {
		_, err := o.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Key: "1"})
		return err
	}
	type step = func(ctx context.Context, tx *sql.Tx) error
	around := int64(4)
	if !mariaDB(t, db) {
		around = 8 // MySQL takes each statement by itself
	}
	for _, c := range []struct {
		name  string
		steps []step
		own   int64
	}{
		{"nothing", nil, 0},
		{"an order", []step{order}, 1},
		{"an order and its message", []step{order, publish}, 2},
	} {
		if got := trips.of(func() { inTx(t, o, c.steps...) }); got != around+c.own {
			t.Errorf("%s: %d round trips, want %d", c.name, got, around+c.own)
		}
	}
	if around == 4 {
		checkSettings(t, d, db, o)
	}
}

// checkSettings: fewer round trips are worth nothing without what they set, or if it stays on db's only connection.
func checkSettings(t *testing.T, d database, db *sql.DB, o *outbox.Outbox[*sql.Tx]) {
	t.Helper()
	other := d.open(t, nil)
	want := func(ctx context.Context, tx *sql.Tx, sees, limit int) error {
		var before, after, seconds int
		must(t, tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM orders`).Scan(&before))
		exec(t, other, `INSERT INTO orders VALUES (2)`)
		must(t, tx.QueryRowContext(ctx, `SELECT COUNT(*), @@SESSION.idle_transaction_timeout FROM orders`).Scan(&after, &seconds))
		if after != before+sees || seconds != limit {
			t.Errorf("a statement sees %d rows that were committed since the one before, and the limit is %d s; want %d and %d s",
				after-before, seconds, sees, limit)
		}
		return nil
	}
	inTx(t, o, func(ctx context.Context, tx *sql.Tx) error {
		return want(ctx, tx, 1, int(mysqlstore.DefaultIdleTimeout.Seconds()))
	})
	tx, err := db.BeginTx(t.Context(), nil) // the user's own, on the same connection
	must(t, err)
	must(t, want(t.Context(), tx, 0, 0))
	must(t, tx.Rollback())
	// A context that ends leaves the limit until the store's next transaction, and no isolation level.
	ctx, cancel := context.WithCancel(t.Context())
	_, err = o.InTx(ctx, func(context.Context, *sql.Tx) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	tx, err = db.BeginTx(t.Context(), nil)
	must(t, err)
	limit := 0
	must(t, tx.QueryRow(`SELECT @@SESSION.idle_transaction_timeout`).Scan(&limit))
	must(t, want(t.Context(), tx, 0, limit))
	must(t, tx.Rollback())
	inTx(t, o)
	tx, err = db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, want(t.Context(), tx, 0, 0))
	must(t, tx.Rollback())
}

func inTx(t *testing.T, o *outbox.Outbox[*sql.Tx], steps ...func(ctx context.Context, tx *sql.Tx) error) {
	t.Helper()
	_, err := o.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for _, s := range steps {
			if err := s(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, err)
}

func mariaDB(t *testing.T, db *sql.DB) bool {
	t.Helper()
	var version string
	must(t, db.QueryRow(`SELECT VERSION()`).Scan(&version))
	return strings.Contains(version, "MariaDB")
}
