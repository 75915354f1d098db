package relay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/internal/handlers"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// Errors of a relay.
var (
	// ErrStarted: Run was called before. A relay runs once.
	ErrStarted = errors.New("relay was started before; make a new one")
	// ErrStopped: the relay has stopped.
	ErrStopped = errors.New("relay has stopped")
	// ErrNoDestination: the relay has neither a publisher nor a handler.
	ErrNoDestination = errors.New("there is neither a publisher nor a handler; give the relay one")
	// ErrDuplicateHandler: a message type has a handler already.
	ErrDuplicateHandler = errors.New("message type has a handler already")
)

// Relay moves messages from an outbox to a publisher or to handlers. The package comment says how.
type Relay struct {
	cfg      Config
	store    store.Relay
	owner    store.Owner
	handlers handlers.Set[postrider.Handler]
	publish  PublishFunc
	tx       transactor          // nil unless handlers have transactions
	batches  map[string]*txBatch // by message type
	// background are the functions that run while the relay does.
	background []func(ctx context.Context)
	prepare    []func(ctx context.Context) error // see Prepare
	observer   atomic.Pointer[observe.Relay]
	awaited    atomic.Pointer[[]string] // see wakesFor
	lifecycle
	wakes

	// mu guards what follows, except what the lease loop alone uses. Until the relay begins, it also guards the handlers and the functions
	// above.
	mu         sync.Mutex
	changed    *sync.Cond // work became ready, or something that workers wait for ended
	partitions map[int]*partition
	total      int                         // partitions of the outbox; fixed before any loop starts
	sched      *schedule.Schedule[message] // what waits in the partitions; made when the relay begins
	gating     gating
	leasing
	reading
	calling
	settleOutage outage
	failures     attempt.LogLimit
}

// lifecycle is how a relay begins and ends.
type lifecycle struct {
	// life ends when the relay must take no new work; calls ends when calls in progress must be cancelled.
	life, calls       context.Context
	endLife, endCalls context.CancelFunc
	started           bool
	done              chan struct{} // closed when Run ends
	lastSettle        chan struct{} // closed when no further outcomes will come
	workers           sync.WaitGroup
	refused           error // why the relay cannot work at all; found by the lease loop
}

func (l *lifecycle) init(maxAttempts int) {
	l.done, l.lastSettle = make(chan struct{}), make(chan struct{})
	l.life, l.endLife = context.WithCancel(context.Background())
	l.calls, l.endCalls = context.WithCancel(postrider.ContextWithMaxAttempts(context.Background(), maxAttempts))
}

// wakes are the channels that wake the loops; see signal.
type wakes struct {
	fetchWake     chan struct{} // read the log now
	dueWake       chan struct{} // read parked messages now
	dueSooner     chan struct{} // a parked message is due earlier than the loop waits for
	settleWake    chan struct{} // there is an outcome to record
	heartbeatWake chan struct{} // renew the leases now
	handoverWake  chan struct{} // a partition may be ready to be handed over
}

func newWakes() wakes {
	c := func() chan struct{} { return make(chan struct{}, 1) }
	return wakes{fetchWake: c(), dueWake: c(), dueSooner: c(), settleWake: c(), heartbeatWake: c(), handoverWake: c()}
}

// leasing is the state of the loop that leases partitions. The outages are its own.
type leasing struct {
	claims        map[int]string    // tokens of acquisitions whose answers are unknown, by partition
	resume        map[int]time.Time // until when a lost partition may be resumed at once, by partition
	leaseOutage   outage
	acquireOutage outage
	leased        bool      // a heartbeat has succeeded
	begun         bool      // noteFirst has seen the first leases
	lastHeartbeat time.Time // when the last heartbeat that was answered was sent
	short         bool      // the relay holds fewer partitions than its share
}

// reading is the state of the loops that read messages.
type reading struct {
	nextDue time.Time // when the next parked message is due, zero if that is not known
	dueFull bool      // parked messages are not read because there is no room
	dueFrom dueFrom   // where the next read of parked messages begins
	rounds  uint64    // completed rounds of fetching
	drains  map[*drain]struct{}
	taken   bool // a message from the log had a topic that the relay takes
	skipped int  // messages from the log that had none
}

// calling is the state of the workers and of the destination that they call.
type calling struct {
	circuit  circuit
	answered time.Time  // when the destination last answered
	rate     *rateLimit // nil without MaxRate
	slots    map[*workerSlot]struct{}
	slow     int  // how many workers have been replaced during their call
	slowFull bool // no more can be replaced
}

// New returns a relay on a store. Errors: all errors of the configuration, joined.
func New(s store.Relay, cfg Config) (*Relay, error) {
	if s == nil {
		return nil, errors.New("relay: New needs a store")
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	r := &Relay{
		cfg: cfg, store: s, owner: newOwner(cfg.Version), wakes: newWakes(),
		partitions: make(map[int]*partition), batches: make(map[string]*txBatch), gating: gating{changed: make(chan struct{})},
		leasing: leasing{claims: make(map[int]string), resume: make(map[int]time.Time)},
		reading: reading{drains: make(map[*drain]struct{})},
		calling: calling{slots: make(map[*workerSlot]struct{})},
	}
	r.lifecycle.init(cfg.MaxAttempts)
	r.owner.Topics = canonicalTopics(cfg.Topics)
	r.gating.paused.Store(true) // until the first heartbeat
	r.observer.Store(cfg.Observer)
	r.changed = sync.NewCond(&r.mu)
	if cfg.MaxRate > 0 {
		r.rate = &rateLimit{perSecond: cfg.MaxRate, burst: float64(cfg.Burst)}
	}
	if cfg.Publisher != nil {
		r.publish = cfg.Publisher.Publish
		for i := len(cfg.PublishInterceptors) - 1; i >= 0; i-- {
			r.publish = cfg.PublishInterceptors[i](r.publish)
		}
	}
	return r, nil
}

func newOwner(version string) store.Owner {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return store.Owner{ID: fmt.Sprintf("%.40s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:])), Host: host, Version: version}
}

// Name returns the relay's name.
func (r *Relay) Name() string { return r.cfg.Name }

// Owner returns how this process is shown to operators.
func (r *Relay) Owner() store.Owner { return r.owner }

// OnDead returns what happens to a key after its blocking message is dead-lettered, see Config.OnDead.
func (r *Relay) OnDead() OnDead { return r.cfg.OnDead }

// Run works until ctx ends or Stop is called, and then stops as Stop does, within Config.StopTimeout. It returns nil after an
// orderly stop; otherwise an error that says what was cut short. If the store does not answer at the start, Run ends with an
// error, and a new Relay is needed. Later problems with the database or the publisher do not end it: it logs them, waits and
// continues. Errors: ErrStarted; ErrNoDestination, after which handlers can still be added and Run be
// called again; an AttemptTimeout beyond the time after which the database ends idle transactions; an outbox that cannot be
// read; store.ErrNameOfConsumer, store.ErrNameOfRelay; store.ErrReplaced, store.ErrRepartitioned; that of a function of Prepare.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.begin(); err != nil {
		return err
	}
	defer close(r.done)
	defer r.endCalls()
	defer r.endLife()

	if r.life.Err() != nil {
		return nil // stopped before it began
	}
	if r.cfg.Disabled {
		r.idle(ctx)
		return nil
	}
	if entered, err := r.enter(ctx); !entered {
		return err
	}

	var loops sync.WaitGroup
	background, endBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer endBackground()
	own := []func(context.Context){r.fetchLoop, r.dueLoop, r.listen, r.maintainLoop, r.progressLoop, r.slowLoop, r.gateLoop, r.unmatchedLoop}
	for _, f := range append(own, r.background...) {
		loops.Go(func() { f(background) })
	}
	settled := make(chan struct{})
	go func() { defer close(settled); r.settleLoop(background) }()
	leasing, endLeasing := context.WithCancel(background)
	defer endLeasing()
	leases := make(chan struct{})
	go func() { defer close(leases); r.leaseLoop(leasing) }()
	for range r.cfg.Concurrency {
		r.workers.Go(r.worker)
	}

	select {
	case <-ctx.Done():
		r.endLife()
	case <-r.life.Done():
	}
	err := r.finish(background, settled)
	endLeasing() // before Leave: a lease that is granted after it would last until it expires
	<-leases
	r.leave(background)
	endBackground()
	loops.Wait()
	<-settled
	return errors.Join(r.refused, err)
}

// enter reads what the relay begins with, and prepares. It returns false, and no error, if the relay was stopped meanwhile.
func (r *Relay) enter(ctx context.Context) (entered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.life, cancel)()
	if r.total, err = r.store.Partitions(ctx); err != nil {
		err = fmt.Errorf("relay %s: read the outbox: %w", r.cfg.Name, err)
	} else {
		err = r.prepared(ctx)
	}
	if ctx.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

// idle waits until the relay is told to stop.
func (r *Relay) idle(ctx context.Context) {
	r.cfg.Logger.Warn("relay is switched off by its configuration and does nothing", "relay", r.cfg.Name)
	select {
	case <-ctx.Done():
	case <-r.life.Done():
	}
}

// begin records that the relay runs, unless it cannot.
func (r *Relay) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.started:
		return ErrStarted
	case r.cfg.Disabled:
	case r.publish == nil && !r.handlers.Some():
		return fmt.Errorf("relay %s: %w", r.cfg.Name, ErrNoDestination)
	default:
		if err := r.fitTx(); err != nil {
			return err
		}
	}
	r.sched = r.cfg.newSchedule(r.tx != nil, r.id())
	r.started = true
	return nil
}

// finish ends the work: it starts no new calls, waits for those in progress, then cancels them, and records outcomes.
func (r *Relay) finish(ctx context.Context, settled <-chan struct{}) error {
	r.mu.Lock()
	r.changed.Broadcast()
	r.mu.Unlock()
	cut := attempt.Finish(r.calls, r.endCalls, &r.workers, "calls", r.cfg.StopTimeout)
	if cut != nil {
		cut = fmt.Errorf("relay %s: %w", r.cfg.Name, cut)
	}
	r.endCalls()
	r.mu.Lock()
	for _, p := range r.partitions {
		p.Withdraw()
	}
	r.wakeAndUnlock()
	last, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
	defer cancel()
	close(r.lastSettle)
	select {
	case <-settled: // it has recorded what was left
	case <-last.Done():
	}
	return cut
}

// leave releases the leases. Calls that are still in progress have outlived them.
func (r *Relay) leave(ctx context.Context) {
	r.mu.Lock()
	for _, p := range r.partitions {
		p.expiry.Stop()
		p.Lose()
	}
	r.observeLeases(observe.LeaseReleased, len(r.partitions))
	r.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL/3)
	defer cancel()
	if err := r.store.Leave(bounded, r.cfg.Name, r.owner); err != nil {
		r.cfg.Logger.Warn("relay could not release its leases; they end by themselves", "relay", r.cfg.Name, "error", err)
	}
}

// Stop lets the relay take no new messages, waits for calls in progress, records their outcomes and releases the leases. If
// ctx ends first, the contexts of the calls in progress are cancelled; that does not count as a failed attempt. Stop may be
// called at any time and any number of times, even if Run never was; it returns when Run has ended, with the error of ctx if
// ctx ended first.
func (r *Relay) Stop(ctx context.Context) error {
	r.endLife()
	r.mu.Lock()
	started := r.started
	r.mu.Unlock()
	if !started {
		return nil
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		r.endCalls()
		<-r.done
		return ctx.Err()
	}
}

// Ready returns nil if the relay works: the store has answered recently enough that the relay's leases hold. Otherwise the
// error says what is missing. A relay that is switched off (Config.Disabled) is ready when it runs.
func (r *Relay) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.started:
		return fmt.Errorf("relay %s: not started", r.cfg.Name)
	case r.life.Err() != nil:
		return fmt.Errorf("relay %s: stopping", r.cfg.Name)
	case r.cfg.Disabled:
	case !r.leased:
		return fmt.Errorf("relay %s: the store has not answered", r.cfg.Name)
	case time.Since(r.lastHeartbeat) >= r.cfg.leaseLife():
		return fmt.Errorf("relay %s: the store has not answered for %s", r.cfg.Name, time.Since(r.lastHeartbeat).Round(time.Second))
	}
	return nil
}

// listen runs the store's listener, if it has one.
func (r *Relay) listen(ctx context.Context) {
	l, ok := r.store.(store.Listener)
	if !ok {
		return
	}
	if err := l.Listen(ctx); err != nil && ctx.Err() == nil {
		r.observeFailure(observe.OperationListen, err)
		r.cfg.Logger.Warn("relay hears no commits of other processes and relies on polling", "relay", r.cfg.Name, "error", err)
	}
}

// signal wakes a loop without blocking; signals coalesce.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
