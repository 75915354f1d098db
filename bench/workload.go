package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// What is published: an order, as a business row and as a message with 500 bytes of JSON.

const (
	customer    = "customer/4711"
	messageType = "order.placed"
	source      = "https://shop.example"
	manyKeys    = 10_000
)

// ordersSQL creates the business table.
const ordersSQL = `create table orders (id bigint generated always as identity primary key, customer text not null, total bigint not null)`

const insertOrderSQL = `insert into orders (customer, total) values ($1, $2)`

// payload is 500 bytes of JSON.
var payload = func() []byte {
	const head, tail = `{"order":"0197a1b2-0000-7000-8000-000000000000","customer":"customer/4711","total":12300,"note":"`, `"}`
	return []byte(head + strings.Repeat("a", 500-len(head)-len(tail)) + tail)
}()

// keys is the number of keys, and selects that of a message by its number; 0 means no key.
type keys int

func (k keys) of(i int) string {
	if k == 0 {
		return ""
	}
	return "order/" + strconv.Itoa(i%int(k))
}

// message returns the message with a number.
func (k keys) message(i int) *postrider.Message {
	return &postrider.Message{Type: messageType, Key: k.of(i), Payload: payload}
}

// store creates an outbox in the bundle's database with a separate prefix.
func (b *bundle) store(ctx context.Context, prefix string) (*postgres.Store, error) {
	return b.storeWith(ctx, postgres.Config{Prefix: prefix})
}

func (b *bundle) storeWith(ctx context.Context, c postgres.Config) (*postgres.Store, error) {
	if _, err := postgres.Migrate(ctx, b.pool, c, postgres.Latest); err != nil {
		return nil, err
	}
	s, err := postgres.New(b.pool, c)
	if err != nil {
		return nil, err
	}
	b.after(s.Close)
	return s, s.Open(ctx)
}

func newOutbox[Tx any](store store.Outbox[Tx]) (*outbox.Outbox[Tx], error) {
	return outbox.New(store, outbox.Config{Source: source})
}

// fill publishes n messages, 1,000 per transaction, and vacuums the tables.
func (b *bundle) fill(ctx context.Context, s *postgres.Store, k keys, n int) error {
	o, err := newOutbox(s)
	if err != nil {
		return err
	}
	const chunk = 1000
	for from := 0; from < n; from += chunk {
		msgs := make([]*postrider.Message, 0, chunk)
		for i := from; i < min(from+chunk, n); i++ {
			msgs = append(msgs, k.message(i))
		}
		if err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			_, err := o.Publish(ctx, tx, msgs...)
			return err
		}); err != nil {
			return err
		}
	}
	_, err = b.pool.Exec(ctx, "vacuum analyze")
	return err
}

// parallel runs work for the numbers 0 to n-1 in the given number of goroutines and returns the first error.
func parallel(ctx context.Context, writers, n int, work func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := work(ctx, i); err != nil {
					cancel(fmt.Errorf("message %d: %w", i, err))
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
