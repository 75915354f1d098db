package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// world is a store with a process of a relay that reads one partition.
type world struct {
	t     testing.TB
	db    *sql.DB
	store *mysqlstore.Store
	lease store.Lease
	at    store.Cursor
	made  int
}

var owner = store.Owner{ID: "a", Host: "h", Version: "test"}

// claim returns a request for the lease of partition 0.
func claim(ttl time.Duration) store.AcquireRequest {
	return store.AcquireRequest{Claims: []store.LeaseClaim{{Partition: 0, Token: store.NewToken()}}, TTL: ttl}
}

func newWorld(t testing.TB, d database, cfg mysqlstore.Config) *world {
	t.Helper()
	cfg.Partitions = 1
	w := &world{t: t, db: d.migrated(t, nil, cfg)}
	w.store = newStore(t, w.db, cfg)
	leases, err := w.store.Acquire(t.Context(), "r", owner, claim(time.Hour))
	must(t, err)
	w.lease, w.at = leases[0], leases[0].Cursor
	return w
}

func (w *world) message(key string) *postrider.Message {
	w.made++
	m := &postrider.Message{ID: fmt.Sprintf("m%d", w.made), Type: "t", Key: key, Payload: []byte("{}")}
	m.FillDefaults("test", time.Now())
	return m
}

func (w *world) begin() *sql.Tx {
	w.t.Helper()
	tx, err := w.store.Begin(w.t.Context())
	must(w.t, err)
	return tx
}

// insert publishes one message and returns its ID.
func (w *world) insert(tx *sql.Tx, key string) string {
	w.t.Helper()
	m := w.message(key)
	must(w.t, w.store.Insert(w.t.Context(), tx, []*postrider.Message{m}))
	return m.ID
}

// publish publishes one message in its own transaction.
func (w *world) publish(key string) string {
	w.t.Helper()
	tx := w.begin()
	id := w.insert(tx, key)
	must(w.t, tx.Commit())
	return id
}

// fetch reads the next messages once and returns the IDs.
func (w *world) fetch() (ids []string) {
	w.t.Helper()
	batches, err := w.store.Fetch(w.t.Context(), "r", store.FetchRequest{
		Partitions: []store.FetchPartition{{LeaseRef: w.lease.Ref(), After: w.at}}, Limit: 1000, MaxBytes: 16 << 20,
	})
	must(w.t, err)
	for _, b := range batches {
		w.at = b.Next
		for _, r := range b.Entries {
			ids = append(ids, r.Message.ID)
		}
	}
	return ids
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	must(w.t, w.db.QueryRowContext(w.t.Context(), query, args...).Scan(&n))
	return n
}

// until waits for a condition.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within five minutes", what)
		}
		<-tick.C
	}
}

const closed = "SELECT COUNT(*) FROM postrider_log WHERE partition_id = -1"

// TestGapsAreClosed: gaps of rolled-back transactions are closed and removed; gaps of open transactions stay missing,
// however long, and are delivered when committed.
func TestGapsAreClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{CloseGapAfter: 20 * time.Millisecond})
	gone, open := w.begin(), w.begin()
	for range 3 {
		w.insert(gone, "x")
	}
	w.publish("between")
	late := []string{w.insert(open, "slow"), w.insert(open, "slow")}
	w.publish("y")
	if got := w.fetch(); len(got) != 2 {
		t.Fatalf("fetched %q while two transactions are open, want two messages", got)
	}
	must(t, gone.Rollback())
	w.until("what was rolled back is closed", func() bool {
		if got := w.fetch(); got != nil {
			t.Fatalf("fetched %q, want nothing", got)
		}
		return w.count(closed) == 3
	})
	for range 20 { // the gap of the open transaction is checked repeatedly
		w.fetch()
		<-time.After(2 * time.Millisecond)
	}
	if n := w.count(closed); n != 3 {
		t.Fatalf("%d sequences are closed, want the 3 that were rolled back", n)
	}
	must(t, open.Commit())
	if got := fmt.Sprint(w.fetch()); got != fmt.Sprint(late) {
		t.Errorf("fetched %s after the commit, want %s", got, late)
	}
	if w.at.Snapshot != "" {
		t.Errorf("%q is still missing, although everything is there", w.at.Snapshot)
	}
}

// TestBacklogWithRollbacksIsClosedAtOnce: gaps that are already old when first seen do not accumulate in the cursors.
func TestBacklogWithRollbacksIsClosedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{CloseGapAfter: time.Millisecond})
	want := 0
	for i := range 90 {
		tx := w.begin()
		w.insert(tx, "k")
		if i%3 == 0 {
			must(t, tx.Rollback())
			continue
		}
		must(t, tx.Commit())
		want++
	}
	<-time.After(5 * time.Millisecond)
	got := len(w.fetch())
	if got != want || w.at.Snapshot != "" {
		t.Errorf("fetched %d of %d, and %q is remembered as missing, want nothing", got, want, w.at.Snapshot)
	}
	if got := w.fetch(); got != nil {
		t.Errorf("fetched %q again", got)
	}
}

// TestManyGapsHoldNobodyUp: an open transaction that has published here and there among others does not delay those, and
// its own messages arrive in order.
func TestManyGapsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{CloseGapAfter: time.Millisecond})
	open := w.begin()
	var late, others, got []string
	for range 150 {
		late = append(late, w.insert(open, "slow"))
		for range 4 {
			others = append(others, w.publish("quick"))
		}
		if len(late)%10 == 0 {
			got = append(got, w.fetch()...)
		}
	}
	got = append(got, w.fetch()...)
	if fmt.Sprint(got) != fmt.Sprint(others) {
		t.Fatalf("fetched %d messages while a transaction is open, want the %d of others in order", len(got), len(others))
	}
	must(t, open.Commit())
	if got := w.fetch(); fmt.Sprint(got) != fmt.Sprint(late) {
		t.Errorf("fetched %d messages after the commit, want %d in order", len(got), len(late))
	}
}

// blockSecond blocks the second row of an INSERT, after its sequence was taken, until the returned function is called.
func (w *world) blockSecond(ctx context.Context) (release func()) {
	w.t.Helper()
	name := w.message("").ID + "-" + postrider.NewID()
	exec(w.t, w.db, `CREATE TRIGGER block BEFORE INSERT ON postrider_log FOR EACH ROW
		IF NEW.subject = 'second' THEN SET @locked = GET_LOCK('`+name+`', 60); DO RELEASE_LOCK('`+name+`'); END IF`)
	conn, err := w.db.Conn(ctx)
	must(w.t, err)
	_, err = conn.ExecContext(ctx, "SELECT GET_LOCK('"+name+"', 60)")
	must(w.t, err)
	return func() {
		_, err := conn.ExecContext(ctx, "SELECT RELEASE_LOCK('"+name+"')")
		must(w.t, err)
		must(w.t, conn.Close())
	}
}

// TestInsertWhoseSequenceWasClosedTakesAnother: a sequence that was closed after it was taken and before its row was
// written is abandoned, and nothing is lost.
func TestInsertWhoseSequenceWasClosedTakesAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	w.publish("before")
	release := w.blockSecond(t.Context())
	first, second := w.message("k"), w.message("k")
	second.Subject = "second"
	done := make(chan error, 1)
	tx := w.begin()
	go func() { done <- w.store.Insert(context.Background(), tx, []*postrider.Message{first, second}) }()
	w.until("the second row waits", func() bool {
		return w.count("SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()") > 0
	})
	// Sequences 2 and 3 are taken, 2 is written. Another process closes 3.
	exec(t, w.db, `INSERT INTO postrider_log (seq, partition_id, id, topic, type, message_time, headers, payload, created_at)
		VALUES (3, -1, '', '', '', 0, '', '', 0)`)
	release()
	must(t, <-done)
	must(t, tx.Commit())
	if got, want := fmt.Sprint(w.fetch()), fmt.Sprint([]string{"m1", first.ID, second.ID}); got != want {
		t.Errorf("fetched %s, want %s", got, want)
	}
}

// TestWhoeverIsWritingIsLeftAlone: a writer that has taken a sequence and not written it prevents its whole INSERT from
// being closed, since the row before is its own.
func TestWhoeverIsWritingIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{CloseGapAfter: time.Millisecond})
	release := w.blockSecond(t.Context())
	first, second := w.message("k"), w.message("k")
	second.Subject = "second"
	done := make(chan error, 1)
	tx := w.begin()
	go func() { done <- w.store.Insert(context.Background(), tx, []*postrider.Message{first, second}) }()
	w.until("the second row waits", func() bool {
		return w.count("SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()") > 0
	})
	w.publish("other")
	for range 20 {
		w.fetch()
		<-time.After(2 * time.Millisecond)
	}
	if n := w.count(closed); n != 0 {
		t.Errorf("%d sequences of a writer at work were closed", n)
	}
	release()
	must(t, <-done)
	must(t, tx.Commit())
	if got, want := fmt.Sprint(w.fetch()), fmt.Sprint([]string{first.ID, second.ID}); got != want {
		t.Errorf("fetched %s, want %s", got, want)
	}
}

// TestDroppingWaitsForNobody: the row after those removed belongs to an open transaction.
func TestDroppingWaitsForNobody(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	w := newWorld(t, d, mysqlstore.Config{})
	for range 3 {
		w.publish("k")
	}
	open := w.begin()
	w.insert(open, "slow")
	w.publish("k")
	w.fetch()
	_, err := w.store.Settle(t.Context(), "r", []store.Settlement{{Partition: 0, Token: w.lease.Token, Number: 1, Cursor: w.at, Moved: true}})
	must(t, err)
	impatient := newStore(t, d.open(t, map[string]string{"innodb_lock_wait_timeout": "1"}), mysqlstore.Config{})
	m, err := impatient.Maintain(t.Context(), store.Retention{})
	if err != nil || m.Dropped != 3 || m.Deferred != "" {
		t.Errorf("maintained %+v, %v; want the 3 messages before the open transaction dropped", m, err)
	}
	must(t, open.Commit())
}

// TestParkingWaitsForNobody: consumers draw sequences concurrently.
func TestParkingWaitsForNobody(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.migrated(t, nil, mysqlstore.Config{})
	s := newStore(t, d.open(t, map[string]string{"innodb_lock_wait_timeout": "1"}), mysqlstore.Config{})
	park := func(ids ...string) *sql.Tx {
		t.Helper()
		tx, err := s.Begin(t.Context())
		must(t, err)
		var parked []store.ParkRequest
		for _, id := range ids {
			m := &postrider.Message{ID: id, Type: "t"}
			m.FillDefaults("test", time.Now())
			parked = append(parked, store.ParkRequest{Message: m, Reason: store.ParkRetry})
		}
		must(t, s.Park(t.Context(), tx, "c", parked))
		return tx
	}
	// Sequences 1 and 2 are free again, so they are the first rows after each of the two.
	must(t, s.Commit(t.Context(), park("a", "b")))
	one, other, third := park("c", "d"), park("e", "f"), park("g")
	for _, tx := range []*sql.Tx{third, one, other} {
		must(t, s.Commit(t.Context(), tx))
	}
}
