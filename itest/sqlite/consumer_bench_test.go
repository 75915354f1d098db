package sqlite_test

import (
	"context"
	"database/sql"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/sqlite"
)

const effectSQL = `INSERT INTO effects (id) VALUES (?)`

// BenchmarkConsume measures messages with a one-row effect: in hand-written code (insert the ID if new, effect, commit),
// and by consumers.
func BenchmarkConsume(b *testing.B) {
	effect := func(ctx context.Context, tx *sql.Tx, m *postrider.Message) error {
		_, err := tx.ExecContext(ctx, effectSQL, m.ID)
		return err
	}
	b.Run("by hand", func(b *testing.B) {
		db, _ := benchDatabase(b)
		for i := range b.N {
			m := &postrider.Message{ID: strconv.Itoa(i)}
			tx, err := db.BeginTx(b.Context(), nil)
			check(b, err)
			res, err := tx.ExecContext(b.Context(), `INSERT INTO seen (consumer, id) VALUES ('view', ?) ON CONFLICT DO NOTHING`, m.ID)
			check(b, err)
			if n, _ := res.RowsAffected(); n > 0 {
				check(b, effect(b.Context(), tx, m))
			}
			check(b, tx.Commit())
		}
	})
	for name, cfg := range map[string]inbox.ConsumerConfig{
		"by ID":                {Concurrency: 1},
		"by ID, batches of 50": {Concurrency: 1, Batch: 50},
		"by ID, 16 at once":    {},
	} {
		b.Run(name, func(b *testing.B) {
			_, store := benchDatabase(b)
			broker, err := memorybroker.New(memorybroker.Config{})
			check(b, err)
			msgs := make([]*postrider.Message, b.N)
			for i := range msgs {
				msgs[i] = &postrider.Message{ID: strconv.Itoa(i), Type: "t", Topic: "t", Key: strconv.Itoa(i % 100)}
			}
			broker.Publish(b.Context(), msgs)
			subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "view", Topics: []string{"t"}, Partitions: 1})
			check(b, err)
			in, err := inbox.New(store)
			check(b, err)
			cfg.Name, cfg.Logger = "view", slog.New(slog.DiscardHandler)
			c, err := inbox.NewConsumer(in, subscriber, cfg)
			check(b, err)
			var left atomic.Int64
			left.Store(int64(b.N))
			ctx, stop := context.WithCancel(b.Context())
			check(b, c.HandleFunc("t", func(ctx context.Context, tx *sql.Tx, m *postrider.Message) error {
				if left.Add(-1) == 0 {
					defer stop()
				}
				return effect(ctx, tx, m)
			}))
			b.ResetTimer()
			check(b, c.Run(ctx))
		})
	}
}

func benchDatabase(b *testing.B) (*sql.DB, *sqlite.Store) {
	b.Helper()
	db := newFile(b).migrated(b, sqlite.Config{})
	_, err := db.ExecContext(b.Context(), `CREATE TABLE effects (id TEXT NOT NULL);
		CREATE TABLE seen (consumer TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (consumer, id)) WITHOUT ROWID`)
	check(b, err)
	return db, newStore(b, db, sqlite.Config{})
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
