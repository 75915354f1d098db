//go:build !race

package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store/postgres"
)

// benchSagas runs transitions of 2,000 instances in transactions of several sizes.
func benchSagas(b *testing.B, transition func(ctx context.Context, s *bundle, runs []string) error) {
	b.Helper()
	for _, size := range []int{1, 100} {
		b.Run("batch="+strconv.Itoa(size), func(b *testing.B) {
			s := setup(b, postgres.Config{})
			runs := s.createSagas(b, sagaStarts(2000))
			b.ResetTimer()
			for done := 0; done < b.N; done += size {
				from := done % len(runs)
				if err := transition(b.Context(), s, runs[from:from+size]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transitions/s")
		})
	}
}

// BenchmarkSagaTransition: load and save.
func BenchmarkSagaTransition(b *testing.B) {
	benchSagas(b, func(ctx context.Context, s *bundle, runs []string) error { return s.transition(ctx, runs, nil) })
}

// BenchmarkSagaTransitionByHand is the baseline: the same rows, without what makes a state machine a saga. One statement locks, one
// updates, one inserts.
func BenchmarkSagaTransitionByHand(b *testing.B) {
	benchSagas(b, func(ctx context.Context, s *bundle, runs []string) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "select state, data from "+s.table("sagas")+" where run = any($1) order by run for update", runs)
			if err != nil {
				return err
			}
			var states, data [][]byte
			var state, datum []byte
			if _, err := pgx.ForEachRow(rows, []any{&state, &datum}, func() error {
				states, data = append(states, state), append(data, datum)
				return nil
			}); err != nil {
				return err
			}
			batch := &pgx.Batch{}
			batch.Queue(fmt.Sprintf(`update %s s set rev = rev + 1, updated_at = clock_timestamp(), waiting = 'charge', state = c.state, data = c.data
				from unnest($1::text[], $2::bytea[], $3::bytea[]) as c (run, state, data) where s.run = c.run`, s.table("sagas")), runs, states, data)
			batch.Queue(fmt.Sprintf(`insert into %s (run, rev, at, input, step, message_id, actor, note, entries, patch)
				select s.run, s.rev, clock_timestamp(), 'reply', 'reserve', 'm', '', '', '[{"name":"step.done","step":"reserve"},{"name":"step.started","step":"charge"}]',
				'[{"p":"/reservation","n":"r-1"}]' from %s s where s.run = any($1)`, s.table("saga_history"), s.table("sagas")), runs)
			return tx.SendBatch(ctx, batch).Close()
		})
	})
}
