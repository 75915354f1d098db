//go:build !race

package postgres_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/postgres"
)

// benchEffects creates the table for the side effects of the benchmarks.
func benchEffects(b *testing.B) (s *bundle, effect func(ctx context.Context, tx pgx.Tx, id string) error) {
	b.Helper()
	s = setup(b, postgres.Config{})
	s.exec(b, "create table "+s.table("effects_of_bench")+" (id text not null)")
	s.exec(b, "create table "+s.table("seen")+" (consumer text not null, id text not null, primary key (consumer, id))")
	sql := "insert into " + s.table("effects_of_bench") + " (id) values ($1)"
	return s, func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, sql, id)
		return err
	}
}

// BenchmarkConsumeByHand is the baseline for consumers: record the IDs unless they exist, run side effects of one row, commit.
// Without savepoints a bad message costs its whole batch.
func BenchmarkConsumeByHand(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run("batch="+strconv.Itoa(size), func(b *testing.B) {
			s, effect := benchEffects(b)
			sql := "insert into " + s.table("seen") + " select 'view', unnest($1::text[]) on conflict do nothing returning id"
			for done := 0; done < b.N; done += size {
				ids := make([]string, min(size, b.N-done))
				for i := range ids {
					ids[i] = strconv.Itoa(done + i)
				}
				if err := pgx.BeginFunc(b.Context(), s.pool, func(tx pgx.Tx) error {
					rows, err := tx.Query(b.Context(), sql, ids)
					if err != nil {
						return err
					}
					fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
					for _, id := range fresh {
						if err := effect(b.Context(), tx, id); err != nil {
							return err
						}
					}
					return err
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

func BenchmarkConsume(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  inbox.ConsumerConfig
	}{
		{"by ID/batch=1", inbox.ConsumerConfig{Concurrency: 1}},
		{"by ID/batch=100", inbox.ConsumerConfig{Concurrency: 1, Batch: 100}},
		{"by ID/batch=1/16 at once", inbox.ConsumerConfig{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, effect := benchEffects(b)
			consume(b, s, c.cfg, effect)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// consume runs a consumer until it has received b.N messages.
func consume(b *testing.B, s *bundle, cfg inbox.ConsumerConfig, effect func(context.Context, pgx.Tx, string) error) {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	broker, err := memorybroker.New(memorybroker.Config{})
	must(err)
	msgs := make([]*postrider.Message, b.N)
	for i := range msgs {
		msgs[i] = &postrider.Message{ID: strconv.Itoa(i), Type: "t", Topic: "t", Key: strconv.Itoa(i % 1000)}
	}
	broker.Publish(b.Context(), msgs)
	subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "view", Topics: []string{"t"}, Partitions: 1})
	must(err)
	in, err := inbox.New(s.Store)
	must(err)
	cfg.Name, cfg.Logger = "view", slog.New(slog.DiscardHandler)
	c, err := inbox.NewConsumer(in, subscriber, cfg)
	must(err)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var left atomic.Int64
	left.Store(int64(b.N))
	must(c.HandleFunc("t", func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
		if left.Add(-1) == 0 {
			defer stop()
		}
		return effect(ctx, tx, m.ID)
	}))
	b.ResetTimer()
	must(c.Run(ctx))
}
