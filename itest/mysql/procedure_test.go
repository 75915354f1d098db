//go:build !race

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestProcedurePublishes: the procedure writes the same as Go would.
func TestProcedurePublishes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.migrated(t, nil, mysqlstore.Config{Partitions: 16})
	s := newStore(t, db, mysqlstore.Config{})
	exec(t, db, `CALL postrider_publish('orders', 'ключ/😀', 'order.placed', '{"n":1}', '{"headers": {"a": "b", "ü \\"x\\"": "😀"}, "id": "m-1",
		"source": "shop", "subject": "s", "tenant": "t", "correlation_id": "co", "causation_id": "ca", "content_type": "text/plain",
		"schema_version": 3, "aggregate_version": 4, "message_time": "2026-01-31 15:04:05.25", "deliver_after": 3600.5}')`)
	exec(t, db, `CALL postrider_publish(NULL, NULL, 'bare', '', NULL)`)
	exec(t, db, `CALL postrider_publish('t', 'k', 'nulls', '', '{"headers": null, "id": null, "source": null, "subject": null, "tenant": null,
		"correlation_id": null, "causation_id": null, "content_type": null, "schema_version": null, "aggregate_version": null, "message_time": null,
		"deliver_at": null, "deliver_after": 1}')`)
	for i := range 50 {
		exec(t, db, `CALL postrider_publish('t', ?, 't', '{}', NULL)`, fmt.Sprintf("key/%d", i))
	}
	checkPartitions(t, db, 16)
	var full, bare, nulls *postrider.Message
	for p := range 16 {
		batches, err := s.Fetch(t.Context(), "", store.FetchRequest{Partitions: []store.FetchPartition{{LeaseRef: store.LeaseRef{Partition: p}}}, Limit: 100, MaxBytes: 1 << 20})
		must(t, err)
		for _, b := range batches {
			for _, r := range b.Entries {
				must(t, r.Err)
				must(t, r.Message.Validate(postrider.Limits{}))
				switch r.Message.Type {
				case "order.placed":
					full = r.Message
				case "bare":
					bare = r.Message
				case "nulls":
					nulls = r.Message
				}
			}
		}
	}
	want := postrider.Message{
		ID: "m-1", Type: "order.placed", Source: "shop", Topic: "orders", Key: "ключ/😀", Subject: "s", Tenant: "t", SchemaVersion: 3,
		AggregateVersion: 4, ContentType: "text/plain", CorrelationID: "co", CausationID: "ca", Sequence: full.Sequence,
		Time:    time.Date(2026, 1, 31, 15, 4, 5, 250_000_000, time.UTC),
		Headers: map[string]string{"a": "b", `ü "x"`: "😀"}, Payload: []byte(`{"n":1}`), CreatedAt: full.CreatedAt, DeliverAt: full.DeliverAt,
	}
	if fmt.Sprintf("%+v", *full) != fmt.Sprintf("%+v", want) {
		t.Errorf("published\n%+v, want\n%+v", *full, want)
	}
	if wait := full.DeliverAt.Sub(full.CreatedAt).Round(time.Second); wait != 3600*time.Second && wait != 3601*time.Second {
		t.Errorf("it is delivered after %s, want 1h0m0.5s", wait)
	}
	if bare.Topic != "bare" || bare.Source != "sql" || bare.Key != "" || len(bare.ID) != 36 || bare.ID[14] != '7' {
		t.Errorf("published %+v", *bare)
	}
	want = postrider.Message{
		ID: nulls.ID, Type: "nulls", Source: "sql", Topic: "t", Key: "k", ContentType: "application/json", Sequence: nulls.Sequence,
		Headers: nulls.Headers, Payload: nulls.Payload, Time: nulls.Time, CreatedAt: nulls.CreatedAt, DeliverAt: nulls.DeliverAt,
	}
	if fmt.Sprintf("%+v", *nulls) != fmt.Sprintf("%+v", want) || len(nulls.ID) != 36 || len(nulls.Headers) != 0 || len(nulls.Payload) != 0 ||
		nulls.Time.Sub(nulls.CreatedAt).Abs() > time.Minute || !nulls.DeliverAt.After(nulls.CreatedAt) {
		t.Errorf("published\n%+v, want\n%+v", *nulls, want)
	}
}

// TestProcedureRefuses: errors are named, and nothing is written.
func TestProcedureRefuses(t *testing.T) {
	t.Parallel()
	db := newDatabase(t).migrated(t, nil, mysqlstore.Config{})
	for _, c := range []struct{ args, words string }{
		{`'t', 'k', '', 'x', NULL`, "type of 1 to 128"},
		{`'t', 'k', NULL, 'x', NULL`, "type of 1 to 128"},
		{`'t', REPEAT('k', 257), 't', 'x', NULL`, "key of up to 256"},
		{`'t', 'k', 't', NULL, NULL`, "payload of up to 1 MiB"},
		{`'t', 'k', 't', REPEAT('x', 1048577), NULL`, "payload of up to 1 MiB"},
		{`'t', 'k', 't', 'x', '[]'`, "options is not a JSON object"},
		{`'t', 'k', 't', 'x', 'x'`, "options is not a JSON object"},
		{`'t', 'k', 't', 'x', '{"tenent": "a"}'`, "unknown option tenent"},
		{`'t', 'k', 't', 'x', '{"id": ""}'`, "id of 1 to 64"},
		{`'t', 'k', 't', 'x', '{"headers": {"a": 1}}'`, "headers of strings"},
		{`'t', 'k', 't', 'x', '{"headers": {"": "a"}}'`, "headers of strings"},
		{`'t', 'k', 't', 'x', '{"headers": {"a": null}}'`, "headers of strings"},
		{`'t', 'k', 't', 'x', '{"headers": "a"}'`, "headers as an object"},
		{`'t', 'k', 't', 'x', '{"deliver_after": 0}'`, "deliver_after as seconds"},
		{`'t', 'k', 't', 'x', '{"deliver_at": "tomorrow"}'`, "deliver_at as"},
		{`'t', 'k', 't', 'x', '{"deliver_at": "2026-01-31 15:04:05", "deliver_after": 1}'`, "not both"},
		{`'t', 'k', 't', 'x', '{"schema_version": -1}'`, "schema_version from 1"},
		{`'t', 'k', 't', 'x', '{"content_type": "json"}'`, "content_type such as"},
	} {
		if _, err := db.Exec("CALL postrider_publish(" + c.args + ")"); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: error %v, want %q", c.args[:min(len(c.args), 60)], err, c.words)
		}
	}
	var n int
	must(t, db.QueryRow("SELECT COUNT(*) FROM postrider_log").Scan(&n))
	if n != 0 {
		t.Errorf("%d messages were written", n)
	}
}

// TestMigrationsCanBeRunAgain: the next call completes an interrupted migration; migrating down removes everything.
func TestMigrationsCanBeRunAgain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.open(t, nil)
	cfg := mysqlstore.Config{Prefix: "Shop_", Partitions: 3}
	if _, err := mysqlstore.New(db, cfg); err == nil {
		t.Error("an outbox was opened that does not exist")
	}
	done, err := mysqlstore.Migrate(t.Context(), db, cfg, mysqlstore.Latest)
	must(t, err)
	for _, version := range []int{1, 2, 3, 4} { // as if each had been interrupted before it was recorded
		exec(t, db, "DELETE FROM Shop_migrations WHERE version >= ?", version)
		again, err := mysqlstore.Migrate(t.Context(), db, cfg, mysqlstore.Latest)
		must(t, err)
		if len(again) != len(done)-version+1 {
			t.Errorf("from version %d on, %q was done again", version, again)
		}
	}
	if n, err := newStore(t, db, mysqlstore.Config{Prefix: "Shop_"}).Partitions(t.Context()); n != 3 || err != nil {
		t.Errorf("the outbox has %d partitions, %v", n, err)
	}
	if _, err := mysqlstore.Migrate(t.Context(), db, cfg, 0); err != nil {
		t.Fatal(err)
	}
	var left sql.NullString
	must(t, db.QueryRow("SELECT GROUP_CONCAT(table_name) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&left))
	if left.Valid {
		t.Errorf("left are %s", left.String)
	}
}

// TestInterruptedWayDownGoesOnlyDown: a half-removed schema does not count as a schema, and cannot be migrated up.
func TestInterruptedWayDownGoesOnlyDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	db := w.db
	user := w.begin() // uses a table, so that it is not dropped in time
	var n int
	must(t, user.QueryRow("SELECT COUNT(*) FROM postrider_dead").Scan(&n))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped := make(chan error)
	go func() {
		_, err := mysqlstore.Migrate(ctx, db, mysqlstore.Config{}, 0)
		stopped <- err
	}()
	w.until("the way down waits", func() bool {
		return w.count("SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock' AND db = DATABASE()") > 0
	})
	cancel()
	if err := <-stopped; err == nil {
		t.Fatal("it was not interrupted")
	}
	must(t, user.Rollback())

	for _, to := range []int{1, mysqlstore.Latest} {
		done, err := mysqlstore.Migrate(t.Context(), db, mysqlstore.Config{}, to)
		if !errors.Is(err, mysqlstore.ErrSchemaOlder) || !strings.Contains(err.Error(), "postrider migrate down --to 0") || len(done) > 0 {
			t.Errorf("up to %d from a half of the schema: %q, error %v", to, done, err)
		}
	}
	if _, err := mysqlstore.New(db, mysqlstore.Config{}); !errors.Is(err, mysqlstore.ErrSchemaOlder) {
		t.Errorf("a half of the schema was opened: %v", err)
	}
	all, err := mysqlstore.MigrationStatus(t.Context(), db, mysqlstore.Config{})
	must(t, err)
	for _, m := range all {
		if m.Applied {
			t.Errorf("migration %+v is not applied, or not any more", m)
		}
	}
	for _, to := range []int{0, mysqlstore.Latest} {
		_, err = mysqlstore.Migrate(t.Context(), db, mysqlstore.Config{}, to)
		must(t, err)
	}
	newStore(t, db, mysqlstore.Config{})
}

// TestRightsOfPublishers: the privileges that docs/stores/mysql.md lists are enough, and a missing one is named.
func TestRightsOfPublishers(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.migrated(t, nil, mysqlstore.Config{})
	c := d.config.Clone()
	c.User, c.Passwd = "u_"+d.config.DBName[len(d.config.DBName)-12:], "Secret-4711"
	exec(t, db, fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", c.User, c.Passwd))
	t.Cleanup(func() { exec(t, open(t, d.config), "DROP USER "+c.User+"@'%'") })
	for right, table := range map[string]string{"INSERT, SELECT": "log", "SELECT": "meta"} {
		exec(t, db, fmt.Sprintf("GRANT %s ON postrider_%s TO %s@'%%'", right, table, c.User))
	}
	publisher := open(t, c)
	if _, err := mysqlstore.New(publisher, mysqlstore.Config{}); !errors.Is(err, mysqlstore.ErrDenied) {
		t.Errorf("without a right to the migrations: %v", err)
	}
	exec(t, db, fmt.Sprintf("GRANT SELECT ON postrider_migrations TO %s@'%%'", c.User))
	exec(t, db, fmt.Sprintf("GRANT EXECUTE ON PROCEDURE postrider_publish TO %s@'%%'", c.User))
	o, err := outbox.New(newStore(t, publisher, mysqlstore.Config{}), outbox.Config{Source: "shop"})
	must(t, err)
	_, err = o.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := o.Publish(ctx, tx, &postrider.Message{Type: "t", Key: "k", Payload: []byte("{}")})
		return err
	})
	must(t, err)
	exec(t, publisher, "CALL postrider_publish('t', 'k', 't', '{}', NULL)")
}

// TestMigrateAtOnce: any number of programs may migrate concurrently.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.open(t, nil)
	errs := make(chan error)
	for range 4 {
		go func() {
			_, err := mysqlstore.Migrate(t.Context(), db, mysqlstore.Config{}, mysqlstore.Latest)
			errs <- err
		}()
	}
	for range 4 {
		must(t, <-errs)
	}
	newStore(t, db, mysqlstore.Config{})
}
