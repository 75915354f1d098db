//go:build !race

package mysql_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// counted settles one partition and counts the statements that it takes.
type counted struct {
	*mysqlstore.Store
	t          *testing.T
	lease      store.Lease
	number     int64
	statements int
}

func newCounted(t *testing.T) *counted {
	t.Helper()
	d := newDatabase(t)
	d.migrated(t, nil, mysqlstore.Config{Partitions: 1})
	connector, err := mysql.NewConnector(d.config.Clone())
	must(t, err)
	c := &counted{t: t}
	db := sql.OpenDB(watched{connector, func(driver.Conn, string) { c.statements++ }})
	t.Cleanup(func() { must(t, db.Close()) })
	c.Store = newStore(t, db, mysqlstore.Config{})
	c.lease, _ = acquire(t, c.Store, "a", time.Hour, false)
	c.number = c.lease.Settled
	return c
}

// pairs publishes two messages for each of n keys, and reads them.
func (c *counted) pairs(n int) store.Batch {
	c.t.Helper()
	var msgs []*postrider.Message
	for i := range 2 * n {
		m := &postrider.Message{ID: fmt.Sprint(i), Type: "t", Key: fmt.Sprintf("order/%03d", i/2)}
		m.FillDefaults("test", time.Now())
		msgs = append(msgs, m)
	}
	tx, err := c.Begin(c.t.Context())
	must(c.t, err)
	must(c.t, c.Insert(c.t.Context(), tx, msgs))
	must(c.t, c.Commit(c.t.Context(), tx))
	batches, err := c.Fetch(c.t.Context(), "r", store.FetchRequest{
		Partitions: []store.FetchPartition{{LeaseRef: c.lease.Ref(), After: c.lease.Cursor}}, Limit: 2 * n, MaxBytes: 64 << 20})
	must(c.t, err)
	return batches[0]
}

func (c *counted) settle(st store.Settlement) (released []string) {
	c.t.Helper()
	c.number++
	st.Partition, st.Token, st.Number = c.lease.Partition, c.lease.Token, c.number
	c.statements = 0
	out, err := c.Settle(c.t.Context(), "r", []store.Settlement{st})
	must(c.t, err)
	if len(out.Lost)+len(out.Failed) > 0 {
		c.t.Fatalf("settle: %+v", out)
	}
	const most = 30
	if c.statements > most {
		c.t.Errorf("a settlement takes %d statements, want at most %d", c.statements, most)
	}
	return out.Released
}

// TestStatementsOfASettlement: the lease is locked while a settlement is applied, each statement is a round trip, and a settlement that
// takes longer than the lease can never be applied. So it takes few statements, whatever the number of its messages and keys.
func TestStatementsOfASettlement(t *testing.T) {
	t.Parallel()
	const keys = 600
	c := newCounted(t)
	batch := c.pairs(keys)
	var park, again, last store.Settlement
	for i, e := range batch.Entries {
		seq, key := e.Message.Sequence, e.Message.Key
		pk := store.ParkOutcome{Sequence: seq, Key: key, FromLog: true, Reason: store.ParkRetry, Waits: true, Attempts: 1}
		park.Parked = append(park.Parked, pk)
		if i%2 != 0 {
			continue
		}
		park.Held = append(park.Held, store.HeldKey{Key: key, Sequence: seq, Reason: pk.Reason, Attempts: 1, After: time.Hour})
		pk.FromLog, pk.Attempts, pk.Cause = false, 2, "again"
		again.Parked = append(again.Parked, pk)
		again.Held = append(again.Held, store.HeldKey{Key: key, Sequence: seq, Reason: pk.Reason, Attempts: 2, Cause: pk.Cause, After: time.Hour})
		last.Dead = append(last.Dead, store.DeadOutcome{Sequence: seq, Key: key, Reason: "rejected", Attempts: 3, Cause: "the last time"})
		last.Release = append(last.Release, key)
	}
	park.Cursor, park.Moved = batch.Next, true
	c.settle(park)
	c.settle(again)
	if released := c.settle(last); len(released) > 0 {
		t.Errorf("%d keys with queued messages are released", len(released))
	}

	due := store.DueRequest{Leases: []store.LeaseRef{c.lease.Ref()}, Runs: 2 * keys, RunLength: 10, MaxBytes: 64 << 20}
	res, err := c.Due(t.Context(), "r", due)
	must(t, err)
	end := store.Settlement{Release: last.Release}
	for _, run := range res.Runs {
		if len(run.Entries) != 1 || run.Entries[0].Attempts != 1 {
			t.Fatalf("due of key %s: %+v, want its second message after one attempt", run.Key, run.Entries)
		}
		end.Removed = append(end.Removed, run.Entries[0].Message.Sequence)
	}
	released := c.settle(end)
	st, err := c.Status(t.Context())
	must(t, err)
	if r := st.Relays[0]; len(released) != keys || r.Held.N+r.Parked.N != 0 || r.Dead.N != keys {
		t.Errorf("%d keys released, %d held, %d messages parked, %d dead letters; want %[5]d, 0, 0, %[5]d",
			len(released), r.Held.N, r.Parked.N, r.Dead.N, keys)
	}
}

// TestSettlementThatCannotBeAppliedNow: other partitions are settled meanwhile. It has not been refused, since it may be applied later.
func TestSettlementThatCannotBeAppliedNow(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	admin := d.migrated(t, nil, mysqlstore.Config{Partitions: 2})
	cfg := d.config.Clone()
	cfg.Params = map[string]string{"max_statement_time": "2"} // of MariaDB; a lock is waited for longer
	connector, err := mysql.NewConnector(cfg)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { must(t, db.Close()) })
	s := newStore(t, db, mysqlstore.Config{})
	owner := store.Owner{ID: "a"}
	_, err = s.Heartbeat(t.Context(), "r", owner, time.Hour)
	must(t, err)
	leases, err := s.Acquire(t.Context(), "r", owner, store.AcquireRequest{
		Claims: []store.LeaseClaim{{Partition: 0, Token: store.NewToken()}, {Partition: 1, Token: store.NewToken()}}, TTL: time.Hour})
	must(t, err)
	settle := func() store.Settled {
		t.Helper()
		var all []store.Settlement
		for _, l := range leases {
			st := settlement(l, l.Settled+1)
			st.Unrouted = []store.UnroutedCount{{Topic: "nobody", Count: 1}}
			all = append(all, st)
		}
		out, err := s.Settle(t.Context(), "r", all)
		must(t, err)
		return out
	}
	if out := settle(); len(out.Failed)+len(out.Lost) > 0 {
		t.Fatalf("%+v", out)
	}
	for i := range leases {
		leases[i].Settled++
	}
	tx, err := admin.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM postrider_unrouted WHERE relay = 'r' AND topic = 'nobody' AND partition_id = 0 FOR UPDATE")
	must(t, err)
	out := settle()
	must(t, tx.Rollback())
	if err := out.Failed[0]; !errors.Is(err, store.ErrPassing) || len(out.Failed) != 1 || len(out.Lost) > 0 {
		t.Fatalf("while a row of partition 0 is locked: %+v", out)
	}
	if out := settle(); len(out.Failed)+len(out.Lost) > 0 {
		t.Errorf("afterwards, repeated: %+v", out)
	}
}
