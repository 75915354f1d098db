//go:build !race

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// as returns a database as a new user sees it who has the rights of mysqlstore.Grants.
func (d database) as(t *testing.T, what string) *sql.DB {
	t.Helper()
	user, admin := what+"_"+d.config.DBName[len(d.config.DBName)-8:], open(t, d.config)
	exec(t, admin, "CREATE USER "+user)
	t.Cleanup(func() { exec(t, admin, "DROP USER "+user) })
	grants, err := mysqlstore.Grants(mysqlstore.Config{}, what, user)
	must(t, err)
	for statement := range strings.SplitSeq(grants, ";\n") {
		if statement != "" {
			exec(t, admin, statement)
		}
	}
	c := d.config.Clone()
	c.User, c.Passwd = user, ""
	return open(t, c)
}

// denied checks that the server refuses statements.
func denied(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, text := range statements {
		_, err := db.ExecContext(t.Context(), text)
		if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != 1142 && e.Number != 1143 && e.Number != 1370 {
			t.Errorf("%s: %v, want that a right is missing", text, err)
		}
	}
}

func TestGrantsOfAPublisher(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.migrated(t, nil, mysqlstore.Config{})
	db := d.as(t, "publisher")
	o, err := outbox.New(newStore(t, db, mysqlstore.Config{}), outbox.Config{Source: "shop"})
	must(t, err)
	_, err = o.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := o.Publish(ctx, tx, &postrider.Message{Type: "t", Payload: []byte("{}")})
		return err
	})
	must(t, err)
	exec(t, db, "CALL postrider_publish('t', 'k', 'type', '{}', '{}')")
	denied(t, db, "SELECT payload FROM postrider_log", "DELETE FROM postrider_log", "SELECT 1 FROM postrider_dead", "SELECT 1 FROM postrider_cursors")
}

func TestGrantsOfARelayAndAConsumer(t *testing.T) {
	t.Parallel()
	d, ctx := newDatabase(t), t.Context()
	d.migrated(t, nil, mysqlstore.Config{Partitions: 1})
	r := newStore(t, d.as(t, "relay"), mysqlstore.Config{})
	claims := []store.LeaseClaim{{Partition: 0, Token: store.NewToken()}}
	leases, err := r.Acquire(ctx, "r", store.Owner{ID: "o"}, store.AcquireRequest{TTL: time.Hour, Claims: claims})
	must(t, err)
	_, err = r.Fetch(ctx, "r", store.FetchRequest{Limit: 10, MaxBytes: 1 << 20,
		Partitions: []store.FetchPartition{{LeaseRef: leases[0].Ref(), After: leases[0].Cursor}}})
	must(t, err)
	_, err = r.Maintain(ctx, store.Retention{})
	must(t, err)

	db := d.as(t, "consumer")
	c := newStore(t, db, mysqlstore.Config{})
	must(t, c.Enroll(ctx, "c"))
	message := &postrider.Message{ID: "m", Type: "t", Topic: "t", Time: time.Now(), Payload: []byte("{}")}
	tx, err := c.Begin(ctx)
	must(t, err)
	must(t, c.Park(ctx, tx, "c", []store.ParkRequest{{Message: message, Dead: &store.DeadRequest{Reason: "refused"}}}))
	must(t, c.Commit(ctx, tx))
	denied(t, db, "SELECT payload FROM postrider_log", "DROP TABLE postrider_log", "UPDATE postrider_watermarks SET moved = 1",
		"INSERT INTO postrider_watermark_marks (consumer) VALUES ('c')")
}

// TestGrantsOfOperatorsAndViewers: both see dead letters without their contents, and the status; only an operator decides.
func TestGrantsOfOperatorsAndViewers(t *testing.T) {
	t.Parallel()
	d, ctx := newDatabase(t), t.Context()
	owner := newStore(t, d.migrated(t, nil, mysqlstore.Config{Partitions: 1}), mysqlstore.Config{})
	must(t, owner.Enroll(ctx, "c"))
	tx, err := owner.Begin(ctx)
	must(t, err)
	for _, id := range []string{"a", "b"} {
		m := &postrider.Message{ID: id, Type: "t", Topic: "t", Time: time.Now(), Payload: []byte("{}"), Headers: map[string]string{"a": "b"}}
		must(t, owner.Park(ctx, tx, "c", []store.ParkRequest{{Message: m, Dead: &store.DeadRequest{Reason: "refused"}}}))
	}
	must(t, owner.Commit(ctx, tx))
	for _, what := range []string{"viewer", "operator"} {
		db := d.as(t, what)
		o := newStore(t, db, mysqlstore.Config{})
		if st, err := o.Status(ctx); err != nil || len(st.Relays) == 0 {
			t.Errorf("status of %s: %+v, %v", what, st, err)
		}
		for l, err := range deadletter.New(o).ListDead(ctx, store.DeadFilter{}, 0, 0) {
			if err != nil || len(l.Message.Payload) > 0 || len(l.Message.Headers) > 0 || l.Unreadable == "" {
				t.Errorf("%s sees %+v, %v", what, l, err)
			}
		}
		denied(t, db, "SELECT payload FROM postrider_dead", "SELECT headers FROM postrider_dead", "SELECT payload FROM postrider_log",
			"SELECT payload FROM postrider_parked", "SELECT payload FROM postrider_edits", "DELETE FROM postrider_dead", "UPDATE postrider_dead SET payload = ''")
		_, redriveErr := deadletter.New(o).StartRedrive(ctx, deadletter.Plan{By: "me"})
		_, discardErr := deadletter.New(o).DiscardDead(ctx, store.DeadFilter{}, "me", "because", 1)
		claim := store.AcquireRequest{Kind: store.KindConsumer, Claims: []store.LeaseClaim{{Token: store.NewToken()}}, TTL: time.Minute}
		if _, err := o.Acquire(ctx, "c", store.Owner{ID: what}, claim); !errors.Is(err, store.ErrDenied) {
			t.Errorf("%s: lease: %v, want ErrDenied", what, err)
		}
		_, pauseErr := pause.New(o).Pause(ctx, pause.Request{Relay: "c", By: "me"})
		_, resumeErr := pause.New(o).Resume(ctx, "c")
		if allowed := what == "operator"; (discardErr == nil) != allowed || (redriveErr == nil) != allowed || (pauseErr == nil) != allowed || (resumeErr == nil) != allowed {
			t.Errorf("%s: discard: %v, redrive: %v, pause: %v, resume: %v", what, discardErr, redriveErr, pauseErr, resumeErr)
		}
	}
}
