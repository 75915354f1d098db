package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// Consumer reads a broker and applies the effect of each message in a database transaction, exactly once. See the package
// comment for how.
type Consumer[Tx any] struct {
	cfg        ConsumerConfig
	in         *Inbox[Tx]
	store      Store[Tx]
	opener     BeginBatcher[Tx]
	subscriber postrider.Subscriber
	caps       postrider.SubscriberCapabilities
	handlers   handlers[Tx]
	aside      *relay.Relay // brings back what was put aside

	// life ends when the consumer is to begin nothing new; calls ends when transactions under way are to be cancelled.
	life, calls       context.Context
	endLife, endCalls context.CancelFunc
	done              chan struct{}
	workers           sync.WaitGroup

	mu           sync.Mutex
	work         *sync.Cond // a lane became ready, or life has ended
	room         *sync.Cond // there is room for more messages, or life has ended
	changed      *sync.Cond // a message was settled, or life has ended
	started      bool
	subscription postrider.Subscription
	lanes        map[string]*lane
	ready        []*lane
	inMemory     map[*item]struct{}
	bytes        int
	received     uint64             // messages so far
	sized        int64              // bytes so far
	logs         map[string]logSeen // by partition and epoch; with ByPosition
	storeFails   int                // transactions in a row that the store would not begin or take
	stats        Stats

	separate atomic.Int64 // how many batches are still to have savepoints
	fits     atomic.Int64 // how many messages there is time for in a transaction
}

// Stats counts what a consumer has done since it began, in this process. Every field only grows, so that a process can export
// it as it is, e.g. by expvar:
//
//	expvar.Publish("order-view", expvar.Func(func() any { return consumer.Stats() }))
//
// What stands in the database (IDs and watermarks, parked messages, held keys, dead letters) is in StatusStore and
// relay.Status.
type Stats struct {
	// Received counts deliveries.
	Received int64 `json:"received"`
	// Applied counts messages whose effect was committed, those that had been put aside included.
	Applied int64 `json:"applied"`
	// Duplicates counts deliveries of messages that were consumed before.
	Duplicates int64 `json:"duplicates"`
	// LogsReplaced counts how often the log of a partition turned out to be another incarnation than before: recreated, or
	// without the tail that was consumed. Only with ByPosition.
	LogsReplaced int64 `json:"logs_replaced"`
	// Skipped counts messages that were passed over for want of a handler, or because of their aggregate's version.
	Skipped int64 `json:"skipped"`
	// Failed counts failed attempts, those of messages that had been put aside included.
	Failed int64 `json:"failed"`
	// Parked counts messages that were put aside as they came, Held those of them that had not failed but stand behind a
	// held key.
	Parked int64 `json:"parked"`
	Held   int64 `json:"held"`
	// Dead counts messages that were given up as they came. What dies later is in relay.Status.
	Dead int64 `json:"dead"`
	// Lost counts messages whose right was lost before they were settled, Unacknowledged those that the broker would not
	// hear of: all of these come again.
	Lost           int64 `json:"lost"`
	Unacknowledged int64 `json:"unacknowledged"`
}

// NewConsumer makes a consumer of what a subscriber reads. Errors: every fault of the configuration at once.
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
	c := &Consumer[Tx]{
		cfg: cfg, in: in, store: in.store, opener: openerOf(in.store), subscriber: subscriber, caps: caps,
		handlers: handlers[Tx]{
			typed: make(map[string]map[int]Handler[Tx]), upcast: make(map[string]map[int]upcaster),
			any: make(map[string]Handler[Tx]),
		},
		done: make(chan struct{}), lanes: make(map[string]*lane), inMemory: make(map[*item]struct{}),
		logs: make(map[string]logSeen),
	}
	c.fits.Store(firstFit)
	c.work, c.room, c.changed = sync.NewCond(&c.mu), sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.life, c.endLife = context.WithCancel(context.Background())
	c.calls, c.endCalls = context.WithCancel(context.Background())
	if c.aside, err = relay.New(asideStore{in.store}, cfg.relay()); err != nil {
		return nil, fmt.Errorf("inbox: consumer %s: %w", cfg.Name, err)
	}
	return c, nil
}

// asideStore is a relay.Store without a log: a consumer reads its source. It hides what else the store can do, such as
// dropping old messages of the outbox, which is for the relays that read it.
type asideStore struct{ relay.Store }

// ReadsNoLog tells the relay that it is the consumer's own, and may work under its name.
func (asideStore) ReadsNoLog() {}

// Fetch implements relay.LogStore.
func (asideStore) Fetch(context.Context, string, relay.FetchRequest) ([]relay.Batch, error) {
	return nil, nil
}

// Name returns the consumer's name.
func (c *Consumer[Tx]) Name() string { return c.cfg.Name }

// Stats returns what has been done since the consumer began. It is safe for concurrent use, and costs a copy.
func (c *Consumer[Tx]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Run works until ctx ends or Stop is called, and then stops as Stop does, within ConsumerConfig.StopTimeout. It returns
// nil after an orderly stop, an error that says what was cut short otherwise. Trouble with the database or the broker does
// not end it: it logs, waits and goes on. Errors: ErrStarted; ErrNoHandler, after which handlers can still be given and Run
// be called again; ErrNameTaken; that of the first look at the database; what the subscriber asks to be changed.
func (c *Consumer[Tx]) Run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer close(c.done)
	defer c.endCalls()
	defer c.endLife()
	stopped := context.AfterFunc(ctx, c.endLife)
	defer stopped()
	woken := context.AfterFunc(c.life, c.tell)
	defer woken()

	if c.life.Err() != nil {
		return nil // stopped before it began
	}
	if err := c.store.Enroll(ctx, c.cfg.Name); c.life.Err() != nil {
		return nil // stopped while it began
	} else if err != nil {
		return fmt.Errorf("consumer %s: %w", c.cfg.Name, err)
	}
	if text := c.cfg.tooShort(c.caps); text != "" {
		c.cfg.Logger.Warn("a message may have its effect twice: "+text, "consumer", c.cfg.Name)
	}
	if !c.caps.Ordered {
		c.cfg.Logger.Info("the source does not keep the order of a key", "consumer", c.cfg.Name)
	}
	return c.run(context.WithoutCancel(ctx))
}

// begin notes that the consumer runs, unless it cannot.
func (c *Consumer[Tx]) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.started:
		return ErrStarted
	case !c.handlers.some():
		return fmt.Errorf("consumer %s: %w", c.cfg.Name, ErrNoHandler)
	}
	c.started = true
	return nil
}

// run starts everything that works, waits for the end of life, and for everything to come to its own.
func (c *Consumer[Tx]) run(ctx context.Context) error {
	background, endBackground := context.WithCancel(ctx)
	defer endBackground()
	aside := make(chan error, 1)
	go func() {
		err := c.aside.Run(c.life)
		c.endLife() // it ends before its time only if it cannot work at all
		aside <- err
	}()
	source := make(chan error, 1)
	go func() {
		err := c.receiveLoop()
		c.endLife()
		source <- err
	}()
	var loops sync.WaitGroup
	loops.Go(func() { c.extendLoop(background) })
	loops.Go(func() { c.forgetLoop(background) })
	for range c.cfg.Concurrency {
		c.workers.Go(c.worker)
	}
	<-c.life.Done()
	err := errors.Join(<-source, c.finish())
	endBackground()
	loops.Wait()
	c.close(ctx)
	return errors.Join(err, <-aside)
}

// finish waits for the transactions under way, and then cancels them.
func (c *Consumer[Tx]) finish() error {
	idle := make(chan struct{})
	go func() { defer close(idle); c.workers.Wait() }()
	timeout := time.NewTimer(c.cfg.StopTimeout)
	defer timeout.Stop()
	var cut error
	select {
	case <-idle:
		return nil
	case <-c.calls.Done():
		cut = fmt.Errorf("consumer %s: transactions under way were cancelled; their messages will be delivered again", c.cfg.Name)
	case <-timeout.C:
		cut = fmt.Errorf("consumer %s: transactions under way did not end within %s and were cancelled; their messages will "+
			"be delivered again", c.cfg.Name, c.cfg.StopTimeout)
	}
	c.endCalls()
	grace := time.NewTimer(time.Second)
	defer grace.Stop()
	select { // a handler that ignores its context cannot be waited for
	case <-idle:
	case <-grace.C:
	}
	return cut
}

// closeTimeout bounds the leave-taking from the broker.
const closeTimeout = 5 * time.Second

// close gives back what was not begun, so that others need not wait for it, and leaves the group.
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
			break // it comes again when the broker has waited long enough, or heard of the leave
		}
	}
	if err := subscription.Close(ctx); err != nil {
		c.cfg.Logger.Warn("consumer could not leave its group in order", "consumer", c.cfg.Name, "error", err)
	}
}

// Stop lets the consumer begin nothing new, waits for the transactions under way, gives back to the broker what was not
// begun, and leaves the group. When ctx ends first, the contexts of the transactions under way are cancelled; that is not
// counted as a failed attempt. Stop may be called at any time, any number of times, also when Run never was; it returns
// when Run has ended, or the error of ctx.
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
		// The end of Run cancels the relay's calls too, within its own time; here nobody waits for that any more.
		_ = c.aside.Stop(ctx)
		<-c.done
		return ctx.Err()
	}
}

// Drain waits until all messages that were received before the call are settled: their effects committed, or put aside.
// The consumer goes on working. It does not wait for what was put aside, nor for what the broker has not delivered yet.
// Errors: that of ctx; ErrStopped when the consumer ends first.
func (c *Consumer[Tx]) Drain(ctx context.Context) error {
	woken := context.AfterFunc(ctx, c.tell)
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

// Ready reports whether the consumer works: it has joined its group, and the database answers. The error says what is
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
	return c.aside.Ready()
}

// tell wakes all who wait.
func (c *Consumer[Tx]) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work.Broadcast()
	c.room.Broadcast()
	c.changed.Broadcast()
}

// note changes the counters.
func (c *Consumer[Tx]) note(change func(s *Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// forgetEvery is the time between two looks for claims past their time.
const forgetEvery = time.Minute

// forgetLoop forgets the IDs of messages that no longer come again, in small batches.
func (c *Consumer[Tx]) forgetLoop(ctx context.Context) {
	if c.cfg.Dedup != ByID {
		return
	}
	for wait := time.Second; sleep(ctx, wait); {
		n, err := c.store.Forget(ctx, c.cfg.Name, c.cfg.KeepIDs, forgetBatch)
		if err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("consumer cannot forget old messages and will try again", "consumer", c.cfg.Name, "error", err)
		}
		wait = forgetEvery
		if n == forgetBatch {
			wait = 10 * time.Millisecond // let others write in between
		}
	}
}

// sleep waits and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
