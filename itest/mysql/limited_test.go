package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestSmallPool: a relay whose handlers take 150 ms has a pool of 4 connections, and its Concurrency is 16. Two
// transactions run at once, and the leases are kept.
func TestSmallPool(t *testing.T) {
	t.Parallel()
	const messages, took = 60, 150 * time.Millisecond
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	w.db.SetMaxOpenConns(4)
	s := newStore(t, w.db, mysqlstore.Config{})
	if n := s.Connections(); n != 2 {
		t.Errorf("%d connections for transactions, want 2", n)
	}
	tx := w.begin()
	for i := range messages {
		w.insert(tx, fmt.Sprint("k", i))
	}
	must(t, s.Commit(t.Context(), tx))
	r, err := relay.New(s, relay.Config{Name: "small", LeaseTTL: 3 * time.Second})
	must(t, err)
	var calls, most, now atomic.Int64
	must(t, relay.HandleTxFunc(r, "t", func(ctx context.Context, _ *sql.Tx, _ *postrider.Message) error {
		calls.Add(1)
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		select {
		case <-time.After(took):
		case <-ctx.Done():
		}
		return ctx.Err()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	must(t, r.Drain(ctx))
	cancel()
	must(t, <-done)
	if most.Load() > 2 || calls.Load() > messages+20 {
		t.Errorf("%d calls, %d at once", calls.Load(), most.Load())
	}
	for range 3 { // each transaction has released its place
		tx, err := s.BeginLimited(t.Context(), time.Second)
		must(t, err)
		var limit int
		must(t, tx.QueryRow("SELECT @@SESSION.idle_transaction_timeout").Scan(&limit))
		if limit != 1 {
			t.Errorf("the limit is %d s, want 1", limit)
		}
		must(t, s.Rollback(t.Context(), tx))
	}
}
