package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// countedTx counts the round trips of a transaction, and the statements in them.
type countedTx struct {
	pgx.Tx
	trips, statements int
}

func (t *countedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	t.trips, t.statements = t.trips+1, t.statements+b.Len()
	return t.Tx.SendBatch(ctx, b)
}

func (t *countedTx) Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error) {
	t.trips, t.statements = t.trips+1, t.statements+1
	return t.Tx.Exec(ctx, text, args...)
}

func (t *countedTx) Query(ctx context.Context, text string, args ...any) (pgx.Rows, error) {
	t.trips, t.statements = t.trips+1, t.statements+1
	return t.Tx.Query(ctx, text, args...)
}

func (t *countedTx) QueryRow(ctx context.Context, text string, args ...any) pgx.Row {
	t.trips, t.statements = t.trips+1, t.statements+1
	return t.Tx.QueryRow(ctx, text, args...)
}

// TestParkIsOneRoundTrip: whatever the messages of a transaction become, they are written in one round trip, with a statement to hold their
// keys, one for each of the tables, and one that checks the number of partitions.
func TestParkIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := setup(t, postgres.Config{})
	must(t, s.Enroll(t.Context(), "view"))
	parked := func(i int) store.ParkRequest { return store.ParkRequest{Message: keyed(i), Reason: store.ParkRetry} }
	dead := func(hold bool) func(i int) store.ParkRequest {
		return func(i int) store.ParkRequest {
			return store.ParkRequest{Message: keyed(i), Dead: &store.DeadRequest{Reason: "refused", Hold: hold}}
		}
	}
	for name, c := range map[string]struct {
		of         []func(i int) store.ParkRequest
		statements int
	}{
		"parked":          {[]func(i int) store.ParkRequest{parked}, 3},
		"dead":            {[]func(i int) store.ParkRequest{dead(false)}, 2},
		"dead and held":   {[]func(i int) store.ParkRequest{dead(true)}, 3},
		"one after other": {[]func(i int) store.ParkRequest{parked, dead(false)}, 4},
	} {
		var failed []store.ParkRequest
		for i := range 40 {
			failed = append(failed, c.of[i%len(c.of)](i))
		}
		tx, err := s.Begin(t.Context())
		must(t, err)
		must(t, s.Park(t.Context(), tx, "view", failed[:1])) // the number of partitions is known from now on
		must(t, tx.Rollback(t.Context()))
		tx, err = s.Begin(t.Context())
		must(t, err)
		counted := &countedTx{Tx: tx}
		must(t, s.Park(t.Context(), counted, "view", failed))
		if counted.trips != 1 || counted.statements != c.statements {
			t.Errorf("%s: %d round trips with %d statements, want 1 with %d", name, counted.trips, counted.statements, c.statements)
		}
		must(t, tx.Rollback(t.Context()))
	}
}

// keyed returns a message with a key of its own.
func keyed(i int) *postrider.Message {
	m := &postrider.Message{ID: fmt.Sprint("m-", i), Type: "t", Topic: "t", Key: fmt.Sprint("k-", i), Payload: []byte("{}")}
	return m
}
