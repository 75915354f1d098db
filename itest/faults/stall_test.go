package faults

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/itest/crash"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// settlements matches the statement of a settlement that moves a cursor and counts.
var settlements = regexp.MustCompile(`(?is)(insert into|update)\s.*postrider_cursors.*delivered`)

// stall says which settlement is held: that of the second step of an account, or of its failed first attempt.
type stall struct {
	fails   bool
	forward func(request []byte) []byte // nil: hold the whole request
}

// TestStalledSettlementPostgres: a settlement is held on its way to PostgreSQL, and executed after its repetition and
// later settlements. It has no effect. If only its end is held, the server holds the locks; the relay continues
// nevertheless.
func TestStalledSettlementPostgres(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]stall{
		"moves the cursor": {}, "parks a message": {fails: true},
		"moves the cursor, cut before its end": {forward: cutSync}, "parks a message, cut before its end": {fails: true, forward: cutSync},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPostgresWorld(t)
			proxy := newRequestProxy(t, hostOf(t, p.server.URL), readPostgres)
			// Statements are sent with their text, so that they can be recognized.
			through := strings.Replace(p.url, hostOf(t, p.server.URL), proxy.Address(), 1) + "&default_query_exec_mode=exec"
			underStall(p.world, stores[pgx.Tx](p.store(4)), onPostgres, func() store.Relay { return postgresStore(t, through, 8) }, proxy, what)
		})
	}
}

// TestStalledSettlementMariaDB: the same on MariaDB.
func TestStalledSettlementMariaDB(t *testing.T) {
	t.Parallel()
	m := newMariaWorld(t)
	proxy := newRequestProxy(t, hostOf(t, m.server.URL), readMySQL)
	through := strings.Replace(m.url, hostOf(t, m.server.URL), proxy.Address(), 1)
	underStall(m.world, stores[*sql.Tx](m.store(4)), onMySQL, func() store.Relay { return mariaStore(t, through, 8) }, proxy, stall{})
}

// cutSync removes the end of a pipeline: the server waits for it, in its transaction.
func cutSync(request []byte) []byte { return bytes.TrimSuffix(request, []byte(syncMessage)) }

func underStall[Tx any](w *world, direct stores[Tx], session func(Tx) session, through func() store.Relay, proxy *requestProxy, what stall) {
	load, plain := newLoad(w.t, direct, session, w.random), newRecorder()
	var failNext atomic.Bool
	rel := w.newRelay(through(), relay.Config{Name: "plain", LeaseTTL: shortLease})
	if err := rel.HandleFunc("step", func(ctx context.Context, m *postrider.Message) error {
		if failNext.CompareAndSwap(true, false) {
			return errors.New("the first attempt fails")
		}
		return plain.handle(ctx, m)
	}); err != nil {
		w.t.Fatal(err)
	}
	w.run(rel)
	load.step(0)
	w.awaitSettled(direct)

	held := proxy.set(&trap{is: settlements.Match, forward: what.forward, cut: true})
	failNext.Store(what.fails)
	load.step(0)
	w.awaitClosed(held.sprung, "a settlement was held back")
	began := time.Now()
	for range 3 {
		load.step(0)
	}
	facts := w.facts()
	w.awaitDelivered(plain, "plain", facts, false)
	before := w.awaitSettled(direct)["plain"]
	if took := time.Since(began).Round(10 * time.Millisecond); took > stoppedLimit {
		w.t.Errorf("everything was settled %s after the settlement was held back, want at most %s", took, stoppedLimit)
	} else {
		w.t.Logf("everything was settled %s after the settlement was held back", took)
	}
	delivered, known := len(plain.seen()), int64(len(facts))

	close(held.release)
	if what.forward == nil { // A settlement without its end is aborted with its connection, and gets no response.
		w.awaitClosed(held.answered, "the server answered the settlement that came late")
	}
	after, err := statusOf(w.t.Context(), direct)
	if err != nil {
		w.t.Fatal(err)
	}
	checkUnmoved(w.t, before, after["plain"])
	load.step(0)
	if err := rel.Stop(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	w.runHandler(direct, relay.Config{Name: "plain"}, plain) // reads the database's state
	load.step(0)
	facts = w.facts()
	w.awaitDelivered(plain, "plain", facts, false)
	w.checkCounts(w.awaitSettled(direct), len(facts), "plain")
	late := slices.DeleteFunc(plain.seen()[delivered:], func(f crash.Fact) bool { return f.Counter > known })
	if len(late) > 0 {
		w.t.Errorf("a promise broke: delivered again after the settlement that came late: %v", late)
	}
}

// checkUnmoved checks that a relay's status has not changed.
func checkUnmoved(t *testing.T, before, after store.RelayStatus) {
	t.Helper()
	if before.Delivered != after.Delivered || before.Failed != after.Failed {
		t.Errorf("a promise broke: delivered and failed went from %d, %d to %d, %d", before.Delivered, before.Failed, after.Delivered, after.Failed)
	}
	if after.Backlog.N+after.Parked.N+after.Held.N+after.Dead.N > 0 {
		t.Errorf("a promise broke: backlog %d, parked %d, held %d, dead %d, after nothing was left", after.Backlog.N, after.Parked.N, after.Held.N, after.Dead.N)
	}
	for i, p := range after.Partitions {
		if was := before.Partitions[i].Position; p.Position < was {
			t.Errorf("a promise broke: partition %d went back from position %d to %d", p.Partition, was, p.Position)
		}
	}
}

// awaitClosed waits for a one-time event.
func (w *world) awaitClosed(c <-chan struct{}, what string) {
	w.t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		w.t.Fatalf("waited %s in vain until %s", patience, what)
	}
}
