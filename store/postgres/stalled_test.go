package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// stalledStep is a step of a transaction of an inbox that waits for rows that another process has locked.
type stalledStep struct {
	lock string // by the process that dies; %s is the table
	in   string
	step func(ctx context.Context, b *bundle, tx pgx.Tx) error
}

// beforehand returns the message that is parked before such a step.
func beforehand() *postrider.Message {
	return &postrider.Message{ID: "parked", Topic: "t", Type: "t", Key: "k", Sequence: 1}
}

func stalledSteps() map[string]stalledStep {
	claims := []store.ClaimRequest{{ID: "new", Key: "k"}}
	again := &postrider.Message{ID: "again", Topic: "t", Type: "t", Key: "k"}
	return map[string]stalledStep{
		"begin and claim": {"insert into %s (consumer, id) values ('c', 'new')", "claims", func(ctx context.Context, b *bundle, _ pgx.Tx) error {
			tx, _, err := b.BeginClaim(ctx, "c", claims)
			if err == nil {
				err = b.Rollback(ctx, tx)
			}
			return err
		}},
		"claim": {"insert into %s (consumer, id) values ('c', 'new')", "claims", func(ctx context.Context, b *bundle, tx pgx.Tx) error {
			_, err := b.Claim(ctx, tx, "c", claims)
			return err
		}},
		"take": {"select from %s for update", "parked", func(ctx context.Context, b *bundle, tx pgx.Tx) error {
			_, err := b.Take(ctx, tx, "c", beforehand())
			return err
		}},
		"park": {"select from %s for update", "held", func(ctx context.Context, b *bundle, tx pgx.Tx) error {
			return b.Park(ctx, tx, "c", []store.ParkRequest{{Message: again, Reason: store.ParkFailed}})
		}},
		"move the position": {"select from %s where kind = 'position' for update", "records", func(ctx context.Context, b *bundle, tx pgx.Tx) error {
			return b.MovePosition(ctx, tx, "c", store.LogPosition{Partition: "t/0", Number: 2})
		}},
	}
}

// cutBeforeSync runs a statement in a transaction whose process dies before the server has the end of its pipeline.
func cutBeforeSync(t *testing.T, sql string) {
	t.Helper()
	pipeline := connect(t, dsn(t)).PgConn().StartPipeline(t.Context())
	pipeline.SendQueryParams("begin", nil, nil, nil, nil)
	pipeline.SendQueryParams(sql, nil, nil, nil, nil)
	pipeline.SendFlushRequest()
	must(t, pipeline.Flush())
	for range 2 {
		_, err := pipeline.GetResults()
		must(t, err)
	}
}

// TestInboxConnectionCutBeforeSync: a process of a consumer dies, and the server has all of a step of its transaction except the end.
// The step of another process that waits for the same rows ends with its context, and its repetition succeeds.
func TestInboxConnectionCutBeforeSync(t *testing.T) {
	t.Parallel()
	notInShort(t)
	for name, c := range stalledSteps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out logged
			b, ctx := setup(t, postgres.Config{Partitions: 1, Logger: slog.New(slog.NewTextHandler(&out, nil))}), t.Context()
			must(t, b.Enroll(ctx, "c"))
			tx, err := b.Begin(ctx)
			must(t, err)
			must(t, b.Park(ctx, tx, "c", []store.ParkRequest{{Message: beforehand(), Reason: store.ParkFailed}}))
			must(t, b.MovePosition(ctx, tx, "c", store.LogPosition{Partition: "t/0", Number: 1}))
			must(t, b.Commit(ctx, tx))

			cutBeforeSync(t, fmt.Sprintf(c.lock, b.table(c.in)))
			step := func() error {
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				tx, err := b.Begin(ctx)
				must(t, err)
				defer func() { _ = b.Rollback(context.WithoutCancel(ctx), tx) }()
				return c.step(ctx, b, tx)
			}
			if step() == nil {
				t.Fatal("the step did not wait for the process that is gone")
			}
			for began := time.Now(); step() != nil; {
				if time.Since(began) > patience {
					t.Fatalf("the step still waits after %s", time.Since(began))
				}
			}
			if !out.has("its backend is ended") {
				t.Error("the log does not say that a backend was ended")
			}
		})
	}
}
