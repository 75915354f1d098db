package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/faultproxy"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// sagaWorld is a shop whose processes, broker and database server are killed.
type sagaWorld[Tx any] struct {
	*world
	open    func(ctx context.Context, url string) (sagaStores[Tx], error)
	session func(Tx) session
	// shop and cards are the URLs of the databases for stores, cardsDB has connections to the second one.
	shop, cards string
	// cut is the URL of the same database as shop through a proxy, for some of the processes.
	cut       string
	proxy     *faultproxy.Proxy
	cardsDB   *sql.DB
	broker    *process.Server
	brokerDir string

	mu        sync.Mutex
	processes map[string]*process.Process
	started   map[string]mode
}

// TestSagaCrash: engine, participants, relays, the broker and the database server are killed, processes are stopped for longer than their
// leases, and some are cut off from the database, under many sagas a second, of which 5 % are refused and 1 % time out. Each ends completed
// or compensated, with exactly the effects that belong to it.
func TestSagaCrash(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T){"A43 PostgreSQL": sagasOnPostgres, "A43 MariaDB": sagasOnMariaDB} {
		t.Run(name, test) // one after another: each keeps a small machine busy
	}
}

func sagasOnPostgres(t *testing.T) {
	p := newPostgresWorld(t)
	p.exec("create database cards")
	host := hostOf(t, p.server.URL)
	proxy := faultproxy.New(t, host, copyBothWays)
	w := &sagaWorld[pgx.Tx]{
		world: p.world, open: openSagaPostgres, session: onPostgres, proxy: proxy,
		shop: p.url, cut: strings.Replace(p.url, host, proxy.Address(), 1),
		cards: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/cards?sslmode=disable", p.cluster.Port),
	}
	w.underSagas("bigserial", "pgx", w.cards, w.cards, []fault{
		{"the database server was restarted at once", p.crash}, {"a backend of the database was killed", p.killBackend},
	})
}

func sagasOnMariaDB(t *testing.T) {
	m := newMariaWorld(t, "--log-bin=binlog", "--binlog-format=ROW")
	m.exec("create database cards")
	host := hostOf(t, m.server.URL)
	proxy := faultproxy.New(t, host, copyBothWays)
	dsn := func(host, database string) string { return "root@tcp(" + host + ")/" + database }
	w := &sagaWorld[*sql.Tx]{
		world: m.world, open: openSagaMySQL, session: onMySQL, proxy: proxy,
		shop: dsn(host, "shop"), cut: dsn(proxy.Address(), "shop"), cards: dsn(host, "cards"),
	}
	w.underSagas("bigint auto_increment", "mysql", w.cards, m.server.URL+"cards", []fault{{"the database server was killed", m.crash}})
}

// underSagas starts sagas while faults happen, and checks what they left.
func (w *sagaWorld[Tx]) underSagas(serial, driver, dsn, migrated string, faults []fault) {
	w.makeCards(serial, driver, dsn, migrated)
	w.startBroker()
	w.processes, w.started = make(map[string]*process.Process), make(map[string]mode)
	names := map[string]role{
		"engine": sagaEngine, secondEngine: sagaEngine, "wires": sagaWires, "stock": sagaStock, "cards": sagaCards, "parcels": sagaParcels,
	}
	for name := range names {
		faults = append(faults, fault{name + " was killed", func() { _ = w.process(name).Kill() }}) // it may have ended
	}
	w.supervise(names)
	faults = append(faults,
		fault{"the broker was killed", w.restartBroker}, fault{"a process was stopped for longer than its leases", w.pause},
		fault{"the second engine and the stock were cut off from the database", w.cutOff})

	s, err := w.open(w.t.Context(), w.shop)
	if err != nil {
		w.t.Fatal(err)
	}
	load, end := context.WithCancel(w.t.Context())
	defer end()
	wait := w.load(load, s)
	began, happened := time.Now(), w.hurt(loadTime(w.t, 12*time.Second), faults)
	end()
	wait()
	took := time.Since(began)
	w.t.Logf("%d sagas in %s, %.0f a second, %d faults", len(w.started), took.Round(time.Second), float64(len(w.started))/took.Seconds(), happened)
	w.calm(s)
	w.check(s)
}

// calm starts one saga after another until one completes: on a busy machine, those under faults may all run into their timeouts.
func (w *sagaWorld[Tx]) calm(s sagaStores[Tx]) {
	w.t.Helper()
	box, _, orders, err := newShop(s, w.session, testLogger(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	var o shopOrder
	w.awaitEnd("a saga has completed without faults", func() string {
		ends, err := w.ends(s)
		if err != nil {
			return err.Error()
		}
		status := ends[o.ID]
		switch status {
		case store.SagaCompleted:
			return ""
		case "", store.SagaCompensated:
			o = shopOrder{ID: postrider.NewID(), Mode: modeOf(99, 0)}
			if _, err := box.InTx(w.t.Context(), func(ctx context.Context, tx Tx) error {
				_, err := orders.Start(ctx, tx, o, saga.ID(o.ID))
				return err
			}); err != nil {
				o = shopOrder{}
				return err.Error()
			}
			w.started[o.ID] = o.Mode
		}
		return "the last one is " + string(status)
	})
}

// makeCards creates the database of the cards, and the tables of effects in both.
func (w *sagaWorld[Tx]) makeCards(serial, driver, dsn, migrated string) {
	w.t.Helper()
	var err error
	if w.cardsDB, err = sql.Open(driver, dsn); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.cardsDB.Close() })
	cards := &world{t: w.t, dir: w.dir, url: migrated, db: w.cardsDB}
	cards.makeTables(fmt.Sprintf(loadSQL, serial, "int"))
	effects := "create table saga_effects (n " + serial + " primary key, id varchar(64) not null, step varchar(32) not null, delta int not null)"
	cards.exec(effects)
	w.exec(effects)
}

func (w *sagaWorld[Tx]) startBroker() {
	w.t.Helper()
	w.brokerDir = filepath.Clean(w.t.TempDir())
	var err error
	if w.broker, err = process.StartNATS(w.t.Context(), servertest.Get(w.t, servertest.NATSBin), w.brokerDir, 0); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.broker.Kill() })
}

func (w *sagaWorld[Tx]) restartBroker() {
	w.t.Helper()
	_ = w.broker.Kill() // it may have ended
	var port int
	if _, err := fmt.Sscanf(w.broker.URL, "nats://127.0.0.1:%d", &port); err != nil {
		w.t.Fatal(err)
	}
	var err error
	if w.broker, err = process.StartNATS(w.t.Context(), servertest.Get(w.t, servertest.NATSBin), w.brokerDir, port); err != nil {
		w.t.Fatal(err)
	}
}

const secondEngine = "second engine"

// supervise runs processes until the test ends. One that ends is started again, whatever the reason: one that starts while the database
// server recovers ends by itself.
func (w *sagaWorld[Tx]) supervise(names map[string]role) {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var all, started sync.WaitGroup
	for name, r := range names {
		c := child{Role: r, URL: w.shop, Cards: w.cards, Broker: w.broker.URL}
		if name == secondEngine || r == sagaStock {
			c.URL = w.cut
		}
		started.Add(1)
		all.Go(func() { w.keepRunning(ctx, name, c, sync.OnceFunc(started.Done)) })
	}
	w.t.Cleanup(func() {
		stop()
		all.Wait()
	})
	started.Wait()
}

// keepRunning runs a process until ctx ends.
func (w *sagaWorld[Tx]) keepRunning(ctx context.Context, name string, c child, started func()) {
	for n := 0; ; n++ {
		p, err := c.start(ctx, filepath.Join(w.dir, fmt.Sprintf("%s-%d.log", name, n)), childWorks)
		if err == nil {
			w.mu.Lock()
			w.processes[name] = p
			w.mu.Unlock()
			started()
			select {
			case <-p.Done():
			case <-ctx.Done():
				_ = p.Kill()
			}
			err = errors.New(p.Tail())
		}
		if ctx.Err() != nil {
			if w.t.Failed() {
				w.t.Logf("process %d of the %s: %v", n+1, name, err)
			}
			started()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (w *sagaWorld[Tx]) process(name string) *process.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes[name]
}

// cutOff breaks the connections of some processes to the database, and lets none through for up to three seconds.
func (w *sagaWorld[Tx]) cutOff() {
	w.proxy.Sever()
	defer w.proxy.Restore()
	<-time.After(time.Duration(w.random.IntN(3000)) * time.Millisecond)
}

// pause stops a process for longer than its leases, while other faults happen.
func (w *sagaWorld[Tx]) pause() {
	names := []string{"engine", secondEngine, "wires", "stock", "cards", "parcels"}
	victim := w.process(names[w.random.IntN(len(names))])
	if victim.Signal(syscall.SIGSTOP) == nil {
		time.AfterFunc(childLeases+3*time.Second, func() { _ = victim.Signal(syscall.SIGCONT) }) // it may be replaced by then
	}
}

// check waits until all sagas have ended and everything has been delivered, and compares the instances with the effects.
func (w *sagaWorld[Tx]) check(s sagaStores[Tx]) {
	w.t.Helper()
	cards, err := w.open(w.t.Context(), w.cards)
	if err != nil {
		w.t.Fatal(err)
	}
	w.awaitSagas(s)
	w.awaitSettled(s)
	w.awaitSettled(cards)
	ends, err := w.ends(s)
	if err != nil {
		w.t.Fatal(err)
	}
	for id := range w.started {
		if ends[id] == "" {
			w.t.Errorf("a promise broke: saga %s was started and is lost", id)
		}
	}
	effects := make(map[string]map[string]effect)
	for _, db := range []*sql.DB{w.db, w.cardsDB} {
		w.readEffects(db, effects)
	}
	counts := make(map[store.SagaStatus]int)
	for id, status := range ends {
		counts[status]++
		w.checkSaga(id, status, effects[id])
		delete(effects, id)
	}
	if len(effects) > 0 {
		w.t.Errorf("a promise broke: there are effects of %d sagas that do not exist: %v", len(effects), effects)
	}
	w.t.Logf("%v", counts)
	if counts[store.SagaCompleted] == 0 || counts[store.SagaCompensated] == 0 {
		w.t.Error("want some completed and some compensated")
	}
}

// awaitSagas waits until all sagas have ended.
func (w *sagaWorld[Tx]) awaitSagas(s sagaStores[Tx]) {
	w.t.Helper()
	if !w.awaitNone("sagas have not ended", func() (open int64, err error) {
		counts, err := s.CountSagas(w.t.Context())
		for _, c := range counts {
			open += c.Count
		}
		return open, err
	}) {
		first, err := s.ListSagas(w.t.Context(), store.SagaFilter{Status: store.OpenSagaStatuses}, "", 1)
		w.t.Logf("one of them: %+v (%v)", first, err)
	}
}

// ends returns the status of each saga.
func (w *sagaWorld[Tx]) ends(s sagaStores[Tx]) (map[string]store.SagaStatus, error) {
	ends := make(map[string]store.SagaStatus)
	for after := ""; ; {
		page, err := s.ListSagas(w.t.Context(), store.SagaFilter{}, after, 1000)
		if err != nil {
			return nil, err
		}
		for _, in := range page {
			ends[in.ID], after = in.Status, in.Run
		}
		if len(page) < 1000 {
			return ends, nil
		}
	}
}

// effect is how often a step was done and undone.
type effect struct{ done, undone int }

func (w *sagaWorld[Tx]) readEffects(db *sql.DB, into map[string]map[string]effect) {
	w.t.Helper()
	rows, err := db.QueryContext(w.t.Context(), `select id, step, sum(case when delta > 0 then 1 else 0 end), sum(case when delta < 0 then 1 else 0 end)
		from saga_effects group by id, step`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, step string
		var e effect
		if err := rows.Scan(&id, &step, &e.done, &e.undone); err != nil {
			w.t.Fatal(err)
		}
		if into[id] == nil {
			into[id] = make(map[string]effect)
		}
		into[id][step] = e
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	var left int
	if err := db.QueryRowContext(w.t.Context(), "select (select sum(total) from totals) - (select coalesce(sum(delta), 0) from saga_effects where step = 'charge')").Scan(&left); err != nil {
		w.t.Fatal(err)
	}
	if left != 0 {
		w.t.Errorf("a promise broke: the totals differ from the effects by %d", left)
	}
}

// checkSaga checks the effects of a saga: each step happened once if it completed; none is left if it was compensated.
func (w *sagaWorld[Tx]) checkSaga(id string, status store.SagaStatus, effects map[string]effect) {
	w.t.Helper()
	left := 0
	switch status {
	case store.SagaCompleted:
		left = 1
	case store.SagaCompensated:
	default:
		w.t.Errorf("saga %s is %s", id, status)
		return
	}
	if m := w.started[id]; status == store.SagaCompleted && (m == declined || m == noParcel) {
		w.t.Errorf("saga %s (%s) is %s", id, m, status)
	}
	for _, step := range []string{"reserve", "charge", "book", "ship", "mail"} {
		if e := effects[step]; e.done-e.undone != left || e.done > 1 {
			w.t.Errorf("a promise broke: saga %s (%s) is %s, and step %s was done %d times and undone %d times", id, w.started[id], status, step, e.done, e.undone)
		}
	}
}
