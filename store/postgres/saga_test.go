//go:build !race

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/storetest"
)

func TestMigrateSagas(t *testing.T) {
	t.Parallel()
	migrate := func(to int) func(t testing.TB, s storetest.Store[pgx.Tx]) {
		return func(t testing.TB, s storetest.Store[pgx.Tx]) {
			t.Helper()
			b := s.(*bundle)
			if _, err := postgres.Migrate(t.Context(), b.pool, b.config, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.MigrateSagas(t, inboxFeatures, harness(dsn(t)), migrate(11), migrate(postgres.Latest))
}

func TestMigrateSagaRecords(t *testing.T) {
	t.Parallel()
	migrate := func(to int) func(t testing.TB, s storetest.Store[pgx.Tx]) {
		return func(t testing.TB, s storetest.Store[pgx.Tx]) {
			t.Helper()
			b := s.(*bundle)
			if _, err := postgres.Migrate(t.Context(), b.pool, b.config, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.MigrateSagaRecords(t, inboxFeatures, harness(dsn(t)), migrate(17), migrate(postgres.Latest), func(t testing.TB, s storetest.Store[pgx.Tx], run string) {
		t.Helper()
		b := s.(*bundle)
		b.exec(t, `
insert into `+b.table("saga_records")+` as r (participant, run, step, state, command_type, command, reply_type, reply, first_sent_at, purge_from)
values ('p', $1, 'a', 'done', 't', 'old', 'done', '', null, null)
on conflict (participant, run, step) do update set state = excluded.state, command_type = excluded.command_type,
	command = excluded.command, reply_type = excluded.reply_type, reply = excluded.reply, first_sent_at = excluded.first_sent_at,
	saved_at = clock_timestamp(), purge_from = case when r.closed or excluded.state <> 'done' then clock_timestamp() end`, run)
	})
}

// sagaStarts are n new instances with 600 bytes of data.
func sagaStarts(n int) []store.SagaStart {
	starts := make([]store.SagaStart, n)
	for i := range starts {
		run := postrider.NewID()
		starts[i] = store.SagaStart{
			SagaIdentity: store.SagaIdentity{Run: run, ID: run, Engine: "shop", Saga: "order", Version: 1, Hash: "h", Kind: store.SagaOrchestrated,
				Key: "order/" + run},
			SagaCondition: store.SagaCondition{Status: store.SagaRunning, Direction: store.SagaForward, Waiting: "reserve", Obligations: 1},
			SagaBody:      store.SagaBody{State: []byte(strings.Repeat("s", 200)), Data: []byte(strings.Repeat("d", 600))},
			Token:         "token",
			Transition:    store.SagaTransition{Input: "start", Entries: []store.SagaEntry{{Name: "step.started", Step: "reserve"}}},
		}
	}
	return starts
}

// createSagas creates instances, and returns their runs.
func (b *bundle) createSagas(t testing.TB, starts []store.SagaStart) (runs []string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := b.CreateSagas(t.Context(), tx, starts)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range starts {
		runs = append(runs, st.Run)
	}
	return runs
}

// transition makes an ordinary transition of each run, in one transaction.
func (b *bundle) transition(ctx context.Context, runs []string, edit func(c *store.SagaChange)) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		loaded, err := b.LoadSagas(ctx, tx, runs)
		if err != nil {
			return err
		}
		changes := make([]store.SagaChange, len(loaded))
		for i, l := range loaded {
			changes[i] = store.SagaChange{
				Run: l.Run, Rev: l.Rev + 1, SagaCondition: l.SagaCondition, SagaTimes: l.SagaTimes, SagaBody: l.SagaBody,
				Transitions: []store.SagaTransition{{
					Input: "reply", Step: "reserve", MessageID: "m", Patch: []byte(`[{"p":"/reservation","n":"r-1"}]`),
					Entries: []store.SagaEntry{{Name: "step.done", Step: "reserve"}, {Name: "step.started", Step: "charge"}},
				}},
			}
			c := &changes[i]
			c.Waiting, c.Obligations, c.TimerAt = fmt.Sprint("step ", c.Rev), int(c.Rev), l.Age
			if edit != nil {
				edit(c)
			}
		}
		return b.SaveSagas(ctx, tx, changes)
	})
}

// TestOrdinaryTransitionsStayHOT: no index contains a column that an ordinary transition changes, and pages have room. While
// an autovacuum analyzes a table of the database, or a transaction in another database stays open, old versions are kept; a later
// attempt then finds room.
func TestOrdinaryTransitionsStayHOT(t *testing.T) {
	t.Parallel()
	notInShort(t)
	b := cloned(t, dsn(t), postgres.Config{Partitions: 4}, 1) // statistics are those of one connection
	runs := b.createSagas(t, sagaStarts(500))
	const rounds = 10
	for begun := time.Now(); ; {
		updated, hot := b.updates(t, "sagas")
		for range rounds {
			for i := 0; i < len(runs); i += 100 {
				must(t, b.transition(t.Context(), runs[i:i+100], nil))
			}
		}
		updates, hotUpdates := b.updates(t, "sagas")
		updates, hotUpdates = updates-updated, hotUpdates-hot
		want := int64(rounds * len(runs))
		if updates == want && hotUpdates*100 >= want*95 {
			return
		}
		if time.Since(begun) > patience || updates != want {
			t.Fatalf("%d of %d updates were HOT, want 95%% of %d", hotUpdates, updates, want)
		}
	}
}

// updates returns how many rows of a table this connection has updated, and how many of them without a change of an index.
func (b *bundle) updates(t *testing.T, table string) (all, hot int64) {
	t.Helper()
	b.exec(t, "select pg_stat_force_next_flush()")
	b.exec(t, "select 1")
	counts := one[[]int64](t, b.pool, "select array[n_tup_upd, n_tup_hot_upd] from pg_stat_all_tables where relid = '"+b.table(table)+"'::regclass")
	return counts[0], counts[1]
}

// TestSagasAreFewRoundTrips: a start is one within its transaction. A transition is four: begin, load, save and commit, however many instances there are.
func TestSagasAreFewRoundTrips(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	runs := b.createSagas(t, sagaStarts(50))
	config, err := pgxpool.ParseConfig(b.dsn)
	must(t, err)
	var trips roundTrips
	config.MaxConns, config.ConnConfig.Tracer = 1, &trips
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	traced := &bundle{Store: open(t, pool, b.config), pool: pool, config: b.config}
	named := func(c *store.SagaChange) {
		c.Aliases, c.Labels = []store.SagaAlias{{Name: "payment", Value: c.Run}}, map[string]string{"customer": "42", "region": ""}
	}
	must(t, traced.transition(t.Context(), runs, named)) // prepares the statements
	trips.n.Store(0)
	must(t, traced.transition(t.Context(), runs, named))
	if n := trips.n.Load(); n != 4 {
		t.Errorf("transitions are %d round trips, want 4", n)
	}
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for range 2 { // the first prepares the statement
			trips.n.Store(0)
			if _, err := traced.CreateSagas(t.Context(), tx, sagaStarts(50)); err != nil {
				return err
			}
		}
		if n := trips.n.Load(); n != 1 {
			t.Errorf("starts are %d round trips, want 1", n)
		}
		return nil
	}))
}

// TestPipelineSavesWithMessages: in a relay's transaction, instances are saved in the round trip that writes messages. The messages of a
// call that has not ended by then are written at its end, and those of one that fails are in nobody's way.
func TestPipelineSavesWithMessages(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{Partitions: 4}, 2)
	var trips roundTrips
	config := b.pool.Config()
	config.ConnConfig.Tracer = &trips
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	s := open(t, pool, b.config)
	message := func() *postrider.Message {
		return &postrider.Message{ID: postrider.NewID(), Type: "card.charge", Topic: "cards", Source: "/test", Time: time.Now(), Payload: []byte("{}")}
	}
	write := func(after error) (took int64, err error) {
		tx, err := s.BeginLimited(t.Context(), 0)
		must(t, err)
		run := sagaStarts(1)
		_, err = s.CreateSagas(t.Context(), tx, run)
		must(t, err)
		trips.n.Store(0)
		err = s.Pipeline(t.Context(), tx, func(ctx context.Context, tx pgx.Tx) error {
			must(t, s.Insert(ctx, tx, []*postrider.Message{message()}))
			err := s.SaveSagas(ctx, tx, []store.SagaChange{{
				Run: run[0].Run, Rev: 2, SagaCondition: run[0].SagaCondition, SagaBody: run[0].SagaBody, Transitions: []store.SagaTransition{{Input: "reply"}},
			}})
			must(t, errors.Join(err, s.Insert(ctx, tx, []*postrider.Message{message()})))
			return after
		})
		took = trips.n.Load()
		if after != nil {
			return took, errors.Join(err, s.Rollback(t.Context(), tx))
		}
		return took, errors.Join(err, s.Commit(t.Context(), tx))
	}
	if _, err := write(nil); err != nil { // prepares the statements
		t.Fatal(err)
	}
	if took, err := write(nil); took != 2 || err != nil {
		t.Errorf("two messages with an instance between them are %d round trips, %v; want 2", took, err)
	}
	failed := errors.New("failed")
	if _, err := write(failed); !errors.Is(err, failed) {
		t.Errorf("the error is %v, want that of the function", err)
	}
	if n := one[int](t, pool, "select count(*) from "+b.table("log")); n != 4 {
		t.Errorf("the log has %d messages, want 4", n)
	}
}

// TestSagasArePlannedOnce: however short their arrays are, the statements of transitions are not planned again for each execution.
func TestSagasArePlannedOnce(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{Partitions: 4}, 1) // the server counts plans by connection
	const often = 12                                          // five times, the server plans again in any case
	for _, start := range sagaStarts(often) {
		b.createSagas(t, []store.SagaStart{start})
		must(t, b.transition(t.Context(), []string{start.Run}, nil))
		r := store.SagaRecord{SagaStep: store.SagaStep{Run: start.Run, Step: "charge"}, State: store.SagaStepDone}
		must(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := b.FindSagas(t.Context(), tx, []store.SagaLookup{{ID: start.ID}})
			return errors.Join(err, b.CloseSagaRuns(t.Context(), tx, "p", []string{start.Run}))
		}))
		b.recordSteps(t, r)
	}
	for _, part := range []string{"for update) as s", "with saved as", "with created as", "into %saga_history", "coalesce(case when l.id", "saga_records", "closed = true"} {
		part = strings.ReplaceAll(part, " ", "%")
		if n := one[int](t, b.pool, "select count(*) from pg_prepared_statements where statement like '%"+part+"%' and generic_plans > 0"); n == 0 {
			t.Errorf("no statement like %q has one plan for all its executions", part)
		}
	}
	if again := one[[]string](t, b.pool, `select coalesce(array_agg(statement), '{}') from pg_prepared_statements
		where custom_plans > 5 and statement like '%saga%'`); len(again) > 0 {
		t.Errorf("the server plans these again for each execution: %q", again)
	}
}

// TestSagasAreFoundByAnIndex: no statement reads all instances, most of which have ended.
func TestSagasAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	starts := sagaStarts(2000)
	for i := range starts {
		starts[i].Labels = map[string]string{"customer": fmt.Sprint(i)}
	}
	runs := b.createSagas(t, starts)
	must(t, b.transition(t.Context(), runs[10:], func(c *store.SagaChange) { c.Status = store.SagaCompleted }))
	b.exec(t, "analyze "+b.table("sagas")+", "+b.table("saga_labels"))
	open := []store.SagaStatus{store.SagaRunning, store.SagaCompensating}
	plans, err := b.ExplainSagas(t.Context(), map[string]store.SagaFilter{
		"open": {Status: open}, "open of saga": {Saga: "order", Status: open}, "overdue": {Overdue: true}, "stuck": {Status: []store.SagaStatus{store.SagaStuck}},
		"key": {Key: "k"}, "children": {ParentRun: "r"}, "label": {Labels: map[string]string{"customer": "1"}},
	})
	must(t, err)
	for name, index := range map[string]string{
		"open": "sagas_open", "open of saga": "sagas_open", "overdue": "sagas_open", "stuck": "sagas_stuck", "key": "sagas_key", "children": "sagas_children",
		"label": "saga_labels_value", "count": "sagas_open", "by ID": "sagas_id", "purge": "sagas_purge", "purge records": "saga_records_purge",
		"load": "sagas_pkey", "find": "sagas_held", "existing": "sagas_held", "save": "sagas_pkey", "lock records": "saga_records_pkey",
		"save records": "saga_records_pkey", "close runs": "saga_records_pkey",
	} {
		if plan := plans[name]; !strings.Contains(plan, "Scan using "+"postrider_"+index+" ") || strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s, want %s:\n%s", name, index, plan)
		}
	}
}
