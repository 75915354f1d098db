package faults

import (
	"context"
	"database/sql"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/faultproxy"
)

// TestFailoverPostgres: a standby that lags by seconds is promoted under running relays. Every message that the new
// primary has committed is delivered, in order per key. Messages that only the old one had may have been delivered.
func TestFailoverPostgres(t *testing.T) {
	t.Parallel()
	for name, quiet := range failovers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPostgresWorld(t)
			s := p.startStandby()
			p.url = p.bothURL(s)
			p.reopen()
			underFailover(p.world, func(size int32) stores[pgx.Tx] { return p.store(size) }, onPostgres, quiet,
				func() { p.lag(s) }, func() { p.failOver(s) })
		})
	}
}

// failovers says whether the failover is quiet: the relays have delivered everything, or are still delivering.
var failovers = map[string]bool{"while messages are delivered": false, "after everything was delivered": true}

// TestFailoverMariaDB: the same with a MariaDB replica; all clients connect through a proxy that is redirected.
func TestFailoverMariaDB(t *testing.T) {
	t.Parallel()
	for name, quiet := range failovers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMariaWorld(t, "--log-bin=binlog", "--server-id=1", "--binlog-format=ROW")
			proxy := faultproxy.New(t, hostOf(t, m.server.URL), copyBothWays)
			replica := m.startReplica()
			m.url = "mysql://root@" + proxy.Address() + "/shop"
			m.reopen()
			underFailover(m.world, func(size int32) stores[*sql.Tx] { return m.store(int(size)) }, onMySQL, quiet,
				func() { m.lag(replica) },
				func() {
					m.kill()
					m.promote(replica)
					proxy.Redirect(hostOf(t, replica.URL))
					proxy.Drop()
				})
		})
	}
}

// underFailover runs relays while a standby falls behind for some seconds and then takes over, and checks what arrived.
func underFailover[Tx any](w *world, open func(size int32) stores[Tx], session func(Tx) session, quiet bool,
	lag, failOver func()) {
	plain, hooks := startPairs(w, open, session)
	load := newLoad(w.t, open(10), session, w.random)
	stopOperator := w.operate()
	defer stopOperator()
	third := loadTime(w.t, 9*time.Second) / 3
	publish := func() (stop func()) {
		during, cancel := context.WithCancel(w.t.Context())
		ended := load.during(during)
		return sync.OnceFunc(func() { cancel(); ended() })
	}
	stop := publish()
	<-time.After(third)
	lag()
	<-time.After(third)
	if quiet {
		stop()
		w.awaitSettled(open(2))
		w.end = time.Time{}
	}
	before := len(w.facts())
	failOver()
	after := len(w.facts())
	if quiet {
		stop = publish()
	}
	<-time.After(third)
	stop()

	facts := w.facts()
	w.t.Logf("%d steps; %d before and %d after the failover", len(facts), before, after)
	if after >= before || len(facts) <= after {
		w.t.Error("the standby did not lag, or nothing was published after the failover")
	}
	w.awaitEffects("effects", facts)
	w.awaitDelivered(plain, "plain", facts, true)
	w.awaitDelivered(hooks, "hooks", facts, true)
	w.checkCounts(w.awaitSettled(open(2)), len(facts), "plain", "effects", "hooks")
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
