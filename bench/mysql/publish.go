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
const handSQL = `INSERT INTO %s (partition_id, id, topic, message_key, type, source, message_time, content_type, headers, payload, created_at)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{}', ?, ?)`

// road is a way to publish: through the library, or by hand into a table.
type road struct{ table string }

var ours = road{}

func (how road) begin(ctx context.Context, b *bench) (*sql.Tx, error) {
	if how == ours {
		return b.store.Begin(ctx)
	}
	return b.db.BeginTx(ctx, nil)
}

func (how road) insert(ctx context.Context, b *bench, tx *sql.Tx, m *postrider.Message) error {
	if how == ours {
		return b.store.Insert(ctx, tx, []*postrider.Message{m})
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf(handSQL, how.table), postrider.PartitionOf(m.Key, m.ID, 8), m.ID, m.Topic, m.Key, m.Type,
		m.Source, m.Time.UnixMicro(), m.ContentType, m.Payload, time.Now().UnixMicro())
	return err
}

func (how road) commit(ctx context.Context, b *bench, tx *sql.Tx) error {
	if how == ours {
		return b.store.Commit(ctx, tx)
	}
	return tx.Commit()
}

// publish is the rate of committed transactions with one message each, per second.
func (b *bench) publish(ctx context.Context, how road, length time.Duration) (float64, error) {
	took, err := b.load(ctx, writers, how, length)
	return float64(len(took)) / length.Seconds(), err
}

// load publishes with many concurrent writers and returns how long each publish took within its transaction.
func (b *bench) load(ctx context.Context, writers int, how road, length time.Duration) ([]time.Duration, error) {
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

// order writes a business row and a message in a transaction, as an application does, with the library or by hand.
func (b *bench) order(ctx context.Context, how road, n int) (took time.Duration, err error) {
	m := message(n)
	tx, err := how.begin(ctx, b)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.store.Rollback(ctx, tx)) }() // has no effect after Commit
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO orders (n) VALUES (%d)", n)); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := how.insert(ctx, b, tx, m); err != nil {
		return 0, err
	}
	took = time.Since(began)
	return took, how.commit(ctx, b, tx)
}

// disturbance compares how long publishing takes at full speed with and without a running relay, in short turns, and
// counts deadlocks. The ratios are medians over the rounds.
func (b *bench) disturbance(ctx context.Context, rounds int, length time.Duration) error {
	const writers = 16
	places := []float64{0.5, 0.99, 0.999}
	before, err := b.deadlocks(ctx)
	if err != nil {
		return err
	}
	var all [2][]time.Duration // without and with
	ratios := make([][]float64, len(places))
	for round := range rounds {
		var took [2][]time.Duration
		for turn := range 2 {
			with := (round + turn) % 2 // alternate which one comes first
			if took[with], err = b.alongside(ctx, with == 1, writers, length); err != nil {
				return err
			}
			all[with] = append(all[with], took[with]...)
		}
		for i, p := range places {
			ratios[i] = append(ratios[i], float64(percentile(took[1], p))/float64(percentile(took[0], p)))
		}
	}
	after, err := b.deadlocks(ctx)
	if err != nil {
		return err
	}
	for i, p := range places {
		slices.Sort(ratios[i])
		fmt.Fprintf(b.out, "publishing by %d writers at full speed, p%g: %s with a relay at work, %s without; ratio %.2f (%.2f to %.2f)\n", writers,
			100*p, percentile(all[1], p).Round(time.Microsecond), percentile(all[0], p).Round(time.Microsecond), median(ratios[i]),
			ratios[i][0], ratios[i][rounds-1])
	}
	fmt.Fprintf(b.out, "%d transactions were committed with the relay at work, %d without; deadlocks: %d\n", len(all[1]), len(all[0]), after-before)
	return nil
}

// alongside publishes with or without a running relay.
func (b *bench) alongside(ctx context.Context, with bool, writers int, length time.Duration) ([]time.Duration, error) {
	if !with {
		return b.load(ctx, writers, ours, length)
	}
	r, err := b.relay(ctx, relay.FromNow, func([]*postrider.Message) {})
	if err != nil {
		return nil, err
	}
	took, err := b.load(ctx, writers, ours, length)
	return took, errors.Join(err, r.stop(), b.remove(ctx))
}

func percentile(all []time.Duration, p float64) time.Duration {
	slices.Sort(all)
	return all[int(p*float64(len(all)-1))]
}

// deadlocks is the number of deadlocks on the server; MariaDB has it as a status variable, MySQL as a metric.
func (b *bench) deadlocks(ctx context.Context) (n int, err error) {
	var name string
	err = b.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").Scan(&name, &n)
	if errors.Is(err, sql.ErrNoRows) {
		err = b.db.QueryRowContext(ctx, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'").Scan(&n)
	}
	return n, err
}
