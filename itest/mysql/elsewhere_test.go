package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// elsewhere starts a server with different settings from those of the other tests.
func elsewhere(t *testing.T, settings ...string) *mysql.Config {
	t.Helper()
	bin := servertest.Get(t, servertest.MariaDBBin)
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // as root, the server runs as another user
	s, err := process.StartMariaDB(t.Context(), bin, dir, settings...)
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	u, err := url.Parse(s.URL)
	must(t, err)
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
	return c
}

// TestEveryIsolationLevel: user transactions of any level publish, and late commits are found, even with a snapshot that
// is older than a change of the number of partitions.
func TestEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newDatabase(t), mysqlstore.Config{})
			var n int
			txs := make([]*sql.Tx, 3)
			for i := range txs {
				var err error
				txs[i], err = w.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				must(t, err)
				must(t, txs[i].QueryRow("SELECT COUNT(*) FROM postrider_relays").Scan(&n)) // takes a snapshot
			}
			var want []string
			for i := range txs {
				want = append(want, w.insert(txs[len(txs)-1-i], ""))
			}
			for _, tx := range txs {
				written, err := w.store.Written(t.Context(), tx, want)
				must(t, err)
				if len(written) != 1 {
					t.Errorf("a transaction has written %q, want one of %q", written, want)
				}
			}
			seen := make(map[string]bool)
			for _, tx := range txs {
				must(t, tx.Commit())
				for _, id := range w.fetch() {
					if seen[id] {
						t.Errorf("%s came twice", id)
					}
					seen[id] = true
				}
			}
			if len(seen) != len(want) {
				t.Errorf("fetched %v, want %v", seen, want)
			}
		})
	}
}

// TestOldSnapshotPublishesForTheNewPartitions: the number of partitions at the time the row is written applies.
func TestOldSnapshotPublishesForTheNewPartitions(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.migrated(t, nil, mysqlstore.Config{Partitions: 2})
	s, other := newStore(t, db, mysqlstore.Config{}), newStore(t, db, mysqlstore.Config{})
	var n int
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	must(t, err)
	must(t, tx.QueryRow("SELECT COUNT(*) FROM information_schema.tables").Scan(&n))
	exec(t, tx, "CREATE TEMPORARY TABLE mine (n INT PRIMARY KEY) ENGINE=InnoDB")
	must(t, tx.QueryRow("SELECT COUNT(*) FROM mine").Scan(&n)) // takes a snapshot without locking the store's tables
	must(t, other.Repartition(t.Context(), 31))
	for i := range 20 {
		m := &postrider.Message{ID: fmt.Sprintf("m%d", i), Type: "t", Key: fmt.Sprintf("key/%d", i)}
		m.FillDefaults("test", time.Now())
		must(t, s.Insert(t.Context(), tx, []*postrider.Message{m}))
	}
	must(t, tx.Commit())
	checkPartitions(t, db, 31)
}

// checkPartitions compares the partition of every row with postrider.PartitionOf.
func checkPartitions(t *testing.T, db *sql.DB, partitions int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT message_key, id, partition_id FROM postrider_log WHERE partition_id >= 0")
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var key, id string
		var p int
		must(t, rows.Scan(&key, &id, &p))
		if want := postrider.PartitionOf(key, id, partitions); p != want {
			t.Errorf("key %q, id %q is in partition %d, want %d", key, id, p, want)
		}
	}
	must(t, rows.Err())
}

// TestKeysAreBytes: keys that are equal in a collation are different keys, whatever the connection's character set.
func TestKeysAreBytes(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "A", "á", "a ", "a\u0301", "ä", "😀", "😁", "ß", "ss", "\t", " ", "'; DROP TABLE postrider_log; --", "\\", "?1"}
	for _, charset := range []string{"utf8mb4", "latin1"} {
		t.Run(charset, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			must(t, d.config.Apply(mysql.Charset(charset, "")))
			w := newWorld(t, d, mysqlstore.Config{})
			st := store.Settlement{Partition: 0, Token: w.lease.Token, Number: 1}
			for i, key := range keys {
				w.publish(key)
				st.Parked = append(st.Parked, store.ParkOutcome{Sequence: int64(i + 1), Key: key, FromLog: true, Reason: store.ParkRetry,
					Waits: true, Attempts: 1, Cause: "failed: " + key})
				st.Held = append(st.Held, store.HeldKey{Key: key, Sequence: int64(i + 1), Reason: store.ParkRetry, After: time.Hour})
			}
			if _, err := w.store.Settle(t.Context(), "r", []store.Settlement{st}); err != nil {
				t.Fatal(err)
			}
			for _, key := range keys {
				info, parked, err := held.New(w.store).ShowHeld(t.Context(), "r", key, 10)
				if err != nil || len(parked) != 1 || info.Key != key || parked[0].Message.Key != key || parked[0].History[0].Cause != "failed: "+key {
					t.Errorf("key %q is held as %+v with %d messages, %v", key, info, len(parked), err)
				}
			}
			checkPartitions(t, w.db, 1)
		})
	}
}

// TestTimesAreOfTheDatabase: delays are correct in sessions with any time zone.
func TestTimesAreOfTheDatabase(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.migrated(t, nil, mysqlstore.Config{Partitions: 1})
	for _, zone := range []string{"+13:00", "-12:00", "SYSTEM"} {
		s := newStore(t, d.open(t, map[string]string{"time_zone": "'" + zone + "'"}), mysqlstore.Config{})
		tx, err := s.Begin(t.Context())
		must(t, err)
		m := &postrider.Message{Type: "t", Key: zone, DeliverAfter: time.Hour}
		m.FillDefaults("test", time.Now())
		must(t, s.Insert(t.Context(), tx, []*postrider.Message{m}))
		must(t, s.Commit(t.Context(), tx))
	}
	s := newStore(t, d.open(t, nil), mysqlstore.Config{})
	batches, err := s.Fetch(t.Context(), "", store.FetchRequest{Partitions: []store.FetchPartition{{}}, Limit: 10, MaxBytes: 1 << 20})
	must(t, err)
	for _, r := range batches[0].Entries {
		if r.Delay < 59*time.Minute || r.Delay > time.Hour || time.Since(r.Message.CreatedAt).Abs() > time.Minute {
			t.Errorf("zone %s: delay %s, created at %s", r.Message.Key, r.Delay, r.Message.CreatedAt)
		}
	}
	if n := len(batches[0].Entries); n != 3 {
		t.Errorf("fetched %d messages, want 3", n)
	}
}

// TestUnsuitableServers: unsuitable servers are refused, with what to do.
func TestUnsuitableServers(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.migrated(t, nil, mysqlstore.Config{})
	var isolation, level string
	must(t, db.QueryRow("SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')").Scan(&isolation, &level))
	for words, settings := range map[string]map[string]string{
		"add STRICT_TRANS_TABLES": {"sql_mode": "''"},
		"set it to 1":             {"auto_increment_increment": "2"},
		"autocommit is off":       {"autocommit": "0"},
		"READ UNCOMMITTED":        {isolation: "'READ-UNCOMMITTED'"},
	} {
		_, err := mysqlstore.New(d.open(t, settings), mysqlstore.Config{})
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: error %v, want %q", settings, err, words)
		}
	}
	nowhere := server(t)
	_, err := mysqlstore.New(open(t, nowhere), mysqlstore.Config{})
	if err == nil || !strings.Contains(err.Error(), "name one in the DSN") {
		t.Errorf("without a database: %v", err)
	}
	exec(t, db, "ALTER TABLE postrider_held ENGINE=MyISAM")
	_, err = mysqlstore.New(db, mysqlstore.Config{})
	if err == nil || !strings.Contains(err.Error(), "postrider_held") || !strings.Contains(err.Error(), "ENGINE=InnoDB") {
		t.Errorf("with a table of MyISAM: %v", err)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// TestMessageThatIsTooLarge: the message is refused before it is sent, and the transaction can continue.
func TestMessageThatIsTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	tx := w.begin()
	m := w.message("k")
	m.Payload = make([]byte, w.count("SELECT @@max_allowed_packet"))
	wantError(t, w.store.Insert(t.Context(), tx, []*postrider.Message{m}), mysqlstore.ErrTooLarge)
	id := w.insert(tx, "k")
	must(t, tx.Commit())
	if got := w.fetch(); len(got) != 1 || got[0] != id {
		t.Errorf("fetched %q, want %s", got, id)
	}
}

func TestReadOnlyTransactionIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	tx, err := w.db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	must(t, err)
	wantError(t, w.store.Insert(t.Context(), tx, []*postrider.Message{w.message("k")}), mysqlstore.ErrReadOnly)
	must(t, tx.Rollback())
}

// TestDeadlockIsNamed: two transactions claim messages in opposite orders, one after another.
func TestDeadlockIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	one, two := w.begin(), w.begin()
	claim := func(tx *sql.Tx, id string) error {
		_, err := w.store.Claim(t.Context(), tx, "c", []store.ClaimRequest{{ID: id}})
		return err
	}
	must(t, claim(one, "a"))
	must(t, claim(two, "b"))
	done := make(chan error, 1)
	go func() { done <- claim(one, "b") }()
	err := claim(two, "a")
	if other := <-done; err == nil {
		err = other
	}
	wantError(t, err, mysqlstore.ErrDeadlock)
	must(t, w.store.Rollback(context.Background(), one))
	must(t, w.store.Rollback(context.Background(), two))
}

// deadlocked returns a transaction in which the error of a statement in a deadlock was ignored. The server has rolled
// back its earlier statements, and runs each later one in a separate transaction.
func (w *world) deadlocked() *sql.Tx {
	t := w.t
	t.Helper()
	exec(t, w.db, `CREATE TABLE accounts (id VARCHAR(10) PRIMARY KEY, n INT)`)
	exec(t, w.db, `INSERT INTO accounts VALUES ('a', 0), ('b', 0)`)
	add := func(tx *sql.Tx, id string) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE accounts SET n = n + 1 WHERE id = ?`, id)
		return err
	}
	one, two := w.begin(), w.begin()
	must(t, add(one, "a"))
	must(t, add(two, "b"))
	done := make(chan error, 1)
	go func() { done <- add(one, "b") }()
	lost, other := two, one
	if err := add(two, "a"); err == nil {
		lost, other = one, two
	}
	if <-done == nil && lost == one {
		t.Fatal("there was no deadlock")
	}
	must(t, w.store.Rollback(t.Context(), other))
	return lost
}

// TestNothingIsCommittedAfterADeadlock: a commit without an error would make a consumer acknowledge messages that were
// not processed.
func TestNothingIsCommittedAfterADeadlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	if err := w.store.Commit(t.Context(), w.deadlocked()); err == nil {
		t.Error("the commit has no error")
	}
}

func TestNothingIsSettledAfterADeadlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	w.publish("k")
	batches, err := w.store.Fetch(t.Context(), "r", store.FetchRequest{
		Partitions: []store.FetchPartition{{LeaseRef: w.lease.Ref(), After: w.at}}, Limit: 10, MaxBytes: 1 << 20,
	})
	must(t, err)
	lost := w.deadlocked()

	_, err = w.store.CommitSettled(t.Context(), lost, "r", store.Settlement{
		Partition: 0, Token: w.lease.Token, Number: 1, Cursor: batches[0].Next, Moved: true,
		Delivered: []int64{batches[0].Entries[0].Message.Sequence}, DeliveredCount: 1,
	})
	if n := w.count(`SELECT CAST(SUM(n) AS SIGNED) FROM accounts`); err == nil || n != 0 {
		t.Errorf("settled with error %v and %d effects", err, n)
	}
	if n := w.count(`SELECT delivered FROM postrider_cursors WHERE relay = 'r'`); n != 0 {
		t.Errorf("%d messages count as delivered, of which no effect was committed", n)
	}
}
