package shopdemo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/postrider/postrider/examples/shop"
)

// readyTimeout is how long a service may take to start, to answer or to stop.
const readyTimeout = patience

// member is a service of the running shop.
type member interface {
	// start starts it and waits until it answers. stop ends it in good order, kill at once.
	start(ctx context.Context) error
	stop() error
	kill() error
	// address is that of its HTTP server: the same after each start.
	address() string
	// configure changes the settings for the next start.
	configure(change func(*Settings))
}

// inside is a service in this process.
type inside struct {
	settings Settings
	db       database
	cancel   context.CancelFunc
	ended    chan error
}

func (m *inside) address() string { return m.settings.Listen }

func (m *inside) configure(change func(*Settings)) { change(&m.settings) }

func (m *inside) start(ctx context.Context) error {
	logger := slog.New(slog.DiscardHandler)
	broker, err := siteOf(m.settings.Publisher, m.settings.Stream, logger)
	if err != nil {
		return err
	}
	s, err := shop.Open(ctx, m.settings.Service, m.settings.service(m.db.Database, broker, logger))
	if err != nil {
		return err
	}
	var run context.Context
	run, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.ended = make(chan error, 1)
	go func() { m.ended <- errors.Join(s.Run(run), s.Close()) }()
	return nil
}

func (m *inside) stop() error {
	if m.cancel == nil {
		return nil
	}
	m.cancel()
	m.cancel = nil
	return <-m.ended
}

func (m *inside) kill() error {
	return errors.New("a service in this process cannot be killed: run the shop with --processes")
}

// process is a service as a process of its own.
type process struct {
	settings Settings
	command  func(Settings) (program string, args []string)
	log      string

	cmd   *exec.Cmd
	ended chan error
}

func (m *process) address() string { return m.settings.Listen }

func (m *process) configure(change func(*Settings)) { change(&m.settings) }

func (m *process) start(ctx context.Context) error {
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", m.settings.Service, err)
	}
	defer log.Close()
	program, args := m.command(m.settings)
	m.cmd = exec.Command(program, args...) //nolint:gosec // the program itself
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if _, err := m.cmd.StdinPipe(); err != nil { // nothing is written: the service ends with this process, which closes it
		return fmt.Errorf("start %s: %w", m.settings.Service, err)
	}
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.settings.Service, err)
	}
	m.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(m.cmd, m.ended)
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if m.answers(ctx) {
			return nil
		}
		select {
		case err := <-m.ended:
			m.cmd = nil
			return fmt.Errorf("%s ended while it started: %w; its log is %s", m.settings.Service, err, m.log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w; its log is %s", m.settings.Service, ctx.Err(), m.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// answers reports whether the service answers: it does when all of it is open.
func (m *process) answers(ctx context.Context) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.settings.Listen, nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil
}

func (m *process) stop() error { return m.end(syscall.SIGTERM) }

func (m *process) kill() error {
	_ = m.end(syscall.SIGKILL) // its exit code says that it was killed
	return nil
}

func (m *process) end(signal os.Signal) error {
	if m.cmd == nil {
		return nil
	}
	cmd := m.cmd
	m.cmd = nil
	if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", m.settings.Service, err)
	}
	select {
	case err := <-m.ended:
		return err
	case <-time.After(readyTimeout):
		return errors.Join(fmt.Errorf("%s did not end within %s", m.settings.Service, readyTimeout), cmd.Process.Kill())
	}
}

// world is the running shop.
type world struct {
	cfg     Config
	joining sync.RWMutex // of members
	members map[string]member
	dbs     map[string]database
	broker  func() // stops the broker of this process
	// others: the broker is a server of others, on which nothing may stay.
	others bool
	ledger *shop.Ledger
	// checking serializes the use of the ledger.
	checking sync.Mutex
	http     *http.Client
}

// open opens databases and broker, and starts all services.
func open(ctx context.Context, cfg Config) (w *world, err error) {
	w = &world{
		cfg: cfg, members: make(map[string]member), dbs: make(map[string]database), broker: func() {}, others: cfg.Publisher != "",
		http: &http.Client{Timeout: readyTimeout},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if cfg.Publisher == "" {
		if w.cfg.Publisher, w.broker, err = shop.StartJetStream(filepath.Join(cfg.Dir, "jetstream"), 0); err != nil {
			return w, err
		}
	}
	for i, name := range shop.Names {
		settings, err := w.settings(i, name)
		if err != nil {
			return w, err
		}
		if w.dbs[name], err = w.database(ctx, name, settings.Store); err != nil {
			return w, err
		}
		w.members[name] = w.member(settings, w.dbs[name])
	}
	for _, name := range shop.Names {
		if err := w.members[name].start(ctx); err != nil {
			return w, err
		}
	}
	w.ledger = &shop.Ledger{
		Orders: w.dbs["orders"].DB, Inventory: w.dbs["inventory"].DB, Payments: w.dbs["payments"].DB, Shipping: w.dbs["shipping"].DB,
		Sagas: w.dbs["orders"],
	}
	return w, nil
}

// join starts a service that is not one of the four. Its database is new.
func (w *world) join(ctx context.Context, name, database string) error {
	settings, err := w.settings(len(w.members), name)
	if err == nil {
		settings.Store, err = w.cfg.storeOf(database)
	}
	if err != nil {
		return err
	}
	if w.dbs[database], err = w.database(ctx, database, settings.Store); err != nil {
		return err
	}
	m := w.member(settings, w.dbs[database])
	w.joining.Lock()
	w.members[name] = m
	w.joining.Unlock()
	return m.start(ctx)
}

// service returns a service that runs.
func (w *world) service(name string) member {
	w.joining.RLock()
	defer w.joining.RUnlock()
	return w.members[name]
}

// database creates and opens the database of a service.
func (w *world) database(ctx context.Context, name, store string) (database, error) {
	if w.cfg.Store != "" {
		if err := createSchema(ctx, w.cfg.Store, w.cfg.schema(name)); err != nil {
			return database{}, err
		}
	}
	return openDatabase(ctx, store)
}

// member is a service of the kind that is configured.
func (w *world) member(s Settings, db database) member {
	if w.cfg.Processes {
		return &process{settings: s, command: w.cfg.Command, log: filepath.Join(w.cfg.Dir, s.Service+".log")}
	}
	return &inside{settings: s, db: db}
}

// settings are those of a service.
func (w *world) settings(i int, name string) (s Settings, err error) {
	s = Settings{
		Service: name, Publisher: w.cfg.Publisher, Stream: w.cfg.Name, Seed: w.cfg.Seed, Faults: w.cfg.Faults,
		Compensate: w.cfg.Compensate, Limits: w.cfg.Limits,
		Listen: fmt.Sprintf("127.0.0.1:%d", w.cfg.Port+i),
	}
	if w.cfg.Port == 0 {
		if s.Listen, err = freeAddress(); err != nil {
			return s, err
		}
	}
	s.Store, err = w.cfg.storeOf(name)
	return s, err
}

// freeAddress returns an address that stays the same after a restart. Its port is below those that systems give to connections, any of
// which could have it by then.
func freeAddress() (string, error) {
	const from, ports, tries = 10_000, 20_000, 100
	var err error
	for range tries {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", from+rand.IntN(ports))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", err
}

// close ends everything.
func (w *world) close() error {
	var errs []error
	for _, m := range w.members {
		errs = append(errs, m.stop())
	}
	removing, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	errs = append(errs, w.remove(removing))
	for _, db := range w.dbs {
		if db.close != nil {
			db.close()
		}
	}
	w.broker()
	return errors.Join(errs...)
}

// check checks the ledger.
func (w *world) check(ctx context.Context) (shop.Tally, error) {
	w.checking.Lock()
	defer w.checking.Unlock()
	return w.ledger.Check(ctx)
}

// settle waits until no order is open, as long as orders become final, and checks the sums over all orders.
func (w *world) settle(ctx context.Context) (shop.Tally, error) {
	for final, since := 0, time.Now(); ; {
		tally, err := w.check(ctx)
		if err != nil {
			return tally, err
		}
		if n := tally.Shipped + tally.Cancelled; n > final {
			final, since = n, time.Now()
		}
		if tally.Open == 0 || time.Since(since) > patience {
			break
		}
		select {
		case <-ctx.Done():
			return tally, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	w.checking.Lock()
	defer w.checking.Unlock()
	return w.ledger.Totals(ctx)
}
