package inboxes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
)

// work applies the effects of the new messages of a batch in a transaction.
type work func(ctx context.Context, b *bench, tx pgx.Tx, batch []*postrider.Delivery) error

// byHand processes the messages of an in-memory broker in a hand-written loop, in several goroutines, with size messages
// per transaction.
func byHand(goroutines, size int, do work) func(context.Context, *bench, int) (time.Duration, error) {
	return func(ctx context.Context, b *bench, n int) (time.Duration, error) {
		subscriber, err := source(ctx, n)
		if err != nil {
			return 0, err
		}
		subscription, err := subscriber.Subscribe(ctx)
		if err != nil {
			return 0, err
		}
		start := time.Now()
		batches := make(chan []*postrider.Delivery, 2*goroutines)
		errs := make([]error, goroutines)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for batch := range batches {
					if errs[g] == nil {
						errs[g] = b.consumed(ctx, do, batch)
					}
				}
			})
		}
		for left := n; left > 0 && err == nil; {
			var received []*postrider.Delivery
			received, err = subscription.Receive(ctx, 500)
			left -= len(received)
			for batch := range slices.Chunk(received, size) {
				batches <- batch
			}
		}
		close(batches)
		wg.Wait()
		return time.Since(start), errors.Join(append(errs, err, subscription.Close(ctx))...)
	}
}

// consumed processes messages in one transaction, and acknowledges them.
func (b *bench) consumed(ctx context.Context, do work, batch []*postrider.Delivery) error {
	if err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return do(ctx, b, tx, batch) }); err != nil {
		return err
	}
	for _, d := range batch {
		if err := d.Ack(ctx); err != nil {
			return err
		}
	}
	return nil
}

// one records a message and, if it is new, applies its effect.
func one(ctx context.Context, b *bench, tx pgx.Tx, batch []*postrider.Delivery) error {
	id := batch[0].Message.ID
	tag, err := tx.Exec(ctx, "insert into "+b.prefix+"seen (consumer, id) values ('view', $1) on conflict do nothing", id)
	if err == nil && tag.RowsAffected() > 0 {
		_, err = tx.Exec(ctx, b.effect, id)
	}
	return err
}

// many records a batch of messages and applies the effects of the new ones, optionally each within a savepoint.
func many(savepoints bool) work {
	return func(ctx context.Context, b *bench, tx pgx.Tx, batch []*postrider.Delivery) error {
		ids := make([]string, len(batch))
		for i, d := range batch {
			ids[i] = d.Message.ID
		}
		rows, err := tx.Query(ctx, "insert into "+b.prefix+"seen (consumer, id) select 'view', unnest($1::text[]) on conflict do nothing returning id", ids)
		if err != nil {
			return err
		}
		fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, id := range fresh {
			apply := func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, b.effect, id)
				return err
			}
			if savepoints {
				err = pgx.BeginFunc(ctx, tx, apply)
			} else {
				err = apply(tx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// byHandFromLog processes the messages of a plain outbox table: it reads the messages after a position, applies the
// effects and moves the position, in one transaction. (It would lose messages that commit late under a lower number.)
func byHandFromLog(size int) func(context.Context, *bench, int) (time.Duration, error) {
	return func(ctx context.Context, b *bench, n int) (time.Duration, error) {
		_, err := b.pool.Exec(ctx, "insert into "+b.prefix+"outbox (id, type, topic, key, payload) "+
			"select i::text, 't', 't', (i % 1000)::text, '{}' from generate_series(1, $1::int4) as i", n)
		start := time.Now()
		for done := 0; done < n && err == nil; {
			err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
				read, err := b.readLog(ctx, tx, size)
				done += read
				return err
			})
		}
		return time.Since(start), err
	}
}

func (b *bench) readLog(ctx context.Context, tx pgx.Tx, size int) (int, error) {
	var position int64
	if err := tx.QueryRow(ctx, "select position from "+b.prefix+"mark where consumer = 'view' for update").Scan(&position); err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, "select seq, id, type, topic, key, payload from "+b.prefix+"outbox where seq > $1 order by seq limit $2", position, size)
	if err != nil {
		return 0, err
	}
	msgs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*postrider.Message, error) {
		var m postrider.Message
		return &m, row.Scan(&m.Sequence, &m.ID, &m.Type, &m.Topic, &m.Key, &m.Payload)
	})
	for _, m := range msgs {
		position = m.Sequence
		if _, err := tx.Exec(ctx, b.effect, m.ID); err != nil {
			return 0, err
		}
	}
	if err == nil {
		_, err = tx.Exec(ctx, "update "+b.prefix+"mark set position = $1 where consumer = 'view'", position)
	}
	return len(msgs), err
}
