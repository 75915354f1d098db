//go:build !race

package postgres_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestRecordsStayHOT: no index changes when the row that locks a new record is saved and later closed. There are so few records that all
// versions of all rows have room in a page.
func TestRecordsStayHOT(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{Partitions: 4}, 1) // statistics are those of one connection
	var records []store.SagaRecord
	var runs []string
	for i := range 8 {
		runs = append(runs, fmt.Sprint("run-", i))
		records = append(records, store.SagaRecord{
			SagaStep: store.SagaStep{Run: runs[i], Step: "charge"}, State: store.SagaStepDone, CommandType: "card.charge", ReplyType: "done",
			Command: bytes.Repeat([]byte{'c'}, 60), Reply: bytes.Repeat([]byte{'r'}, 60), FirstSentAt: time.Now(),
		})
	}
	b.recordSteps(t, records...)
	must(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error { return b.CloseSagaRuns(t.Context(), tx, "p", runs) }))
	if updated, hot := b.updates(t, "saga_records"); updated != 2*int64(len(records)) || hot != updated {
		t.Errorf("%d of %d updates were HOT, want %d", hot, updated, 2*len(records))
	}
}

// recordSteps locks and saves records of participant p in one transaction.
func (b *bundle) recordSteps(t *testing.T, records ...store.SagaRecord) {
	t.Helper()
	must(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		steps := make([]store.SagaStep, len(records))
		for i, r := range records {
			steps[i] = r.SagaStep
		}
		if _, _, err := b.LockSagaRecords(t.Context(), tx, "p", steps); err != nil {
			return err
		}
		return b.SaveSagaRecords(t.Context(), tx, "p", records)
	}))
}

// TestUndoKeepsWhatWasRecorded: a long command and its reply are not written again when the step is undone.
func TestUndoKeepsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	long := make([]byte, 300_000)
	rand.Read(long)
	r := store.SagaRecord{
		SagaStep: store.SagaStep{Run: "run-1", Step: "charge"}, State: store.SagaStepDone, Command: long[:200_000], Reply: long[200_000:],
	}
	b.recordSteps(t, r)
	chunks := "select array_agg(chunk_id || '/' || chunk_seq || '/' || xmin order by chunk_id, chunk_seq)::text[] from " +
		one[string](t, b.pool, "select reltoastrelid::regclass::text from pg_class where oid = '"+b.table("saga_records")+"'::regclass")
	before := one[[]string](t, b.pool, chunks)
	r.State = store.SagaStepUndone
	b.recordSteps(t, r)
	if after := one[[]string](t, b.pool, chunks); len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("the command and the reply are %d chunks, of which %d were written again", len(before), len(after))
	}
	r.Reply = nil
	b.recordSteps(t, r)
	if after := one[[]string](t, b.pool, chunks); len(after) >= len(before) {
		t.Errorf("%d chunks without the reply, %d with it", len(after), len(before))
	}
}

// TestRecordsAreSavedWhereTheyAreLocked: a record that was not locked is an error, and not a record that nobody finds. One that an old
// program has locked, without purge_from, is purged as any other.
func TestRecordsAreSavedWhereTheyAreLocked(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	r := store.SagaRecord{SagaStep: store.SagaStep{Run: "run-1", Step: "charge"}, State: store.SagaStepRefused}
	save := func() error {
		return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			return b.SaveSagaRecords(t.Context(), tx, "p", []store.SagaRecord{r})
		})
	}
	if err := save(); err == nil || !strings.Contains(err.Error(), "a record is not locked") {
		t.Errorf("a record that was not locked: %v", err)
	}
	b.exec(t, "insert into "+b.table("saga_records")+" (participant, run, step) values ('p', 'run-1', 'charge')")
	b.recordSteps(t, r)
	if n, err := b.PurgeSagaRecords(t.Context(), "p", 0, 10); n != 1 || err != nil {
		t.Errorf("%d records were purged, %v; want 1", n, err)
	}
}

// TestMigrateDownKeepsRecordsOfOpenRuns: a program of version 17 purges every record that has a purge_from. After the migration down, those of
// steps that are done have none until their run is closed.
func TestMigrateDownKeepsRecordsOfOpenRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	record := func(run string, state store.SagaStepState) {
		b.recordSteps(t, store.SagaRecord{SagaStep: store.SagaStep{Run: run, Step: "charge"}, State: state})
	}
	record("open", store.SagaStepDone)
	record("closed", store.SagaStepDone)
	record("refused", store.SagaStepRefused)
	must(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error { return b.CloseSagaRuns(t.Context(), tx, "p", []string{"closed"}) }))
	if _, err := postgres.Migrate(t.Context(), b.pool, b.config, 17); err != nil {
		t.Fatal(err)
	}
	purged := one[[]string](t, b.pool, "select array_agg(run order by run) from "+b.table("saga_records")+" where purge_from <= clock_timestamp()")
	if want := []string{"closed", "refused"}; !slices.Equal(purged, want) {
		t.Errorf("a program of version 17 purges %v, want %v", purged, want)
	}
}
