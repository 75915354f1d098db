package inboxtest

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

// setting configures a process; the zero value is a consumer by ID of an ordered log that applies the default effect.
type setting[Tx any] struct {
	cfg     inbox.ConsumerConfig
	source  memorybroker.SubscriberConfig
	queue   bool                 // instead of a log
	log     bool                 // read without a group, from a position
	reads   postrider.Subscriber // instead of the broker
	handler inbox.Handler[Tx]
	// begin, if set, begins batches instead of the handler.
	begin func(ctx context.Context, tx Tx, msgs []*postrider.Message) (relay.Batch, error)
	// fault is called for every operation of the store, before it (done false) and after it took effect.
	fault func(op string, done bool) error
	// unstorable says which messages the database cannot store.
	unstorable func(m *postrider.Message) bool
	prepare    func(c *inbox.Consumer[Tx])
}

// process is one consumer process.
type process[Tx any] struct {
	*inbox.Consumer[Tx]
	w          *world[Tx]
	connection *connection[Tx]
	sub        *tap
	in         *inbox.Inbox[Tx]
	done       chan error
	once       sync.Once
}

// logTap is a tap of a subscriber that reads a log.
type logTap struct {
	*tap
	postrider.Log
}

// VerifyPosition implements postrider.Log and postrider.Subscriber.
func (s logTap) VerifyPosition(ctx context.Context, at postrider.Position) (postrider.PositionState, error) {
	return s.Log.VerifyPosition(ctx, at)
}

// subscriber is the tap as a subscriber, with what the tapped one can do.
func (s *tap) subscriber() postrider.Subscriber {
	if log, ok := s.Subscriber.(postrider.Log); ok {
		return logTap{s, log}
	}
	return s
}

// tap records the subscriptions, so that they can be closed without the process.
type tap struct {
	postrider.Subscriber
	mu   sync.Mutex
	subs []postrider.Subscription
}

func (s *tap) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	sub, err := s.Subscriber.Subscribe(ctx)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.subs = append(s.subs, sub)
	}
	return sub, err
}

func (s *tap) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subs {
		_ = sub.Close(context.Background())
	}
}

// start runs a process until the test ends.
func (w *world[Tx]) start(s setting[Tx]) *process[Tx] {
	w.t.Helper()
	return w.run(w.build(s))
}

func (w *world[Tx]) run(p *process[Tx]) *process[Tx] {
	go func() { p.done <- p.Run(w.ctx) }()
	w.t.Cleanup(p.stop)
	return p
}

func (w *world[Tx]) build(s setting[Tx]) *process[Tx] {
	w.t.Helper()
	cfg := s.cfg
	cfg.Name = cmp.Or(cfg.Name, consumer)
	cfg.BackoffBase, cfg.BackoffMax = cmp.Or(cfg.BackoffBase, 5*time.Millisecond), cmp.Or(cfg.BackoffMax, 20*time.Millisecond)
	cfg.LeaseTTL, cfg.UnavailableWait = cmp.Or(cfg.LeaseTTL, w.lease()), cmp.Or(cfg.UnavailableWait, 50*time.Millisecond)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	source := s.source
	source.Group, source.Topics = cfg.Name, []string{topic}
	if s.log {
		source.Group = ""
	}
	if !s.queue {
		source.Partitions = cmp.Or(source.Partitions, 2)
	}
	sub := s.reads
	if sub == nil {
		var err error
		sub, err = w.broker.Subscriber(source)
		w.must(err, "subscriber")
	}
	if s.log {
		w.log = sub.(postrider.Log)
	}
	p := &process[Tx]{
		w: w, sub: &tap{Subscriber: sub}, done: make(chan error, 1),
		connection: &connection[Tx]{Store: w.store, fault: s.fault, unstorable: s.unstorable, open: make(map[any]Tx)},
	}
	var err error
	p.in, err = inbox.New(p.connection.store())
	w.must(err, "inbox")
	p.Consumer, err = inbox.NewConsumer(p.in, p.sub.subscriber(), cfg)
	w.must(err, "consumer")
	handler := s.handler
	if handler == nil {
		handler = w.effect
	}
	if s.prepare != nil {
		s.prepare(p.Consumer)
	} else {
		if s.begin != nil {
			w.must(p.HandleBatch([]string{messageType}, s.begin), "handle")
		} else {
			w.must(p.HandleFunc(messageType, handler), "handle")
		}
	}
	return p
}

// stop stops the process gracefully.
func (p *process[Tx]) stop() {
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			p.w.t.Errorf("stop: %v", err)
		}
		if err := <-p.done; err != nil {
			p.w.t.Errorf("run: %v", err)
		}
	})
}

// kill ends the process like a power failure: the database rolls back its transactions, the broker loses it, and nothing
// that it still does has any effect.
func (p *process[Tx]) kill() {
	p.connection.cut()
	p.sub.close()
	p.once.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.w.killed.Go(func() {
			_ = p.Stop(ctx)
			<-p.done
		})
	})
}
