package natsbroker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
)

// ErrClosed is the cause of the postrider.Unavailable error that Publish returns after Close.
var ErrClosed = errors.New("NATS publisher is closed")

// errNotConnected is the cause of the postrider.Unavailable error while there is no connection.
var errNotConnected = errors.New("no connection to NATS; it is made again as soon as a server can be reached")

// Publisher publishes to one JetStream stream. It is safe for concurrent use.
type Publisher struct {
	cfg      Config
	conn     *nats.Conn
	ownsConn bool
	stream   jetstream.StreamConfig
	caps     postrider.Capabilities

	js      jetstream.JetStream
	inbox   string // answers arrive at <inbox>.<token>.<more>; see expect
	batchID string // prefix of the IDs of this publisher's batches; unique
	answers *nats.Subscription
	// window holds one entry per unacknowledged message.
	window chan struct{}
	// ackBegin is the prefix of the stream's acknowledgements.
	ackBegin []byte
	// answered is the time of the last answer to any call, in nanoseconds since began.
	answered atomic.Int64
	began    time.Time
	batches  batchesAllowed

	status  chan nats.Status
	watcher sync.WaitGroup
	running sync.WaitGroup // running calls
	closing chan struct{}

	mu         sync.Mutex
	waiters    map[uint64]waiter
	lastWaiter uint64
	lost       chan struct{} // closed and replaced when the connection breaks
	closed     bool
}

// waiter receives answers. It is a call that sends single messages, or one of its batches.
type waiter interface {
	// answer handles an answer. rest is the part of its subject after the waiter's token. It returns false if the answer
	// does not come from a stream.
	answer(rest string, m *nats.Msg) (known bool)
}

var _ postrider.Publisher = (*Publisher)(nil)

// New returns a Publisher on an existing connection, which the caller closes after the Publisher. It creates or checks
// the stream within ctx. The error lists everything that must be changed in cfg or the stream.
//
// The connection should reconnect forever (nats.MaxReconnects(-1)) and buffer nothing while disconnected
// (nats.ReconnectBufSize(-1)), as connections made by Open do.
func New(ctx context.Context, conn *nats.Conn, cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	stream, err := prepareStream(ctx, js, cfg)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		cfg:      cfg,
		conn:     conn,
		js:       js,
		stream:   stream,
		caps:     capabilities(conn.MaxPayload(), stream),
		inbox:    conn.NewInbox(),
		window:   make(chan struct{}, cfg.MaxInFlight),
		batchID:  rand.Text(),
		ackBegin: fmt.Appendf(nil, `{"stream":%q,`, stream.Name),
		began:    time.Now(),
		closing:  make(chan struct{}),
		waiters:  make(map[uint64]waiter),
		lost:     make(chan struct{}),
	}
	if p.answers, err = conn.Subscribe(p.inbox+".>", p.dispatch); err != nil {
		return nil, fmt.Errorf("nats: subscribe to acknowledgements: %w", err)
	}
	if err := p.answers.SetPendingLimits(-1, -1); err != nil { // bounded by the window
		return nil, fmt.Errorf("nats: subscribe to acknowledgements: %w", err)
	}
	p.batches.set(allowsBatches(stream))
	if !stream.AllowBatchPublish && stream.Replicas <= 1 {
		cfg.Logger.Info("NATS stream does not allow fast batches, so that messages of one key wait for one another", "stream", stream.Name,
			"remedy", "set allow_batched in the stream's configuration")
	}
	p.status = conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	p.watcher.Go(p.watch)
	return p, nil
}

// headerAllowance is what the headers may add to Message.Size: their names, and the escaping of their values.
const headerAllowance = 4 << 10

func capabilities(maxPayload int64, stream jetstream.StreamConfig) postrider.Capabilities {
	limit := int(maxPayload)
	if stream.MaxMsgSize > 0 {
		limit = min(limit, int(stream.MaxMsgSize))
	}
	return postrider.Capabilities{
		Ordered:         true,
		MaxMessageBytes: max(limit-headerAllowance, limit/2),
		DedupeWindow:    stream.Duplicates,
	}
}

// Capabilities implements postrider.Publisher. MaxMessageBytes is the smaller of the server's max_payload and the
// stream's max_msg_size, minus 4 KiB for headers. DedupeWindow is that of the stream.
func (p *Publisher) Capabilities() postrider.Capabilities { return p.caps }

// Publish implements postrider.Publisher. The package documentation lists the errors.
func (p *Publisher) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]error{fmt.Errorf("publish to NATS: %w", err)}, len(msgs))
	}
	c, err := p.begin(msgs)
	if err != nil {
		return slices.Repeat([]error{postrider.Unavailable(fmt.Errorf("publish to NATS: %w", err))}, len(msgs))
	}
	defer p.running.Done()
	c.refuseTooLarge()
	if len(msgs) > 1 && p.takesBatches(ctx) { // for one message, a batch is more work
		c.inBatches(ctx)
	}
	c.oneByOne(ctx)
	return c.result()
}

// begin registers a call. Close waits for it.
func (p *Publisher) begin(msgs []*postrider.Message) (*call, error) {
	connected := p.conn.IsConnected()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if !connected {
		return nil, errNotConnected
	}
	p.running.Add(1)
	return newCall(p, p.lost, msgs), nil
}

// expect registers w for answers and returns its number. The token of a call is its number in base 36; the token of a
// batch is its ID, which ends with a dash and the number in base 36.
func (p *Publisher) expect(w waiter) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastWaiter++
	p.waiters[p.lastWaiter] = w
	return p.lastWaiter
}

// removeWaiter removes the waiter with the given number.
func (p *Publisher) removeWaiter(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiters, number)
}

// dispatch passes an answer to its waiter, if it still exists.
func (p *Publisher) dispatch(m *nats.Msg) {
	token, rest, _ := strings.Cut(m.Subject[len(p.inbox)+1:], ".")
	number, err := strconv.ParseUint(token[strings.LastIndexByte(token, '-')+1:], 36, 64)
	if err != nil {
		return
	}
	// Taken before w notes the time: a batch that has been silent for PublishTimeout also checks whether the publisher
	// has been.
	now := time.Since(p.began)
	p.mu.Lock()
	w := p.waiters[number]
	p.mu.Unlock()
	known := w == nil && p.isAck(m.Data) // too late, but the stream is alive
	if w != nil {
		known = w.answer(rest, m)
	}
	if known {
		p.answered.Store(int64(now))
	}
}

// takeRoom takes an entry of the window if one is free and the publisher is not closing.
func (p *Publisher) takeRoom() bool {
	select {
	case <-p.closing:
		return false
	default:
	}
	select {
	case p.window <- struct{}{}:
		return true
	default:
		return false
	}
}

// watch notifies the current calls when the connection breaks, because their acknowledgements will not arrive. The next
// server may be another one, so the stream's configuration is read again.
func (p *Publisher) watch() {
	for range p.status {
		p.batches.until.Store(0)
		p.mu.Lock()
		close(p.lost)
		p.lost = make(chan struct{})
		p.mu.Unlock()
	}
}

// silent reports whether no call has received an answer for Config.PublishTimeout.
func (p *Publisher) silent() bool {
	return time.Since(p.began)-time.Duration(p.answered.Load()) >= p.cfg.PublishTimeout
}

// Close stops sending and waits up to Config.PublishTimeout for the acknowledgements of messages that are already sent.
// Messages that were not sent, and all later calls, fail with Unavailable and ErrClosed. Close closes the connection if
// Open made it.
func (p *Publisher) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.watcher.Wait()
		return nil
	}
	p.closed = true
	close(p.closing)
	p.mu.Unlock()
	p.running.Wait()
	p.conn.RemoveStatusListener(p.status)
	p.watcher.Wait()
	err := p.answers.Unsubscribe()
	if p.ownsConn {
		p.conn.Close()
	}
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubscription) {
		err = nil // the connection is closed already
	}
	return err
}
