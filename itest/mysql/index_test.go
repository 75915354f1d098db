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

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestMessagesAreFoundByAnIndex: explaining a message must not read all parked messages or dead letters.
func TestMessagesAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	d, ctx := newDatabase(t), t.Context()
	plain := d.migrated(t, nil, mysqlstore.Config{Partitions: 1})
	fillParkedAndDead(t, newStore(t, plain, mysqlstore.Config{}))
	connector, err := mysql.NewConnector(d.config.Clone())
	must(t, err)
	var queries []string
	db := sql.OpenDB(watched{connector, func(_ driver.Conn, query string) { queries = append(queries, query) }})
	t.Cleanup(func() { must(t, db.Close()) })
	s := newStore(t, db, mysqlstore.Config{})

	found, err := held.New(s).FindParked(ctx, "view", "parked-50")
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("found %d parked messages", len(found))
	}
	checkKey(ctx, t, plain, queries, "postrider_parked ", "postrider_parked_id")
	count := 0
	for _, err := range held.New(s).ListParked(ctx, "view") {
		must(t, err)
		count++
	}
	for _, err := range held.New(s).ListHeld(ctx, "view") {
		must(t, err)
		count++
	}
	if count != 200 {
		t.Fatalf("%d held keys and parked messages are listed", count)
	}
	checkPage(ctx, t, plain, queries, "postrider_parked FORCE", "postrider_parked_next")
	checkPage(ctx, t, plain, queries, "postrider_held h FORCE", "postrider_held_since")
	dead := 0
	for _, err := range deadletter.New(s).ListDead(ctx, store.DeadFilter{MessageID: "dead-50", State: store.DeadAny}, 0, 100) {
		must(t, err)
		dead++
	}
	if dead != 1 {
		t.Fatalf("found %d dead letters", dead)
	}
	checkKey(ctx, t, plain, queries, "postrider_dead ", "postrider_dead_id")
}

// fillParkedAndDead makes a consumer park and dead-letter messages.
func fillParkedAndDead(t *testing.T, s *mysqlstore.Store) {
	t.Helper()
	must(t, s.Enroll(t.Context(), "view"))
	tx, err := s.Begin(t.Context())
	must(t, err)
	var parked []store.ParkRequest
	var dead []store.ParkRequest
	for n := range 100 {
		p := &postrider.Message{ID: fmt.Sprintf("parked-%d", n), Type: "t"}
		p.FillDefaults("test", time.Now())
		parked = append(parked, store.ParkRequest{Message: p, Reason: store.ParkRetry, After: time.Hour})
		keyed := &postrider.Message{ID: fmt.Sprintf("queued-%d", n), Type: "t", Key: fmt.Sprintf("order/%d", n)}
		keyed.FillDefaults("test", time.Now())
		parked = append(parked, store.ParkRequest{Message: keyed, Reason: store.ParkRetry, After: time.Hour})
		m := &postrider.Message{ID: fmt.Sprintf("dead-%d", n), Type: "t"}
		m.FillDefaults("test", time.Now())
		dead = append(dead, store.ParkRequest{Message: m, Dead: &store.DeadRequest{Reason: "refused"}, Cause: "no"})
	}
	must(t, s.Park(t.Context(), tx, "view", parked))
	must(t, s.Park(t.Context(), tx, "view", dead))
	must(t, s.Commit(t.Context(), tx))
}

// checkKey checks that the last query of a table reads it by a key.
func checkKey(ctx context.Context, t *testing.T, db *sql.DB, queries []string, table, key string) {
	t.Helper()
	if query, plan := planOf(ctx, t, db, queries, table); !strings.Contains(plan, " key="+key+" ") {
		t.Errorf("%s\nis read by: %s", query, plan)
	}
}

// checkPage is checkKey for a page: the key has the order of the page, so that nothing is sorted.
func checkPage(ctx context.Context, t *testing.T, db *sql.DB, queries []string, table, key string) {
	t.Helper()
	checkKey(ctx, t, db, queries, table, key)
	if query, plan := planOf(ctx, t, db, queries, table); strings.Contains(plan, "filesort") {
		t.Errorf("%s\nis sorted: %s", query, plan)
	}
}

// planOf returns the last query of a table, and how the server reads it.
func planOf(ctx context.Context, t *testing.T, db *sql.DB, queries []string, table string) (query, plan string) {
	t.Helper()
	for _, q := range queries {
		if strings.HasPrefix(q, "SELECT") && strings.Contains(q, "FROM "+table) {
			query = q
		}
	}
	rows, err := db.QueryContext(ctx, "EXPLAIN "+query)
	must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	var all []string
	for rows.Next() {
		must(t, rows.Scan(dest...))
		for i, name := range columns {
			all = append(all, name+"="+values[i].String)
		}
	}
	must(t, rows.Err())
	return query, strings.Join(all, " ")
}
