package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/internal/handlers"
	"github.com/postrider/postrider/internal/protect"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// Consumer reads from a broker and processes each message in a database transaction, exactly once. See the package
// comment for how.
type Consumer[Tx any] struct {
	cfg        ConsumerConfig
	in         *Inbox[Tx]
	store      store.Inbox[Tx]
	batcher    store.BeginBatcher[Tx]
	settler    store.TxSettler[Tx] // commits under leases; nil if the store cannot
	subscriber postrider.Subscriber
	caps       postrider.SubscriberCapabilities
	handlers   handlers.Set[Handler[Tx]]
	batches    map[string]*batchHandler[Tx] // by message type
	retries    *relay.Relay                 // retries parked messages
	prepare    []func(ctx context.Context) error
	log        *logSource[Tx] // nil if the subscriber has groups

	// life ends when the consumer must not start anything new; calls ends when running transactions must be cancelled.
	life, calls       context.Context
	endLife, endCalls context.CancelFunc
	done              chan struct{}
	workers           sync.WaitGroup

	mu           sync.Mutex
	work         *sync.Cond // a queue became ready, or life has ended
	room         *sync.Cond // memory for more messages became free, or life has ended
	changed      *sync.Cond // a message was settled, or life has ended
	started      bool
	subscription postrider.Subscription
	queues       map[string]*queue
	ready        []*queue
	inMemory     map[*item]struct{}
	bytes        int
	running      int            // messages in transactions, see counts
	idle         int            // workers that wait for work
	received     uint64         // messages so far
	sized        int64          // bytes so far
	storeFails   int            // consecutive transactions that the store failed to begin or commit
	spared       map[string]int // see spares
	stats        Stats

	failures  attempt.LogLimit
	connected atomic.Bool // the last attempt to read from the broker succeeded

	watched  protect.Observer
	separate atomic.Int64 // how many more batches use savepoints
	size     batchSize
}

// Stats counts the work of a consumer in this process since it was created. Every field only grows, so that a process can
// export it unchanged, e.g. by expvar:
//
//	expvar.Publish("order-view", expvar.Func(func() any { return consumer.Stats() }))
//
// For the state in the database (IDs and positions, parked messages, held keys, dead letters), see store.StatusReader.
type Stats struct {
	// Received counts deliveries.
	Received int64 `json:"received"`
	// Applied counts messages whose processing was committed, including previously parked ones.
	Applied int64 `json:"applied"`
	// Duplicates counts deliveries of messages that had already been consumed.
	Duplicates int64 `json:"duplicates"`
	// LogsReplaced counts how often the log of a partition turned out to be another incarnation: recreated, or without
	// the tail that was consumed. Only with a log.
	LogsReplaced int64 `json:"logs_replaced"`
	// Missing counts offsets of a log that the broker removed before they were read, and messages of a group that it removed
	// before they were acknowledged (postrider.RemovedError).
	Missing int64 `json:"missing"`
	// Skipped counts messages that were skipped because they have no handler, because of their aggregate's version, or
	// because they were replayed.
	Skipped int64 `json:"skipped"`
	// Failed counts failed attempts, including those of previously parked messages.
	Failed int64 `json:"failed"`
	// Parked counts incoming messages that were parked, Held those of them that did not fail but were queued after a held
	// key's blocking message.
	Parked int64 `json:"parked"`
	Held   int64 `json:"held"`
	// Dead counts incoming messages that were dead-lettered. For messages dead-lettered after parking, see store.Status.
	Dead int64 `json:"dead"`
	// Discarded counts incoming messages that were discarded (postrider.Discard).
	Discarded int64 `json:"discarded"`
	// Lost counts messages that this process lost the right to settle, Unacknowledged those whose acknowledgement the
	// broker did not accept: all of these are redelivered.
	Lost           int64 `json:"lost"`
	Unacknowledged int64 `json:"unacknowledged"`
}

// NewConsumer returns a consumer of the subscriber's messages. It reports all configuration errors at once.
func NewConsumer[Tx any](in *Inbox[Tx], subscriber postrider.Subscriber, cfg ConsumerConfig) (*Consumer[Tx], error) {
	if in == nil || subscriber == nil {
		return nil, errors.New("inbox: NewConsumer needs an inbox and a subscriber")
	}
	caps := subscriber.Capabilities()
	cfg, err := cfg.complete(caps)
	if err != nil {
		return nil, err
	}
	if err := fitTx(&cfg, in.store); err != nil {
		return nil, err
	}
	settler, _ := in.store.(store.TxSettler[Tx])
	c := &Consumer[Tx]{
		batches: make(map[string]*batchHandler[Tx]),
		settler: settler, cfg: cfg, in: in, store: in.store, batcher: batcherOf(in.store), subscriber: subscriber, caps: caps,
		done: make(chan struct{}), queues: make(map[string]*queue), inMemory: make(map[*item]struct{}),
		spared: make(map[string]int),
	}
	c.size.fits.Store(firstFit)
	c.work, c.room, c.changed = sync.NewCond(&c.mu), sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.life, c.endLife = context.WithCancel(context.Background())
	c.calls, c.endCalls = context.WithCancel(postrider.ContextWithMaxAttempts(context.Background(), cfg.MaxAttempts))
	parked := store.Relay(parkedStore{in.store})
	if caps.Log {
		log, ok := subscriber.(postrider.Log)
		if !ok {
			return nil, fmt.Errorf("inbox: consumer %s: %T says that it reads a log and is no postrider.Log", cfg.Name, subscriber)
		}
		if c.log, err = newLogSource(c, log); err != nil {
			return nil, err
		}
		parked = watched(in.store, c.log)
	}
	if c.retries, err = relay.New(parked, cfg.relay()); err != nil {
		return nil, fmt.Errorf("inbox: consumer %s: %w", cfg.Name, err)
	}
	return c, nil
}

// parkedStore is a store.Relay without a log, since a consumer reads its source. It hides the store's optional interfaces,
// such as removing old outbox messages, which are for the relays that read the outbox.
type parkedStore struct{ store.Relay }

// Heartbeat implements store.Leases. A consumer has no filter of topics.
func (s parkedStore) Heartbeat(ctx context.Context, name string, owner store.Owner, ttl time.Duration) (store.View, error) {
	owner.Topics = nil
	return s.Relay.Heartbeat(ctx, name, owner, ttl)
}

// Acquire implements store.Leases, for a name that is a consumer's.
func (s parkedStore) Acquire(ctx context.Context, name string, owner store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	owner.Topics, req.Kind = nil, store.KindConsumer
	return s.Relay.Acquire(ctx, name, owner, req)
}

// Fetch implements store.Log.
func (parkedStore) Fetch(context.Context, string, store.FetchRequest) ([]store.Batch, error) {
	return nil, nil
}

// Name returns the consumer's name.
func (c *Consumer[Tx]) Name() string { return c.cfg.Name }

// OnDead returns what happens to a key after its blocking message is dead-lettered, see ConsumerConfig.OnDead.
func (c *Consumer[Tx]) OnDead() relay.OnDead { return c.cfg.OnDead }

// Connected reports whether the last attempt to read from the broker succeeded; of a log, that to read any partition.
func (c *Consumer[Tx]) Connected() bool {
	return c.connected.Load() && (c.log == nil || c.log.connected())
}

// Stats returns the counters. It is safe for concurrent use, and costs a copy.
func (c *Consumer[Tx]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Run processes messages until ctx ends or Stop is called, and then stops as Stop does, within
// ConsumerConfig.StopTimeout. It returns nil after an orderly stop, otherwise an error that says what was cut short.
// Database or broker failures do not end it: it logs, waits and continues. Errors: ErrStarted; ErrNoHandler, after which
// handlers can be added and Run called again; store.ErrNameOfRelay; that of the first database access; that of a function of Prepare;
// an error of the subscriber that requires a change.
func (c *Consumer[Tx]) Run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer close(c.done)
	defer c.endCalls()
	defer c.endLife()
	stopped := context.AfterFunc(ctx, c.endLife)
	defer stopped()
	woken := context.AfterFunc(c.life, c.wakeWaiters)
	defer woken()

	if c.life.Err() != nil {
		return nil // stopped before it began
	}
	if c.cfg.Disabled {
		c.cfg.Logger.Warn("consumer is switched off by its configuration and does nothing", "consumer", c.cfg.Name)
		<-c.life.Done()
		return nil
	}
	if entered, err := c.enter(ctx); !entered {
		return err
	}
	if !c.caps.Ordered {
		c.cfg.Logger.Info("the source does not keep the order of a key", "consumer", c.cfg.Name)
	}
	return c.run(context.WithoutCancel(ctx))
}

// enter notes the consumer in the database, and prepares. It returns false, and no error, if the consumer was stopped meanwhile.
func (c *Consumer[Tx]) enter(ctx context.Context) (entered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	if err = c.store.Enroll(ctx, c.cfg.Name); err != nil {
		err = fmt.Errorf("consumer %s: %w", c.cfg.Name, err)
	} else if err = c.prepared(ctx); err == nil {
		c.noteWindow(ctx)
	}
	if ctx.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

// begin records that the consumer runs, unless it cannot.
func (c *Consumer[Tx]) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.started:
		return ErrStarted
	case !c.handlers.Some():
		return fmt.Errorf("consumer %s: %w", c.cfg.Name, ErrNoHandler)
	}
	c.started = true
	return nil
}

// run starts the goroutines and waits for the end of life, and then for the goroutines to end.
func (c *Consumer[Tx]) run(ctx context.Context) error {
	background, endBackground := context.WithCancel(ctx)
	defer endBackground()
	retries := make(chan error, 1)
	go func() {
		err := c.retries.Run(c.life)
		c.endLife() // it ends early only if it cannot work at all
		retries <- err
	}()
	source := make(chan error, 1)
	go func() {
		err := c.receiveLoop()
		c.endLife()
		source <- err
	}()
	var loops sync.WaitGroup
	loops.Go(func() { c.extendLoop(background) })
	loops.Go(func() { c.removeLoop(background) })
	loops.Go(func() { c.gateLoop(background) })
	loops.Go(func() { c.slowLoop(background) })
	for range c.cfg.Concurrency {
		c.workers.Go(c.worker)
	}
	<-c.life.Done()
	err := errors.Join(<-source, c.finish())
	endBackground()
	loops.Wait()
	if c.log != nil { // its leases are given back, with the last positions, before reading ends
		close(c.log.finished)
		err = errors.Join(err, <-retries)
		c.close(ctx)
		return err
	}
	c.close(ctx)
	return errors.Join(err, <-retries)
}

// finish waits for running transactions until StopTimeout, and then cancels them.
func (c *Consumer[Tx]) finish() error {
	cut := attempt.Finish(c.calls, c.endCalls, &c.workers, "transactions", c.cfg.StopTimeout)
	if cut != nil {
		cut = fmt.Errorf("consumer %s: %w", c.cfg.Name, cut)
	}
	return cut
}

// closeTimeout limits leaving the consumer group.
const closeTimeout = 5 * time.Second

// close returns messages that were not started to the broker, so that others need not wait for them, and leaves the
// group.
func (c *Consumer[Tx]) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	c.mu.Lock()
	subscription := c.subscription
	left := c.unbegun()
	c.mu.Unlock()
	if subscription == nil {
		return
	}
	for _, it := range left {
		if err := it.delivery.Nack(ctx, 0); err != nil {
			break // it is redelivered when the broker's wait is over, or when the group has been left
		}
	}
	if err := subscription.Close(ctx); err != nil {
		c.cfg.Logger.Warn("consumer could not leave its group in order", "consumer", c.cfg.Name, "error", err)
	}
}

// Stop starts no new work, waits for running transactions, returns messages that were not started to the broker, and
// leaves the group. When ctx ends first, it cancels the contexts of running transactions; this does not count as a failed
// attempt. Stop may be called at any time, any number of times, even if Run was never called; it returns when Run has
// ended, or the error of ctx.
func (c *Consumer[Tx]) Stop(ctx context.Context) error {
	c.endLife()
	c.mu.Lock()
	started := c.started
	c.mu.Unlock()
	if !started {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		c.endCalls()
		_ = c.retries.Stop(ctx) // ctx has ended: its calls are cancelled at once
		<-c.done
		return ctx.Err()
	}
}

// Drain waits until all messages that were received before the call are settled: their processing committed, or parked.
// The consumer continues to run. Drain does not wait for parked messages, nor for messages that the broker has not
// delivered yet. Errors: that of ctx; ErrStopped when the consumer ends first.
func (c *Consumer[Tx]) Drain(ctx context.Context) error {
	woken := context.AfterFunc(ctx, c.wakeWaiters)
	defer woken()
	c.mu.Lock()
	defer c.mu.Unlock()
	upTo := c.received
	for {
		open := false
		for it := range c.inMemory {
			open = open || it.number <= upTo
		}
		switch {
		case !open:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case c.life.Err() != nil:
			return ErrStopped
		}
		c.changed.Wait()
	}
}

// Ready reports whether the consumer works: it has joined its group, and the database responds. The error says what is
// missing.
func (c *Consumer[Tx]) Ready() error {
	c.mu.Lock()
	started, subscribed, fails := c.started, c.subscription != nil, c.storeFails
	c.mu.Unlock()
	switch {
	case !started:
		return fmt.Errorf("consumer %s: not started", c.cfg.Name)
	case c.life.Err() != nil:
		return fmt.Errorf("consumer %s: stopping", c.cfg.Name)
	case !subscribed:
		return fmt.Errorf("consumer %s: the broker has not been reached", c.cfg.Name)
	case fails > 0:
		return fmt.Errorf("consumer %s: the database does not take transactions", c.cfg.Name)
	}
	return c.retries.Ready()
}

// updateStats changes the counters.
func (c *Consumer[Tx]) updateStats(change func(s *Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}
