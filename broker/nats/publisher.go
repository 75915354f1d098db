package natsbroker

import (
	"context"
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

	inbox   string // acknowledgements come to <inbox>.<call>.<message>, both numbers in base 36
	answers *nats.Subscription
	// window has an entry for every message that waits for its acknowledgement.
	window chan struct{}
	// answered is when an acknowledgement came last, of any call, as nanoseconds since began.
	answered atomic.Int64
	began    time.Time

	status  chan nats.Status
	watcher sync.WaitGroup
	running sync.WaitGroup // calls under way
	closing chan struct{}

	mu       sync.Mutex
	calls    map[uint64]*call
	lastCall uint64
	lost     chan struct{} // closed and replaced when the connection breaks
	closed   bool
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
	stream, err := prepareStream(ctx, conn, cfg)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		cfg:     cfg,
		conn:    conn,
		stream:  stream,
		caps:    capabilities(conn.MaxPayload(), stream),
		inbox:   conn.NewInbox(),
		window:  make(chan struct{}, cfg.Window),
		began:   time.Now(),
		closing: make(chan struct{}),
		calls:   make(map[uint64]*call),
		lost:    make(chan struct{}),
	}
	if p.answers, err = conn.Subscribe(p.inbox+".*.*", p.dispatch); err != nil {
		return nil, fmt.Errorf("nats: subscribe to acknowledgements: %w", err)
	}
	if err := p.answers.SetPendingLimits(-1, -1); err != nil { // bounded by the window
		return nil, fmt.Errorf("nats: subscribe to acknowledgements: %w", err)
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
	defer p.end(c)
	return c.run(ctx)
}

// begin registers a call.
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
	p.lastCall++
	c := newCall(p, p.lastCall, p.lost, msgs)
	p.calls[p.lastCall] = c
	p.running.Add(1)
	return c, nil
}

func (p *Publisher) end(c *call) {
	p.mu.Lock()
	delete(p.calls, c.number)
	p.mu.Unlock()
	p.running.Done()
}

// dispatch hands an acknowledgement to the call that waits for it, if it still does.
func (p *Publisher) dispatch(m *nats.Msg) {
	call, index, ok := strings.Cut(m.Subject[len(p.inbox)+1:], ".")
	number, err := strconv.ParseUint(call, 36, 64)
	i, err2 := strconv.ParseUint(index, 36, 32)
	if !ok || err != nil || err2 != nil {
		return
	}
	p.answered.Store(int64(time.Since(p.began)))
	p.mu.Lock()
	c := p.calls[number]
	p.mu.Unlock()
	if c != nil {
		c.answer(int(i), m)
	}
}

// watch tells the calls under way when the connection breaks: their acknowledgements will not come.
func (p *Publisher) watch() {
	for range p.status {
		p.mu.Lock()
		close(p.lost)
		p.lost = make(chan struct{})
		p.mu.Unlock()
	}
}

// silent says whether no acknowledgement, of whatever call, has come for Config.AckWait.
func (p *Publisher) silent() bool {
	return time.Since(p.began)-time.Duration(p.answered.Load()) >= p.cfg.AckWait
}

// Close lets the calls under way send nothing more and waits for what they have sent to be acknowledged, at most for
// Config.AckWait; what was not sent fails with Unavailable and ErrClosed, and so does every later call. A connection that
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
