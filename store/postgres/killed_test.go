//go:build !race

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// fault happens to a process when it sends its n-th packet: each packet is a statement or the preparation of one.
type fault struct {
	left   atomic.Int64 // packets until it happens; negative: it has happened, or nothing is to happen
	happen func(c net.Conn, packet []byte) (int, error)
}

type faultyConn struct {
	net.Conn
	fault *fault
}

func (c faultyConn) Write(p []byte) (int, error) {
	if c.fault.left.Add(-1) == 0 {
		return c.fault.happen(c.Conn, p)
	}
	return c.Conn.Write(p)
}

// faulty is a process with a pool of one connection, on which the fault happens.
func (b *bundle) faulty(t *testing.T, f *fault) *bundle {
	t.Helper()
	config, err := pgxpool.ParseConfig(withParam(t, dsn(t), "lock_timeout", "10s"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return faultyConn{c, f}, err
	}
	f.left.Store(-1)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &bundle{Store: open(t, pool, b.config), pool: pool, config: b.config}
}

var errKilled = errors.New("killed by the test")

// publishers publish all the time, each with its own key, one message per transaction, at most one in publishEvery: enough to meet every
// change of segments, while as fast as possible would take most of the test's processor time.
type publishers struct {
	stop      context.CancelFunc
	wg        sync.WaitGroup
	published [2]int
}

const publishEvery = 20 * time.Millisecond

// startPublishers fails the test if a publisher cannot publish, or has to wait for long.
func (b *bundle) startPublishers(t *testing.T) *publishers {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	p := &publishers{stop: stop}
	pool := newPool(t, withParam(t, dsn(t), "lock_timeout", "5s"), int32(len(p.published)))
	s := open(t, pool, b.config)
	for i := range p.published {
		p.wg.Go(func() {
			pace := time.NewTicker(publishEvery)
			defer pace.Stop()
			for ; ctx.Err() == nil; <-pace.C {
				m := &postrider.Message{ID: fmt.Sprintf("k%d-%d", i, p.published[i]), Topic: "t", Type: "x", Key: fmt.Sprintf("k%d", i), Source: "s",
					ContentType: "application/json", Time: time.Now()}
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return s.Insert(t.Context(), tx, []*postrider.Message{m}) })
				if err != nil {
					t.Errorf("publish: %v", err)
					return
				}
				p.published[i]++
			}
		})
	}
	t.Cleanup(p.end)
	return p
}

func (p *publishers) end() {
	p.stop()
	p.wg.Wait()
}

// TestPublishingWhileMaintenanceIsKilled kills maintenance at each of its statements in turn, in each way in which a process can
// end. No publisher notices, and a later relay delivers everything, in order per key.
func TestPublishingWhileMaintenanceIsKilled(t *testing.T) {
	t.Parallel()
	notInShort(t)
	for _, kind := range []string{"cut", "sent and cut", "terminated", "cancelled", "paused"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			publishWhileKilled(t, kind, true)
		})
	}
	for _, kind := range []string{"cut", "paused"} {
		t.Run(kind+", without relays", func(t *testing.T) {
			t.Parallel()
			publishWhileKilled(t, kind, false)
		})
	}
}

func publishWhileKilled(t *testing.T, kind string, relays bool) {
	t.Helper()
	b := setupOn(t, withParam(t, dsn(t), "lock_timeout", "10s"), postgres.Config{})
	got := make(map[string][]string)
	var leases []store.Lease
	deliver := func() int {
		if leases == nil {
			leases = b.lease(t, "r")
		}
		records := b.deliver(t, "r", leases)
		for _, r := range records {
			got[r.Message.Key] = append(got[r.Message.Key], r.Message.ID)
		}
		return len(records)
	}
	p := b.startPublishers(t)
	first, n := b.next(t)>>39, int64(1)
	for ; ; n++ {
		prepare := func() {
			if relays {
				b.nextSegment(t)
				deliver()
			}
		}
		if happened := b.killed(t, kind, n, prepare); !happened || !relays && n == 20 { // the rest is a few statements per segment
			break
		}
	}
	p.end()
	ended := b.next(t)>>39 - first
	if ended < 2 {
		t.Errorf("%d segments were ended", ended)
	}
	for deliver() > 0 {
	}
	total := 0
	for i, n := range p.published {
		key := fmt.Sprintf("k%d", i)
		if len(got[key]) != n {
			t.Errorf("key %s: %d messages were published, %d delivered", key, n, len(got[key]))
		}
		for j, id := range got[key] {
			if want := fmt.Sprintf("%s-%d", key, j); id != want {
				t.Fatalf("key %s: message %d is %s", key, j, id)
			}
		}
		total += n
	}
	t.Logf("%d faults, %d messages, %d segments were ended, %d are there", n-1, total, ended, b.segments(t))
}

// killed runs Maintain, once undisturbed and then, after prepare and with a segment to end, with a fault at the n-th packet of
// the process. It reports whether there was such a packet.
func (b *bundle) killed(t *testing.T, kind string, n int64, prepare func()) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &fault{}
	process := b.faulty(t, f)
	pid := one[int32](t, process.pool, "select pg_backend_pid()")
	paused := make(chan struct{})
	f.happen = func(c net.Conn, packet []byte) (int, error) {
		switch kind {
		case "cut":
			_ = c.Close()
			return 0, errKilled
		case "sent and cut":
			_, _ = c.Write(packet)
			_ = c.Close()
			return 0, errKilled
		case "terminated":
			if _, err := b.pool.Exec(context.WithoutCancel(ctx), "select pg_terminate_backend($1::int4, 10000)", pid); err != nil {
				t.Error(err)
			}
		case "cancelled":
			cancel()
		case "paused":
			_, _ = c.Write(packet)
			close(paused)
			<-t.Context().Done()
			return 0, errKilled
		}
		return c.Write(packet)
	}
	process.maintain(t, store.Retention{})
	prepare()
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'm', 't', 'x')", b.table("log")))
	b.exec(t, fmt.Sprintf("update %[1]s set created_at = created_at - interval '1 day' where seq in (select seq from %[1]s where seq >= $1::int8 "+
		"order by seq limit 1)", b.table("log")), b.next(t)>>39<<39)
	f.left.Store(n)
	ended := make(chan error, 1)
	go func() {
		_, err := process.Maintain(ctx, store.Retention{})
		ended <- err
	}()
	select {
	case <-paused:
		return true // the next processes run at the same time
	case err := <-ended:
		if f.left.Load() > 0 && err != nil {
			t.Errorf("maintain: %v", err)
		}
		return f.left.Load() <= 0
	}
}

// TestLongStatementKnowsItsSegments: a statement routes its rows to the segments that existed when it began.
func TestLongStatementKnowsItsSegments(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	ctx := t.Context()
	gate := b.begin(t)
	key := b.next(t) + time.Now().UnixNano()
	if _, err := gate.Exec(ctx, "select pg_advisory_xact_lock($1::int8)", key); err != nil {
		t.Fatal(err)
	}
	long := b.begin(t)
	ended := make(chan error, 1)
	go func() {
		_, err := long.Exec(ctx, fmt.Sprintf(`insert into %s (partition, id, topic, type) select 0, i::text, 't', 'x' from generate_series(1, 2) as i
			where i = 1 or pg_advisory_xact_lock(%d) is not null`, b.table("log"), key))
		ended <- err
	}()
	pid := int32(long.Conn().PgConn().PID())
	for waits := false; !waits; {
		if len(ended) > 0 {
			t.Fatal(<-ended)
		}
		waits = one[bool](t, b.pool, "select exists (select from pg_locks where not granted and pid = $1::int4)", pid)
	}
	var m store.Maintained
	for range 5 {
		b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (0, 'm', 't', 'x', now() - interval '1 day')", b.table("log")))
		m = b.maintain(t, store.Retention{})
	}
	if m.Deferred == "" {
		t.Error("nothing was deferred for a long transaction")
	}
	if err := gate.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("a long statement: %v", err)
	}
	if err := long.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	segment := b.next(t) >> 39
	b.age(t, "1 day")
	if b.maintain(t, store.Retention{}); b.next(t)>>39 == segment {
		t.Error("the segment goes on after the long transaction")
	}
}

// TestSegmentsAreCrossedWithoutMaintenance: publishers continue in the next segment when the present one has used all its
// numbers.
func TestSegmentsAreCrossedWithoutMaintenance(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1}.WithSpan(256))
	insert := fmt.Sprintf("insert into %s (partition, id, topic, type) select 0, i::text, 't', 'x' from generate_series(1, $1::int4) as i", b.table("log"))
	b.exec(t, insert, 700) // 768 is the last number
	leases := b.lease(t, "r")
	if n := b.deliverAll(t, "r", leases); n != 700 {
		t.Errorf("%d messages, want 700", n)
	}
	b.maintain(t, store.Retention{For: time.Hour})
	b.exec(t, insert, 500)
	if n := b.deliverAll(t, "r", leases); n != 500 {
		t.Errorf("%d messages, want 500", n)
	}
	b.age(t, "1 day")
	b.drop(t, store.Retention{For: time.Hour}, "log_0")
}

func TestManyMaintainAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	p := b.startPublishers(t)
	leases := b.lease(t, "r")
	for range 5 {
		b.age(t, "1 day")
		b.deliverAll(t, "r", leases)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := b.Maintain(t.Context(), store.Retention{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	p.end()
	if n := b.segments(t); n > 9 {
		t.Errorf("%d segments", n)
	}
}
