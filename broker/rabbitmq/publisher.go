package rabbitmqbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
)

// ErrClosed is the cause of the postrider.Unavailable error that Publish returns after Close.
var ErrClosed = errors.New("RabbitMQ publisher is closed")

// Publisher publishes to one RabbitMQ server or cluster. It is safe for concurrent use.
type Publisher struct {
	cfg      Config
	topology topology
	keeper   *keeper
	// window has an entry for every key, and every message without a key, that is being sent.
	window chan struct{}
	// answered is the time of the last acknowledgement of any call, in nanoseconds since began.
	answered atomic.Int64
	began    time.Time
	closing  chan struct{}
	alone    chan struct{} // has one entry while a message is sent alone

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // running calls
	ended   chan struct{}  // closed when Close is done
}

var _ postrider.Publisher = (*Publisher)(nil)

// Open connects to a server, or to one of several cluster nodes (comma-separated), and returns a Publisher. The path of
// the URL is the virtual host, / if there is none. The URL may have options after a question mark, which take precedence
// over cfg:
//
//	amqps://orders:secret@rabbit-1,rabbit-2:5671/shop?exchange=orders&ca=/etc/rabbit/ca.pem
//
// The options are exchange, exchange_type, exchange_per_topic, queue, check_only, allow_unroutable, max_in_flight,
// publish_timeout, max_message_bytes, name, user, password, external, ca, cert, key and heartbeat.
//
// Open retries an unreachable server until ctx ends. If the server rejects the credentials, or the exchange does not
// match cfg, Open fails with an error that says what to change. The Publisher reconnects, and declares exchange and
// queue again, until it is closed.
func Open(ctx context.Context, address string, cfg Config) (*Publisher, error) {
	base, cfg, err := ParseURL(address, cfg)
	if err != nil {
		return nil, err
	}
	at, err := parseLocation(base)
	cfg = cfg.withDefaults()
	if err := errors.Join(err, cfg.validate()); err != nil {
		return nil, err
	}
	dialer, err := newDialer(cfg.Connection, at)
	if err != nil {
		return nil, err
	}
	keeper, err := keep(ctx, dialer, cfg.topology())
	if err != nil {
		return nil, err
	}
	return &Publisher{
		cfg: cfg, topology: cfg.topology(), keeper: keeper,
		window: make(chan struct{}, cfg.MaxInFlight), began: time.Now(),
		closing: make(chan struct{}), alone: make(chan struct{}, 1), ended: make(chan struct{}),
	}, nil
}

// Capabilities implements postrider.Publisher. MaxMessageBytes is that of Config. DedupeWindow is 0: RabbitMQ does not
// detect duplicates.
func (p *Publisher) Capabilities() postrider.Capabilities {
	return postrider.Capabilities{Ordered: true, MaxMessageBytes: p.cfg.MaxMessageBytes}
}

// Publish implements postrider.Publisher. The package documentation lists the errors.
func (p *Publisher) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]error{fmt.Errorf("publish to RabbitMQ: %w", err)}, len(msgs))
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return slices.Repeat([]error{p.unavailable(ErrClosed)}, len(msgs))
	}
	p.running.Add(1)
	p.mu.Unlock()
	defer p.running.Done()
	return p.publish(ctx, msgs)
}

// publish sends the messages of each key one after another, and different keys concurrently.
func (p *Publisher) publish(ctx context.Context, msgs []*postrider.Message) []error {
	errs := make([]error, len(msgs))
	heads, nexts := chains(msgs)
	var under sync.WaitGroup
	for _, head := range heads {
		if err := p.enter(ctx); err != nil {
			fail(msgs, errs, nexts, head, err)
			continue
		}
		under.Go(func() {
			defer func() { <-p.window }()
			for i := head; i >= 0; i = nexts[i] {
				if err := p.deliver(ctx, msgs[i]); err != nil {
					fail(msgs, errs, nexts, i, err)
					return
				}
			}
		})
	}
	under.Wait()
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return errs
	}
	return nil
}

// chains returns the first message of each key and all messages without a key, and for each message the next one of its
// key, or -1.
func chains(msgs []*postrider.Message) (heads, nexts []int) {
	heads, nexts = make([]int, 0, len(msgs)), make([]int, len(msgs))
	last := make(map[string]int)
	for i, m := range msgs {
		nexts[i] = -1
		if m.Key != "" {
			before, ok := last[m.Key]
			last[m.Key] = i
			if ok {
				nexts[before] = i
				continue
			}
		}
		heads = append(heads, i)
	}
	return heads, nexts
}

// fail sets the error of message i, and of all later messages of its key.
func fail(msgs []*postrider.Message, errs []error, nexts []int, i int, err error) {
	errs[i] = err
	if nexts[i] < 0 {
		return
	}
	failed := postrider.PredecessorFailed(msgs[i], err)
	for i = nexts[i]; i >= 0; i = nexts[i] {
		errs[i] = failed
	}
}

// enter waits for a free entry of the window.
func (p *Publisher) enter(ctx context.Context) error {
	select {
	case p.window <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("publish to RabbitMQ: %w", ctx.Err())
	case <-p.closing:
		return p.unavailable(ErrClosed)
	}
}

// Close stops sending and waits up to Config.PublishTimeout for the acknowledgements of messages that are already sent.
// Messages that were not sent, and all later calls, fail with Unavailable and ErrClosed. Then it closes the connection.
// It returns nil.
func (p *Publisher) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	if !first {
		<-p.ended
		return nil
	}
	close(p.closing)
	p.running.Wait()
	p.keeper.close()
	close(p.ended)
	return nil
}

func (p *Publisher) unavailable(err error) error {
	return postrider.Unavailable(fmt.Errorf("publish to RabbitMQ: %w", err))
}
