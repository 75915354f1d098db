package sqlite_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
	"github.com/postrider/postrider/store/storetest"
)

func TestMigrateSagas(t *testing.T) {
	t.Parallel()
	migrate := func(to int) func(t testing.TB, s storetest.Store[*sql.Tx]) {
		return func(t testing.TB, s storetest.Store[*sql.Tx]) {
			t.Helper()
			if _, err := sqlite.Migrate(t.Context(), s.(opened).file.open(t, ""), sqlite.Config{}, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.MigrateSagas(t, features, harness, migrate(10), migrate(sqlite.Latest))
}

func TestMigrateSagaRecords(t *testing.T) {
	t.Parallel()
	migrate := func(to int) func(t testing.TB, s storetest.Store[*sql.Tx]) {
		return func(t testing.TB, s storetest.Store[*sql.Tx]) {
			t.Helper()
			if _, err := sqlite.Migrate(t.Context(), s.(opened).file.open(t, ""), sqlite.Config{}, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.MigrateSagaRecords(t, features, harness, migrate(14), migrate(sqlite.Latest), func(t testing.TB, s storetest.Store[*sql.Tx], run string) {
		t.Helper()
		_, err := s.(opened).file.open(t, "").ExecContext(t.Context(), `INSERT INTO postrider_saga_records
			(participant, run, step, state, command_type, command, reply_type, reply, first_sent_at, saved_at, purge_from) VALUES ('p', ?, 'a', 'done', 't', X'6F6C64', 'done', X'', 0, 1, NULL)
			ON CONFLICT DO UPDATE SET state = excluded.state, command_type = excluded.command_type, command = excluded.command,
				reply_type = excluded.reply_type, reply = excluded.reply, first_sent_at = excluded.first_sent_at,
				saved_at = excluded.saved_at, purge_from = CASE WHEN closed THEN excluded.saved_at ELSE excluded.purge_from END`, run)
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestSagasAreFoundByAnIndex: no statement reads all instances, most of which have ended.
func TestSagasAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	plain := f.migrated(t, sqlite.Config{})
	var plans []string
	db := sql.OpenDB(planned{plain.Driver(), "file:" + string(f), &plans})
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s, ctx := newStore(t, db, sqlite.Config{}), t.Context()
	list := func(filter store.SagaFilter) func() error {
		return func() error { _, err := s.ListSagas(ctx, filter, "", 10); return err }
	}
	for name, tt := range map[string]struct {
		read func() error
		want string
	}{
		"counts":       {func() error { _, err := s.CountSagas(ctx); return err }, "USING INDEX postrider_sagas_open"},
		"open":         {list(store.SagaFilter{Status: []store.SagaStatus{store.SagaRunning}}), "USING INDEX postrider_sagas_open (run>?)"},
		"open of saga": {list(store.SagaFilter{Saga: "order", Status: []store.SagaStatus{store.SagaRunning}}), "USING INDEX postrider_sagas_open (run>?)"},
		"overdue":      {list(store.SagaFilter{Overdue: true}), "USING INDEX postrider_sagas_open (run>?)"},
		"stuck":        {list(store.SagaFilter{Status: []store.SagaStatus{store.SagaStuck}}), "USING INDEX postrider_sagas_stuck (run>?)"},
		"key":          {list(store.SagaFilter{Key: "k"}), "USING INDEX postrider_sagas_key (saga_key=? AND run>?)"},
		"children":     {list(store.SagaFilter{ParentRun: "r"}), "USING INDEX postrider_sagas_children (parent_run=?)"},
		"label":        {list(store.SagaFilter{Labels: map[string]string{"a": "b"}}), "USING COVERING INDEX postrider_saga_labels_value (name=? AND value=?"},
		"by ID":        {func() error { _, err := s.SagasByID(ctx, []string{"a"}); return err }, "USING INDEX postrider_sagas_id (id=?)"},
		"purge":        {func() error { _, err := s.PurgeSagas(ctx, "e", time.Hour, 10); return err }, "USING INDEX postrider_sagas_purge (engine=? AND purge_from<?)"},
	} {
		plans = nil
		if err := tt.read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text := strings.Join(plans, "\n"); !strings.Contains(text, tt.want) || strings.Contains(text, "SCAN s\n") {
			t.Errorf("%s, want %s:\n%s", name, tt.want, text)
		}
	}
}
