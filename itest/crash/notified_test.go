package crash

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/postgres"
)

// useRole creates a role and an outbox that it owns, in schema notified, and makes the relay use both. It returns a function that runs a
// statement as the server's owner.
func (w *world) useRole(db *pgx.Conn, role string) (do func(sql string)) {
	t := w.t
	t.Helper()
	do = func(sql string) {
		t.Helper()
		if _, err := db.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	do("create role " + role + " login")
	t.Cleanup(func() { do("drop owned by " + role); do("drop role " + role) })
	do("create schema notified authorization " + role)
	u, err := url.Parse(w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	as, query := *u, u.Query()
	query.Set("schema", "notified")
	as.User, as.RawQuery = url.User(role), query.Encode()
	w.dsn = as.String()
	w.postrider("migrate", "up", "--store", w.dsn)
	return do
}

// TestNotifiedByDefault: a relay in another process delivers a message because it is notified of it. It cannot find it in any other way: it
// polls every hour, and may not read the sequence of the log.
func TestNotifiedByDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "    poll_min: 1h\n    poll_max: 1h\n")
	db, role := w.connect(), "relay_"+strings.ToLower(rand.Text()[:10])
	server := w.dsn
	do := w.useRole(db, role)
	w.configure(w.broker.URL+"?stream=ACCOUNTS&dedupe_window=100ms", "    poll_min: 1h\n    poll_max: 1h\n")
	relay := w.startRelay()
	defer w.stopRelay(relay)
	w.await("the relay listens", func() (listens bool) {
		err := db.QueryRow(t.Context(), `select exists (select from pg_locks l join pg_stat_activity a using (pid)
			where l.locktype = 'advisory' and a.usename = $1)`, role).Scan(&listens)
		return err == nil && listens
	})
	pool, err := newPool(t.Context(), server, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.Config{Schema: "notified"})
	if err != nil {
		t.Fatal(err)
	}
	box, err := outbox.New(store, outbox.Config{Source: "crash"})
	if err != nil {
		t.Fatal(err)
	}
	published := uint64(0)
	publish := func(n int) {
		t.Helper()
		_, err := box.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			for range n {
				if _, err := box.Publish(ctx, tx, &postrider.Message{Type: "notified", Payload: []byte("{}")}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		published += uint64(n)
	}
	arrived := func() bool {
		info, err := w.stream.Info(t.Context())
		return err == nil && info.State.Msgs >= published
	}
	publish(100) // to all partitions, so that the relay has their leases and has read them
	w.await("the first messages arrive", arrived)
	do("revoke select on notified.postrider_log_seq_seq from " + role)
	w.await("messages arrive", func() bool { // a publisher looks once a second for somebody who listens
		publish(1)
		return arrived()
	})
}
