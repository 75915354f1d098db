//go:build !race

package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// backlog is how many messages the benchmarks read.
const backlog = 100_000

// fill writes n messages of about 700 bytes, as one transaction.
func (b *bundle) fill(t testing.TB, n int) {
	t.Helper()
	b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, key, type, source, payload)
		select i %% 8, gen_random_uuid()::text, 'orders', 'order/' || (i %% 1000), 'order.placed', 'https://shop.example', $1::bytea
		from generate_series(1, $2::int4) as i`, b.table("log")), bytes.Repeat([]byte("a"), 478), n)
	b.exec(t, "vacuum analyze "+b.table("log"))
}

// drain fetches everything, 1,000 messages per partition and 8 MiB at a time, and returns how many messages there were.
func (b *bundle) drain(t testing.TB) int {
	t.Helper()
	req := store.FetchRequest{Limit: 1000, MaxBytes: 8 << 20}
	for _, l := range b.leaseAll(t, "bench") {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
	}
	n := 0
	for more := true; more; {
		batches, err := b.Fetch(context.Background(), "bench", req)
		if err != nil {
			t.Fatal(err)
		}
		more = false
		for _, batch := range batches {
			req.Partitions[batch.Partition].After = batch.Next
			n += len(batch.Entries)
			more = more || batch.More
		}
	}
	return n
}

func BenchmarkFetch(b *testing.B) {
	s := setup(b, postgres.Config{})
	s.fill(b, backlog)
	b.ReportAllocs()
	for b.Loop() {
		if n := s.drain(b); n != backlog {
			b.Fatalf("fetched %d", n)
		}
	}
	b.ReportMetric(float64(b.N)*backlog/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkBareLoop is the baseline for Fetch: the same columns of the same rows in order, by position alone, into variables.
func BenchmarkBareLoop(b *testing.B) {
	s := setup(b, postgres.Config{})
	s.fill(b, backlog)
	sql := "select seq, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version," +
		" content_type, headers, correlation_id, causation_id, payload, available_at, created_at from " + s.table("log") +
		" where partition = $1 and seq > $2 order by seq limit 1000"
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for p := range 8 {
			var m postrider.Message
			var headers string
			var available *time.Time
			for last := -1; n != last; {
				last = n
				rows, err := s.pool.Query(context.Background(), sql, p, m.Sequence)
				if err != nil {
					b.Fatal(err)
				}
				_, err = pgx.ForEachRow(rows, []any{&m.Sequence, &m.ID, &m.Topic, &m.Key, &m.Type, &m.Source, &m.Subject, &m.Tenant,
					&m.Time, &m.SchemaVersion, &m.AggregateVersion, &m.ContentType, &headers, &m.CorrelationID, &m.CausationID,
					&m.Payload, &available, &m.CreatedAt}, func() error { n++; return nil })
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		if n != backlog {
			b.Fatalf("read %d", n)
		}
	}
	b.ReportMetric(float64(b.N)*backlog/b.Elapsed().Seconds(), "msg/s")
}

func newMessages(n int) []*postrider.Message {
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		msgs[i] = &postrider.Message{
			ID: fmt.Sprintf("01a1f9da-8035-7fb8-9b18-%012d", i), Topic: "orders", Key: fmt.Sprintf("order/%d", i%1000), Type: "order.placed",
			Source: "https://shop.example", Time: time.Now(), ContentType: "application/json", Payload: bytes.Repeat([]byte("a"), 478),
		}
	}
	return msgs
}

func BenchmarkInsert(b *testing.B) {
	s := setup(b, postgres.Config{})
	insert := map[string]func(ctx context.Context, tx pgx.Tx, msgs []*postrider.Message) error{
		"Store": s.Insert,
		// Hand-written code: one statement per message, in one round trip.
		"Hand": func(ctx context.Context, tx pgx.Tx, msgs []*postrider.Message) error {
			batch := &pgx.Batch{}
			for _, m := range msgs {
				batch.Queue("insert into "+s.table("log")+` (partition, id, topic, key, type, source, message_time, payload)
					values ($1, $2, $3, $4, $5, $6, $7, $8)`, postrider.PartitionOf(m.Key, m.ID, 8), m.ID, m.Topic, m.Key, m.Type,
					m.Source, m.Time, m.Payload)
			}
			return tx.SendBatch(ctx, batch).Close()
		},
	}
	for _, n := range []int{1, 10, 100, 1000} {
		for _, name := range []string{"Store", "Hand"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				msgs := newMessages(n)
				ctx := context.Background()
				tx, err := s.Begin(ctx)
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if err := insert[name](ctx, tx, msgs); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "msg/s")
				if err := s.Rollback(ctx, tx); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkFetchNothing measures a poll.
func BenchmarkFetchNothing(b *testing.B) {
	s := setup(b, postgres.Config{})
	s.fill(b, 1000)
	req := store.FetchRequest{Limit: 1000, MaxBytes: 8 << 20}
	for _, l := range s.leaseAll(b, "bench") {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
	}
	for b.Loop() {
		batches, err := s.Fetch(context.Background(), "bench", req)
		if err != nil {
			b.Fatal(err)
		}
		for _, batch := range batches {
			req.Partitions[batch.Partition].After = batch.Next
		}
	}
}

// BenchmarkFetchAfterFlush reads 100 messages at a time, just after an asynchronous commit, with and without the option. It measures
// the server's disk: run it on a server with fsync.
func BenchmarkFetchAfterFlush(b *testing.B) {
	for _, after := range []bool{false, true} {
		b.Run(fmt.Sprint(after), func(b *testing.B) {
			s := setup(b, postgres.Config{DeliverAfterFlush: after})
			publisher, req := s.asynchronous(b), request(s.leaseAll(b, "bench"), 1000)
			insert := fmt.Sprintf(`insert into %s (partition, id, topic, type, payload)
				select i %% 8, i::text, 't', 'x', $1::bytea from generate_series(1, 100) as i`, s.table("log"))
			payload := bytes.Repeat([]byte("a"), 478)
			for b.Loop() {
				b.StopTimer()
				publisher.exec(b, insert, payload)
				b.StartTimer()
				batches, err := s.Fetch(context.Background(), "bench", req)
				if err != nil || len(batches) != 8 {
					b.Fatal(len(batches), err)
				}
				for _, batch := range batches {
					req.Partitions[batch.Partition].After = batch.Next
				}
			}
		})
	}
}

// settler leases all partitions and returns a function that moves their cursors.
func (b *bundle) settler(t testing.TB) func() {
	ctx := context.Background()
	leases := b.leaseAll(t, "bench")
	position := int64(0)
	return func() {
		position++
		var settlements []store.Settlement
		for _, l := range leases {
			settlements = append(settlements, store.Settlement{Partition: l.Partition, Token: l.Token, Number: l.Settled + position, Moved: true,
				Cursor: store.Cursor{Position: position, Snapshot: "700:700:|800"}, DeliveredCount: 1})
		}
		if settled, err := b.Settle(ctx, "bench", settlements); err != nil || len(settled.Lost) > 0 {
			t.Fatal(settled, err)
		}
	}
}

// BenchmarkSettle moves the cursors of all partitions.
func BenchmarkSettle(b *testing.B) {
	settle := setup(b, postgres.Config{}).settler(b)
	for b.Loop() {
		settle()
	}
}

// BenchmarkSettleWhilePinned is BenchmarkSettle after 5,000 settlements that an open transaction keeps from being vacuumed.
func BenchmarkSettleWhilePinned(b *testing.B) {
	s := setup(b, postgres.Config{})
	ctx := context.Background()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "select count(*) from "+s.table("cursors")); err != nil {
		b.Fatal(err)
	}
	settle := s.settler(b)
	for range 5_000 {
		settle()
	}
	for b.Loop() {
		settle()
	}
}
