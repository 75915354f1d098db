package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// nowhere is a publisher that accepts everything at once.
type nowhere struct{ took func([]*postrider.Message) }

func (p nowhere) Publish(_ context.Context, msgs []*postrider.Message) []error {
	p.took(msgs)
	return nil
}

func (nowhere) Capabilities() postrider.Capabilities {
	return postrider.Capabilities{Ordered: true, MaxBatch: 1_000}
}

// running is a running relay.
type running struct {
	r    *relay.Relay
	done chan error
}

// relay starts a relay with a new name; took is called with what it delivers.
func (b *bench) relay(ctx context.Context, start relay.Start, took func([]*postrider.Message)) (*running, error) {
	b.names++
	r, err := relay.New(b.store, relay.Config{
		Name: fmt.Sprintf("bench-%d", b.names), Start: start, Publisher: nowhere{took}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	run := &running{r: r, done: make(chan error, 1)}
	go func() { run.done <- r.Run(ctx) }()
	return run, nil
}

// remove removes the relay that was started last.
func (b *bench) remove(ctx context.Context) error {
	_, err := held.New(b.store).RemoveRelay(ctx, fmt.Sprintf("bench-%d", b.names), "bench", "", true)
	return err
}

func (r *running) stop() error { return errors.Join(r.r.Stop(context.Background()), <-r.done) }

// fill replaces the content of a table with a backlog.
func (b *bench) fill(ctx context.Context, how road, table string, n int) error {
	if _, err := b.db.ExecContext(ctx, "DELETE FROM "+table); err != nil {
		return err
	}
	tx, err := b.store.Begin(ctx)
	if err != nil {
		return err
	}
	for i := range n {
		if err := how.insert(ctx, b, tx, message(i)); err != nil {
			return errors.Join(err, b.store.Rollback(ctx, tx))
		}
	}
	return b.store.Commit(ctx, tx)
}

// drain is the rate at which a relay drains a backlog, in messages per second, until its cursors have passed it; with
// drop, until retention has removed it too.
func (b *bench) drain(ctx context.Context, n int, drop bool) (float64, error) {
	if err := b.fill(ctx, ours, "postrider_log", n); err != nil {
		return 0, err
	}
	var delivered atomic.Int64
	all := make(chan struct{})
	began := time.Now()
	r, err := b.relay(ctx, relay.FromOldest, func(msgs []*postrider.Message) {
		if delivered.Add(int64(len(msgs))) == int64(n) {
			close(all)
		}
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-all:
	case err := <-r.done:
		return 0, fmt.Errorf("the relay ended: %w", err)
	}
	if err := r.stop(); err != nil {
		return 0, err
	}
	if drop {
		if _, err := b.store.Maintain(ctx, store.Retention{}); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	return float64(n) / took.Seconds(), b.remove(ctx)
}

// drainByHand selects and deletes in batches.
func (b *bench) drainByHand(ctx context.Context, n int) (float64, error) {
	if err := b.fill(ctx, road{"hand"}, "hand", n); err != nil {
		return 0, err
	}
	began, drained := time.Now(), 0
	for drained < n {
		taken, err := b.handBatch(ctx)
		if err != nil {
			return 0, err
		}
		drained += taken
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

func (b *bench) handBatch(ctx context.Context) (n int, err error) {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, "SELECT seq, id, topic, message_key, type, headers, payload FROM hand ORDER BY seq LIMIT 1000")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var first, last int64
	for ; rows.Next(); n++ {
		var m postrider.Message
		var headers string
		if err := rows.Scan(&last, &m.ID, &m.Topic, &m.Key, &m.Type, &headers, &m.Payload); err != nil {
			return 0, err
		}
		if n == 0 {
			first = last
		}
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM hand WHERE seq BETWEEN %d AND %d", first, last)); err != nil {
		return 0, err
	}
	return n, tx.Commit()
}
