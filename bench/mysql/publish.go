package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

const writers = 8

// handSQL has the columns of the log, and a parameter for each value.
const handSQL = `INSERT INTO hand (partition_id, id, topic, message_key, type, source, message_time, content_type, headers, payload, created_at)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{}', ?, ?)`

// publishOurs writes a message in a transaction.
func (b *bench) publishOurs(ctx context.Context, tx *sql.Tx, m *postrider.Message) error {
	return b.store.Insert(ctx, tx, []*postrider.Message{m})
}

func (b *bench) publishByHand(ctx context.Context, tx *sql.Tx, m *postrider.Message) error {
	_, err := tx.ExecContext(ctx, handSQL, postrider.PartitionOf(m.Key, m.ID, 8), m.ID, m.Topic, m.Key, m.Type, m.Source, m.Time.UnixMicro(),
		m.ContentType, m.Payload, time.Now().UnixMicro())
	return err
}

type publishFunc func(ctx context.Context, tx *sql.Tx, m *postrider.Message) error

// publish is how many transactions with a message a second are committed.
func (b *bench) publish(ctx context.Context, how publishFunc, length time.Duration) (float64, error) {
	took, err := b.load(ctx, writers, how, length)
	return float64(len(took)) / length.Seconds(), err
}

// load publishes with many writers at once and returns how long each publishing took within its transaction.
func (b *bench) load(ctx context.Context, writers int, how publishFunc, length time.Duration) ([]time.Duration, error) {
	var mu sync.Mutex
	var took []time.Duration
	var errs []error
	var working sync.WaitGroup
	end := time.Now().Add(length)
	for w := range writers {
		working.Go(func() {
			var mine []time.Duration
			var err error
			for i := 0; err == nil && time.Now().Before(end); i++ {
				var d time.Duration
				d, err = b.order(ctx, how, w*1_000_000+i)
				mine = append(mine, d)
			}
			mu.Lock()
			defer mu.Unlock()
			took, errs = append(took, mine...), append(errs, err)
		})
	}
	working.Wait()
	return took, errors.Join(errs...)
}

func (b *bench) order(ctx context.Context, how publishFunc, n int) (took time.Duration, err error) {
	m := message(n)
	tx, err := b.store.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.store.Rollback(ctx, tx)) }() // after Commit it does nothing
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO orders (n) VALUES (%d)", n)); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := how(ctx, tx, m); err != nil {
		return 0, err
	}
	took = time.Since(began)
	return took, tx.Commit()
}

// disturbance compares how long publishing takes at full speed with and without a relay at work, and counts deadlocks.
func (b *bench) disturbance(ctx context.Context, rounds int, length time.Duration) error {
	const writers = 16
	before, err := b.deadlocks(ctx)
	if err != nil {
		return err
	}
	var with, without []time.Duration
	for range rounds {
		took, err := b.load(ctx, writers, b.publishOurs, length)
		if err != nil {
			return err
		}
		without = append(without, took...)
		r, err := b.relay(ctx, relay.FromNow, func([]*postrider.Message) {})
		if err != nil {
			return err
		}
		if took, err = b.load(ctx, writers, b.publishOurs, length); err != nil {
			return errors.Join(err, r.stop())
		}
		with = append(with, took...)
		if err := errors.Join(r.stop(), b.forget(ctx)); err != nil {
			return err
		}
	}
	after, err := b.deadlocks(ctx)
	if err != nil {
		return err
	}
	for _, p := range []float64{0.5, 0.99} {
		a, without := percentile(with, p), percentile(without, p)
		fmt.Fprintf(b.out, "publishing by %d writers at full speed, p%.0f: %s with a relay at work, %s without: %.2f\n", writers, 100*p,
			a.Round(time.Microsecond), without.Round(time.Microsecond), float64(a)/float64(without))
	}
	fmt.Fprintf(b.out, "%d of %d transactions were committed while the relay worked; deadlocks: %d\n", len(with), len(with)+len(without), after-before)
	return nil
}

func percentile(all []time.Duration, p float64) time.Duration {
	slices.Sort(all)
	return all[int(p*float64(len(all)-1))]
}

// deadlocks is how many the server has seen; MariaDB counts them among its status variables, MySQL among its metrics.
func (b *bench) deadlocks(ctx context.Context) (n int, err error) {
	var name string
	err = b.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").Scan(&name, &n)
	if errors.Is(err, sql.ErrNoRows) {
		err = b.db.QueryRowContext(ctx, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'").Scan(&n)
	}
	return n, err
}
