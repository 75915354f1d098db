package faults

import (
	"bytes"
	"database/sql"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/relay"
)

// stoppedLimit is the longest time that a successor may take after a process was stopped permanently. LeaseTTL plus a
// second is the goal; the rest allows for a busy machine.
const stoppedLimit = 30 * childLeases

// stoppedWorld is what the tests of permanently stopped processes need of either server.
type stoppedWorld[Tx any] struct {
	*world
	open    func(size int32) stores[Tx]
	session func(Tx) session
	proxy   *requestProxy
	// child and through are the URLs by which a child reaches the database: directly, and through the proxy.
	child, through string
	clock          string // reads the database's clock, in seconds
	backdate       string // makes the log a day older, so that there is something to remove
	// settles matches the request of a settlement that parks; settling is the part of it that is sent before the process
	// is stopped.
	settles  func(request []byte) bool
	settling func(request []byte) []byte
}

func stoppedPostgres(t *testing.T) *stoppedWorld[pgx.Tx] {
	p := newPostgresWorld(t)
	proxy := newRequestProxy(t, hostOf(t, p.server.URL), readPostgres)
	return &stoppedWorld[pgx.Tx]{
		world: p.world, open: func(size int32) stores[pgx.Tx] { return p.store(size) }, session: onPostgres, proxy: proxy,
		child:    p.url,
		through:  strings.Replace(p.url, hostOf(t, p.server.URL), proxy.Address(), 1) + "&default_query_exec_mode=exec",
		clock:    "select extract(epoch from clock_timestamp())::float8",
		backdate: "update postrider_log set created_at = created_at - interval '1 day'",
		settles:  settlements.Match,
		// The pipeline is complete except for its end: it holds its locks, and waits.
		settling: cutSync,
	}
}

func stoppedMaria(t *testing.T) *stoppedWorld[*sql.Tx] {
	m := newMariaWorld(t)
	proxy := newRequestProxy(t, hostOf(t, m.server.URL), readMySQL)
	dsn := func(host string) string { return "root@tcp(" + host + ")/shop" }
	return &stoppedWorld[*sql.Tx]{
		world: m.world, open: func(size int32) stores[*sql.Tx] { return m.store(int(size)) }, session: onMySQL, proxy: proxy,
		child: dsn(hostOf(t, m.server.URL)), through: dsn(proxy.Address()),
		clock:    "select cast(unix_timestamp(sysdate(6)) as double)",
		backdate: "update postrider_log set created_at = created_at - 86400000000",
		settles:  settlements.Match,
		// The last statement of the transaction is executed; the commit is not sent.
		settling: func(request []byte) []byte { return request },
	}
}

// TestStoppedPostgres and TestStoppedMariaDB: a process is stopped permanently, in the middle of a transaction. Its
// connections stay open. Others take over its work within the lease TTL.
func TestStoppedPostgres(t *testing.T) {
	t.Parallel()
	underStop(t, stoppedPostgres)
}

func TestStoppedMariaDB(t *testing.T) {
	t.Parallel()
	underStop(t, stoppedMaria)
}

func underStop[Tx any](t *testing.T, newWorld func(t *testing.T) *stoppedWorld[Tx]) {
	for name, test := range map[string]func(s *stoppedWorld[Tx]){
		"handler with a transaction": (*stoppedWorld[Tx]).inHandlerTx, "inbox transaction": (*stoppedWorld[Tx]).inInboxTx,
		"settlement": (*stoppedWorld[Tx]).inSettlement, "maintenance": (*stoppedWorld[Tx]).inMaintenance,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t))
		})
	}
}

func (s *stoppedWorld[Tx]) inHandlerTx() {
	load := newLoad(s.t, s.open(4), s.session, s.random)
	load.publish(accounts)
	victim := s.startChild(child{Role: inHandlerTx, URL: s.child}, childInside)
	took := s.stopwatch(victim)
	runHandlerTx(s.world, s.open(20), relay.Config{Name: "effects", LeaseTTL: childLeases}, addTotal("effects", s.session))
	s.awaitEffects("effects", s.facts())
	took("the effects were complete")
	s.checkTotals()
}

func (s *stoppedWorld[Tx]) inInboxTx() {
	broker := startNATS(s.t)
	s.runToNATS(s.open(4), relay.Config{Name: "to-nats"}, broker.URL)
	load := newLoad(s.t, s.open(4), s.session, s.random)
	load.publish(accounts)
	victim := s.startChild(child{Role: inInboxTx, URL: s.child, Broker: broker.URL}, childInside)
	took := s.stopwatch(victim)
	c, err := newConsumer(s.t.Context(), s.open(24), inbox.ConsumerConfig{
		Name: "consumer", LeaseTTL: childLeases, BackoffMax: 500 * time.Millisecond, StopTimeout: 5 * time.Second, Logger: testLogger(s.t),
	}, broker.URL, childAckWait, addTotal("consumer", s.session))
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(c)
	s.awaitEffects("consumer", s.facts())
	took("the effects were complete")
	s.checkTotals()
}

func (s *stoppedWorld[Tx]) inSettlement() {
	load := newLoad(s.t, s.open(4), s.session, s.random)
	held := s.proxy.set(&trap{is: s.settles, forward: s.settling})
	load.publish(accounts)
	victim := s.startChild(child{Role: failing, URL: s.through}, childWorks)
	s.awaitClosed(held.sprung, "a settlement was on its way")
	took := s.stopwatch(victim)
	plain := newRecorder()
	s.runHandler(s.open(10), relay.Config{Name: "plain", LeaseTTL: childLeases}, plain)
	facts := s.facts()
	s.awaitDelivered(plain, "plain", facts, false)
	took("everything was delivered")
	s.checkCounts(s.awaitSettled(s.open(2)), len(facts), "plain")
}

// inMaintenance stops maintenance at each of its statements: once at each, since it repeats those that work in portions.
func (s *stoppedWorld[Tx]) inMaintenance() {
	plain := newRecorder()
	s.runHandler(s.open(10), relay.Config{Name: "plain", LeaseTTL: childLeases}, plain)
	load := newLoad(s.t, s.open(4), s.session, s.random)
	load.publish(accounts)
	stopped := make(map[string]bool)
	for {
		s.exec(s.backdate)
		s.end = time.Time{} // each stop has its own time
		next := make(chan string, 1)
		held := s.proxy.set(&trap{is: func(request []byte) bool {
			text := maintaining(request)
			if text == "" || stopped[text] {
				return false
			}
			next <- text
			return true
		}, forward: s.settling})
		victim := s.startChild(child{Role: maintenance, URL: s.through}, childWorks)
		enough := patience
		if len(stopped) >= maintenanceStatements {
			enough = 10 * time.Second
		}
		select {
		case <-held.sprung:
		case <-time.After(enough): // there were no more statements
			s.stopMaintenance(victim)
			if len(stopped) < maintenanceStatements {
				s.t.Errorf("maintenance executed %d statements that were recognised, want at least %d", len(stopped), maintenanceStatements)
			}
			return
		}
		text := <-next
		s.t.Logf("stopped at %q", text)
		took := s.stopwatch(victim)
		load.publish(accounts)
		s.awaitDelivered(plain, "plain", s.facts(), false)
		took("everything was published and delivered")
		s.stopMaintenance(victim)
		stopped[text] = true
	}
}

// stopMaintenance ends a process and its connections.
func (s *stoppedWorld[Tx]) stopMaintenance(victim *process.Process) {
	s.t.Helper()
	if err := victim.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.proxy.Drop()
}

// maintenanceStatements is how many different ones every round of maintenance has at least, with a log that has become old.
const maintenanceStatements = 4

// statements matches maintenance statements that may take locks.
var statements = regexp.MustCompile(`(?is)\b(lock|create|alter|drop|truncate|delete|insert|update|detach|attach|setval)\b[^\x00]*?postrider[a-z_]*`)

// maintaining names the statements of a request that may take locks; it is empty if there are none.
func maintaining(request []byte) string {
	return string(bytes.Join(statements.FindAll(request, -1), []byte("; ")))
}

// stopwatch stops a process permanently, and returns a function that checks the time since then, on the database's clock.
func (s *stoppedWorld[Tx]) stopwatch(p *process.Process) (until func(what string)) {
	s.t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	now := func() (seconds float64) {
		s.t.Helper()
		if err := s.db.QueryRowContext(s.t.Context(), s.clock).Scan(&seconds); err != nil {
			s.t.Fatal(err)
		}
		return seconds
	}
	stopped := now()
	return func(what string) {
		s.t.Helper()
		took := time.Duration((now() - stopped) * float64(time.Second)).Round(10 * time.Millisecond)
		s.t.Logf("%s %s after the process was stopped", what, took)
		if took > stoppedLimit {
			s.t.Errorf("%s %s after the process was stopped, want at most %s", what, took, stoppedLimit)
		}
	}
}

// checkTotals checks the totals against the effects: nothing of an uncommitted transaction was kept.
func (s *stoppedWorld[Tx]) checkTotals() {
	s.t.Helper()
	var wrong int
	if err := s.db.QueryRowContext(s.t.Context(), `select count(*) from totals t
		where total <> (select count(*) from effects e where e.account = t.id)`).Scan(&wrong); err != nil {
		s.t.Fatal(err)
	}
	if wrong > 0 {
		s.t.Errorf("a promise broke: %d totals are not the number of effects", wrong)
	}
}
