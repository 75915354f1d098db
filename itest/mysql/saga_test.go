//go:build !race

package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
	"github.com/postrider/postrider/store/storetest"
)

func TestMigrateSagas(t *testing.T) {
	t.Parallel()
	migrate := func(to int) func(t testing.TB, s storetest.Store[*sql.Tx]) {
		return func(t testing.TB, s storetest.Store[*sql.Tx]) {
			t.Helper()
			_, err := mysqlstore.Migrate(t.Context(), s.(opened).database.open(t, nil), mysqlstore.Config{}, to)
			must(t, err)
		}
	}
	storetest.MigrateSagas(t, features, harness, migrate(9), migrate(mysqlstore.Latest))
}

func TestMigrateSagaRecords(t *testing.T) {
	t.Parallel()
	migrate := func(to int) func(t testing.TB, s storetest.Store[*sql.Tx]) {
		return func(t testing.TB, s storetest.Store[*sql.Tx]) {
			t.Helper()
			_, err := mysqlstore.Migrate(t.Context(), s.(opened).database.open(t, nil), mysqlstore.Config{}, to)
			must(t, err)
		}
	}
	storetest.MigrateSagaRecords(t, features, harness, migrate(14), migrate(mysqlstore.Latest), func(t testing.TB, s storetest.Store[*sql.Tx], run string) {
		t.Helper()
		_, err := s.(opened).database.open(t, nil).ExecContext(t.Context(),
			`INSERT INTO postrider_saga_records (participant, run, step, state, command_type, command, reply_type, reply, first_sent_at,
				saved_at, purge_from) VALUES ('p', ?, 'a', 'done', 't', 'old', 'done', '', 0, 1, NULL)
			ON DUPLICATE KEY UPDATE state = VALUES(state), command_type = VALUES(command_type), command = VALUES(command),
				reply_type = VALUES(reply_type), reply = VALUES(reply), first_sent_at = VALUES(first_sent_at), saved_at = VALUES(saved_at),
				purge_from = IF(closed, VALUES(saved_at), VALUES(purge_from))`, run)
		must(t, err)
	})
}

// TestSagasAreFoundByAnIndex: no statement reads all instances, most of which have ended.
func TestSagasAreFoundByAnIndex(t *testing.T) { //nolint:tparallel // its subtests share what they record
	t.Parallel()
	d, ctx := newDatabase(t), t.Context()
	plain := d.migrated(t, nil, mysqlstore.Config{})
	fillSagas(t, newStore(t, plain, mysqlstore.Config{}))
	_, err := plain.ExecContext(ctx, `ANALYZE TABLE postrider_sagas, postrider_saga_labels`)
	must(t, err)
	connector, err := mysql.NewConnector(d.config.Clone())
	must(t, err)
	var queries []string
	db := sql.OpenDB(watched{connector, func(_ driver.Conn, query string) { queries = append(queries, query) }})
	t.Cleanup(func() { must(t, db.Close()) })
	s := newStore(t, db, mysqlstore.Config{})
	list := func(f store.SagaFilter) func(context.Context) error {
		return func(ctx context.Context) error { _, err := s.ListSagas(ctx, f, "", 10); return err }
	}
	for name, tt := range map[string]struct {
		read       func(context.Context) error
		table, key string
	}{
		"counts":  {func(ctx context.Context) error { _, err := s.CountSagas(ctx); return err }, "postrider_sagas", "postrider_sagas_open"},
		"open":    {list(store.SagaFilter{Status: []store.SagaStatus{store.SagaRunning}}), "postrider_sagas s", "postrider_sagas_open"},
		"overdue": {list(store.SagaFilter{Overdue: true}), "postrider_sagas s", "postrider_sagas_open"},
		"stuck":   {list(store.SagaFilter{Status: []store.SagaStatus{store.SagaStuck}}), "postrider_sagas s", "postrider_sagas_stuck"},
		"key":     {list(store.SagaFilter{Key: "k"}), "postrider_sagas s", "postrider_sagas_key"},
		"child":   {list(store.SagaFilter{ParentRun: "r"}), "postrider_sagas s", "postrider_sagas_children"},
		"label":   {list(store.SagaFilter{Labels: map[string]string{"customer": "1"}}), "postrider_saga_labels l", "postrider_saga_labels_value"},
		"by ID":   {func(ctx context.Context) error { _, err := s.SagasByID(ctx, []string{"run-000001"}); return err }, "postrider_sagas s", "postrider_sagas_id"},
		"purge":   {func(ctx context.Context) error { _, err := s.PurgeSagas(ctx, "e", time.Hour, 10); return err }, "postrider_sagas FORCE", "postrider_sagas_purge"},
	} {
		t.Run(name, func(t *testing.T) {
			queries = nil
			must(t, tt.read(t.Context()))
			checkKey(t.Context(), t, plain, queries, tt.table, tt.key)
		})
	}
}

// fillSagas creates instances, of which the last 10 have not ended.
func fillSagas(t *testing.T, s *mysqlstore.Store) {
	t.Helper()
	ctx := t.Context()
	tx, err := s.Begin(ctx)
	must(t, err)
	var changes []store.SagaChange
	for n := range 1000 {
		run := fmt.Sprintf("run-%06d", n)
		st := store.SagaStart{
			SagaIdentity: store.SagaIdentity{Run: run, ID: run, Engine: "shop", Saga: "order", Version: 1, Hash: "h", Kind: store.SagaOrchestrated,
				Key: run},
			SagaCondition: store.SagaCondition{Status: store.SagaRunning, Direction: store.SagaForward},
			SagaBody:      store.SagaBody{Data: []byte(strings.Repeat("d", 600))},
			Labels:        map[string]string{"customer": fmt.Sprint(n)},
			Transition:    store.SagaTransition{Input: "start"},
		}
		_, err := s.CreateSagas(ctx, tx, []store.SagaStart{st})
		must(t, err)
		c := store.SagaChange{Run: run, Rev: 2, SagaCondition: st.SagaCondition, SagaBody: st.SagaBody, Transitions: []store.SagaTransition{{Input: "reply"}}}
		if c.Status = store.SagaCompleted; n < 990 {
			changes = append(changes, c)
		}
	}
	must(t, s.SaveSagas(ctx, tx, changes))
	must(t, s.Commit(ctx, tx))
}
