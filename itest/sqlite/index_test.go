package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

// planned opens connections that record the plan of every SELECT before it runs.
type planned struct {
	on    driver.Driver
	name  string
	plans *[]string
}

func (p planned) Connect(context.Context) (driver.Conn, error) {
	conn, err := p.on.Open(p.name)
	return plannedConn{conn, p.plans}, err
}

func (p planned) Driver() driver.Driver { return p.on }

type plannedConn struct {
	driver.Conn
	plans *[]string
}

func (c plannedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

func (c plannedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c plannedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	queryer := c.Conn.(driver.QueryerContext)
	if strings.HasPrefix(query, "SELECT") {
		rows, err := queryer.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, args)
		if err != nil {
			return nil, err
		}
		for row := make([]driver.Value, len(rows.Columns())); rows.Next(row) == nil; {
			*c.plans = append(*c.plans, row[3].(string))
		}
		if err := rows.Close(); err != nil {
			return nil, err
		}
	}
	return queryer.QueryContext(ctx, query, args)
}

// TestPagesAreReadByAnIndex: a page of a long list of held keys, or of parked messages, must not read or sort the others.
func TestPagesAreReadByAnIndex(t *testing.T) {
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
	store := newStore(t, db, sqlite.Config{})
	plans = nil
	for _, err := range held.New(store).ListHeld(t.Context(), "r") {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range held.New(store).ListParked(t.Context(), "r") {
		if err != nil {
			t.Fatal(err)
		}
	}
	text := strings.Join(plans, "\n")
	for _, want := range []string{
		"USING INDEX postrider_held_since (relay=? AND (since,key)>(?,?))",
		"USING INDEX postrider_parked_next (relay=? AND (due_at,partition,seq)>(?,?,?))",
	} {
		if !strings.Contains(text, want) || strings.Contains(text, "B-TREE") {
			t.Errorf("pages are read by:\n%s\nwant %s, without sorting", text, want)
		}
	}
}

// TestMessagesAreFoundByAnIndex: explaining a message must not read all parked messages or dead letters.
func TestMessagesAreFoundByAnIndex(t *testing.T) {
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
	s := newStore(t, db, sqlite.Config{})
	plans = nil
	if _, err := held.New(s).FindParked(t.Context(), "r", "m-1"); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plans, "\n"); !strings.Contains(text, "USING INDEX postrider_parked_id (relay=? AND id=?)") {
		t.Errorf("a parked message is found by:\n%s", text)
	}
	plans = nil
	for _, err := range deadletter.New(s).ListDead(t.Context(), store.DeadFilter{MessageID: "m-1", State: store.DeadAny}, 0, 100) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if text := strings.Join(plans, "\n"); !strings.Contains(text, "USING INDEX postrider_dead_id (id=?") {
		t.Errorf("dead letters of a message are found by:\n%s", text)
	}
}

// TestMaintenanceDoesNotReadTheLog: whether there is something to do is found by indexes.
func TestMaintenanceDoesNotReadTheLog(t *testing.T) {
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
	s := newStore(t, db, sqlite.Config{})
	plans = nil
	if _, err := s.Maintain(t.Context(), store.Retention{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plans, "\n"); !strings.Contains(text, "postrider_log") || strings.Contains(text, "SCAN postrider_log") {
		t.Errorf("the log is read by:\n%s", text)
	}
}

// TestOverviewDoesNotReadTheLog: the overview of the administration counts what is not delivered by indexes.
func TestOverviewDoesNotReadTheLog(t *testing.T) {
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
	s := newStore(t, db, sqlite.Config{})
	process := store.Owner{ID: "r-1"}
	if _, err := s.Heartbeat(t.Context(), "r", process, time.Hour); err != nil {
		t.Fatal(err)
	}
	claims := []store.LeaseClaim{{Token: store.NewToken()}}
	if _, err := s.Acquire(t.Context(), "r", process, store.AcquireRequest{TTL: time.Hour, Claims: claims}); err != nil {
		t.Fatal(err)
	}
	plans = nil
	if _, err := admin.New(s, admin.Config{}).Overview(t.Context(), admin.Principal{Subject: "anna", Role: admin.Viewer}); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(plans, "\n")
	if !strings.Contains(text, "SEARCH l USING") || strings.Contains(text, "SCAN l") || strings.Contains(text, "SCAN postrider_log") {
		t.Errorf("the log is read by:\n%s", text)
	}
}
