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

// ErrClosed is why Publish finds the broker unavailable after Close.
var ErrClosed = errors.New("NATS publisher is closed")

// errNotConnected is why Publish finds the broker unavailable while there is no connection.
var errNotConnected = errors.New("no connection to NATS; it is made again as soon as a server can be reached")

// Publisher publishes to one JetStream stream. It is safe for concurrent use.
type Publisher struct {
	cfg      Config
	conn     *nats.Conn
	ownsConn bool
	stream   jetstream.StreamConfig
	caps     postrider.Capabilities

	js      jetstream.JetStream
	inbox   string // answers come to <inbox>.<token>.<more>; see expect
	batchID string // the beginning of the ID of every batch of this publisher, and of no other's
	answers *nats.Subscription
	// window has an entry for every message that waits for its acknowledgement.
	window chan struct{}
	// ackBegin is what acknowledgements of the stream begin with.
	ackBegin []byte
	// answered is when an answer came last, of any call, as nanoseconds since began.
	answered atomic.Int64
	began    time.Time
	batches  batchesAllowed

	status  chan nats.Status
	watcher sync.WaitGroup
	running sync.WaitGroup // calls under way
	closing chan struct{}

	mu         sync.Mutex
	waiters    map[uint64]waiter
	lastWaiter uint64
	lost       chan struct{} // closed and replaced when the connection breaks
	closed     bool
}

// waiter is what answers come to: a call that sends messages one by one, or a batch of one.
type waiter interface {
	// answer takes in an answer. rest is what its subject has behind the waiter's token. It reports false for what does not
	// come from a stream.
	answer(rest string, m *nats.Msg) (known bool)
}

var _ postrider.Publisher = (*Publisher)(nil)

// New returns a Publisher on a connection that the caller keeps and closes, after Close. The stream is created or checked
// within ctx. Its error names everything in cfg or about the stream that has to be changed.
//
// The connection should reconnect for ever (nats.MaxReconnects(-1)) and hold nothing back while it has no server
// (nats.ReconnectBufSize(-1)), as one made by Open does.
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

// headerAllowance is what the headers may add to Message.Size: their names, and what has to be escaped in their values.
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

// Capabilities implements postrider.Publisher. MaxMessageBytes is the server's max_payload, or the stream's max_msg_size
// if that is less, without 4 KiB for headers; DedupeWindow is the stream's.
func (p *Publisher) Capabilities() postrider.Capabilities { return p.caps }

// Publish implements postrider.Publisher. See the package comment for which failure is reported how.
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
	if len(msgs) > 1 && p.takesBatches(ctx) { // of one message, a batch is more work
		c.inBatches(ctx)
	}
	c.oneByOne(ctx)
	return c.result()
}

// begin makes a call that Close waits for.
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

// expect has answers go to w and returns w's number. The token of a call is its number in base 36, that of a batch is its
// ID, which ends with a dash and its number in base 36.
func (p *Publisher) expect(w waiter) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastWaiter++
	p.waiters[p.lastWaiter] = w
	return p.lastWaiter
}

// forget lets go of the answers to waiter number.
func (p *Publisher) forget(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiters, number)
}

// dispatch hands an answer to the call or batch that waits for it, if it still does.
func (p *Publisher) dispatch(m *nats.Msg) {
	token, rest, _ := strings.Cut(m.Subject[len(p.inbox)+1:], ".")
	number, err := strconv.ParseUint(token[strings.LastIndexByte(token, '-')+1:], 36, 64)
	if err != nil {
		return
	}
	// Not later than what w notes of it: a batch that has been silent for PublishTimeout asks whether the publisher has been, too.
	now := time.Since(p.began)
	p.mu.Lock()
	w := p.waiters[number]
	p.mu.Unlock()
	known := w == nil && p.isAck(m.Data) // late, but the stream is there
	if w != nil {
		known = w.answer(rest, m)
	}
	if known {
		p.answered.Store(int64(now))
	}
}

// takeRoom takes a place in the window if there is one and the publisher is not closing.
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

// watch tells the calls under way when the connection breaks: their acknowledgements will not come. The next server may be
// another, so what the stream allows is looked at again.
func (p *Publisher) watch() {
	for range p.status {
		p.batches.until.Store(0)
		p.mu.Lock()
		close(p.lost)
		p.lost = make(chan struct{})
		p.mu.Unlock()
	}
}

// silent says whether no acknowledgement, of whatever call, has come for Config.PublishTimeout.
func (p *Publisher) silent() bool {
	return time.Since(p.began)-time.Duration(p.answered.Load()) >= p.cfg.PublishTimeout
}

// Close lets the calls under way send nothing more and waits for what they have sent to be acknowledged, at most for
// Config.PublishTimeout; what was not sent fails with Unavailable and ErrClosed, and so does every later call. A connection that
// Open made is closed.
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
		err = nil // the connection has ended already, and the subscription with it
	}
	return err
}
