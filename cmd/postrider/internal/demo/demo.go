// Package demo demonstrates Postrider and checks it: a small shop takes orders in transactions that publish, a relay
// moves their messages to a broker, and a consumer compares what arrives with what was committed. Meanwhile the broker
// becomes unavailable, a bad deployment makes some orders fail, and the relay crashes.
package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// Store is what the demo needs of an outbox's store.
type Store interface {
	store.Relay
	store.StatusReader
	store.Records
}

// Config configures the demo.
type Config struct {
	// For is how long the shop is open: at least MinFor.
	For time.Duration
	// Store is an empty outbox, Transactions the store.Outbox for publishing, DB its database, and TablePrefix the prefix
	// of the shop's tables there.
	Store        Store
	Transactions store.Outbox[*sql.Tx]
	DB           *sql.DB
	TablePrefix  string
	// QuestionMarks says that the database uses ? for parameters, not $1.
	QuestionMarks bool
	// Shown names the store on the screen.
	Shown string
	// Publisher is the URL of a broker. Empty starts a JetStream server in this process, with its stream under Dir;
	// InProcess is a webhook with its receiver in this process.
	Publisher string
	// ShownPublisher names the broker on the screen.
	ShownPublisher string
	Dir            string
	// Name is the name of the stream, topic or queue, which must not exist: letters, digits and underscores.
	Name string

	Out io.Writer
	// Width returns the current number of terminal columns; nil when Out is not a terminal. Color enables colors.
	Width func() int
	Color bool

	// Interceptors run between the relay and the broker. Tests use them to break guarantees.
	Interceptors []relay.PublishInterceptor
	// Wait limits how long the demo waits at the end for messages in flight. Default: 30 s.
	Wait time.Duration
}

// MinFor is the shortest demo.
const MinFor = 3 * time.Second

const relayName = "demo"

// stopTimeout is how long a relay may take to stop gracefully.
const stopTimeout = 10 * time.Second

// run is a running demo.
type run struct {
	cfg     Config
	shop    *shop
	check   *checker
	broker  broker
	publish publisher
	refusal refusal
	screen  *screen
	began   time.Time

	mu    sync.Mutex
	relay *mortal
	gone  []*mortal // crashed ones
	// brokerAway and relayDown are shown on the screen.
	brokerAway, relayDown bool
}

// Run runs the demo until it is over, or until ctx ends, which closes the shop early and checks what there is. The error
// says that the demo could not run; the Findings say whether the guarantees were kept.
func Run(ctx context.Context, cfg Config) (Findings, error) {
	if cfg.For < MinFor {
		return Findings{}, fmt.Errorf("the demo needs at least %s, not %s", MinFor, cfg.For)
	}
	if cfg.Wait == 0 {
		cfg.Wait = 30 * time.Second
	}
	r := &run{cfg: cfg, check: newChecker(), screen: newScreen(cfg)}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if err := r.prepare(work); err != nil {
		return Findings{}, errors.Join(err, r.cleanUp())
	}
	findings, err := r.show(ctx, work)
	err = errors.Join(err, r.cleanUp())
	r.screen.result(findings, r.shop.orders.Load(), r.shop.rolledBack.Load(), err)
	return findings, err
}

// prepare opens the shop, the broker and the first relay.
func (r *run) prepare(ctx context.Context) error {
	box, err := outbox.New(r.cfg.Transactions, outbox.Config{Source: "postrider-demo", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("open the outbox: %w", err)
	}
	r.shop = &shop{db: r.cfg.DB, outbox: box, prefix: r.cfg.TablePrefix, questionMarks: r.cfg.QuestionMarks, check: r.check}
	if err := r.shop.open(ctx); err != nil {
		return err
	}
	b, err := openBroker(r.cfg)
	if err != nil {
		return err
	}
	r.broker = b
	dial, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := b.publisher(dial)
	if err != nil {
		return err
	}
	r.publish = p
	return r.startRelay()
}

// startRelay starts a relay as a new process would, knowing only the database.
func (r *run) startRelay() error {
	m, err := start(r.cfg.Store, relay.Config{
		Name: relayName, Publisher: r.publish, OnDead: relay.HoldKey,
		MaxAttempts: 4, BackoffBase: r.cfg.For / 50, BackoffMax: r.cfg.For / 20, LeaseTTL: r.leaseTTL(), StopTimeout: stopTimeout,
		PublishInterceptors: append([]relay.PublishInterceptor{r.refusal.intercept}, r.cfg.Interceptors...),
	})
	if err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.relay = m
	return nil
}

// leaseTTL is short, so that recovery from the crash is fast; a relay's default is 15 s.
func (r *run) leaseTTL() time.Duration {
	return min(max(r.cfg.For/10, time.Second), 2*time.Second)
}

// show runs the shop and the script, waits for messages in flight and compares.
func (r *run) show(ctx, work context.Context) (Findings, error) {
	r.began = time.Now()
	r.screen.begin(r.began)
	consuming, endConsuming := context.WithCancel(work)
	opening, closeShop := context.WithCancel(work)
	watching, endWatching := context.WithCancel(work)
	defer endWatching()
	var consumer, tills, watcher sync.WaitGroup
	var consumed, served error
	failed := make(chan struct{})
	fail := sync.OnceFunc(func() { close(failed) })
	consumer.Go(func() {
		if consumed = r.broker.consume(consuming, r.received); consumed != nil {
			fail()
		}
	})
	tills.Go(func() {
		if served = r.shop.serve(opening, 20*time.Millisecond); served != nil {
			fail()
		}
	})
	watcher.Go(func() { r.watch(watching) })

	told := r.tell(ctx, work, failed)
	closeShop()
	tills.Wait()
	undone := r.undoAll(work)
	r.screen.step("the shop closes; waiting for what is on its way")
	dead, waited := r.awaitAll(work, failed)
	ledger, read := r.shop.ledger(work)
	endWatching()
	watcher.Wait()
	endConsuming()
	consumer.Wait()
	return r.check.compare(ledger, dead), errors.Join(told, served, undone, waited, read, consumed)
}

// received passes a message to the checker. It fails if the message is not the shop's.
func (r *run) received(m *postrider.Message) error {
	f, err := factOf(m)
	if err == nil {
		r.check.receive(f)
	}
	return err
}

// awaitAll waits until the consumer has everything that was committed and not dead-lettered, or cfg.Wait has passed; what
// is missing then is lost. After a failure it does not wait. It returns the message IDs of the dead letters.
func (r *run) awaitAll(ctx context.Context, failed <-chan struct{}) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Wait)
	defer cancel()
	for {
		dead, err := r.deadLetters(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		committed, err := r.shop.committed(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		if r.check.tally().Received+int64(len(dead)) >= committed {
			return dead, nil
		}
		select {
		case <-ctx.Done():
			return dead, nil
		case <-failed:
			return dead, nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// deadLetters returns the message IDs of the open dead letters.
func (r *run) deadLetters(ctx context.Context) (map[string]bool, error) {
	ids := map[string]bool{}
	for l, err := range deadletter.New(r.cfg.Store).ListDead(ctx, store.DeadFilter{Relay: relayName}, 0, 0) {
		if err != nil {
			return nil, fmt.Errorf("read the dead letters: %w", err)
		}
		ids[l.Message.ID] = true
	}
	return ids, nil
}

// watch updates the screen until ctx ends.
func (r *run) watch(ctx context.Context) {
	tick := time.NewTicker(r.screen.interval())
	defer tick.Stop()
	for {
		r.screen.draw(r.figures(ctx))
		select {
		case <-ctx.Done():
			r.screen.draw(r.figures(context.WithoutCancel(ctx)))
			return
		case <-tick.C:
		}
	}
}

// figures reads what the screen shows: committed messages from the database, received messages and errors from the
// consumer, the rest from the store's status.
func (r *run) figures(ctx context.Context) figures {
	f := figures{
		elapsed: time.Since(r.began), tally: r.check.tally(), orders: r.shop.orders.Load(), rolledBack: r.shop.rolledBack.Load(),
	}
	r.mu.Lock()
	f.brokerAway, f.relayDown = r.brokerAway, r.relayDown
	r.mu.Unlock()
	f.committed, f.err = r.shop.committed(ctx)
	if status, err := r.cfg.Store.Status(ctx); err != nil {
		f.err = err
	} else if len(status.Relays) > 0 {
		f.status = status.Relays[0]
	}
	return f
}

// cleanUp stops everything that prepare and the script started.
func (r *run) cleanUp() error {
	var errs []error
	r.mu.Lock()
	relays := r.gone
	if r.relay != nil {
		relays = append(relays, r.relay)
	}
	r.mu.Unlock()
	for _, m := range relays {
		errs = append(errs, m.stop(2*stopTimeout))
	}
	if r.publish != nil {
		errs = append(errs, r.publish.Close())
	}
	if r.broker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		errs = append(errs, r.broker.end(ctx))
	}
	return errors.Join(errs...)
}
