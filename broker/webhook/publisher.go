package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
)

// ErrClosed is the cause of the postrider.Unavailable error that Publish returns after Close.
var ErrClosed = errors.New("webhook publisher is closed")

// messagesPerSlot is the maximum number of messages per call and concurrent request. A call returns when all its
// messages are answered; with a slow receiver, a longer call would run out of time.
const messagesPerSlot = 4

// Publisher posts messages to one URL. It is safe for concurrent use.
type Publisher struct {
	cfg     Config
	secrets []secret
	client  *http.Client
	// recorder is nil if attempts are not recorded.
	recorder *recorder
	slots    chan struct{} // one entry per running request
	// answered is the time of the last answer, whatever its status, in nanoseconds since began.
	answered atomic.Int64
	began    time.Time
	throttle throttle

	closing chan struct{}
	ended   chan struct{}  // closed when the first Close returns
	running sync.WaitGroup // running calls
	mu      sync.Mutex
	closed  bool
}

var _ postrider.Publisher = (*Publisher)(nil)

// New returns a Publisher. It does not connect. The error lists everything that is wrong in cfg.
func New(cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	secrets, secretErr := cfg.readSecrets()
	encryption, tlsErr := cfg.readTLS()
	if err := errors.Join(cfg.validate(), secretErr, tlsErr); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: cfg.Timeout, Control: guard(cfg.Allow)}
	return &Publisher{
		cfg:     cfg,
		secrets: secrets,
		client: &http.Client{
			Transport: &http.Transport{
				DialContext:         dialer.DialContext,
				TLSClientConfig:     encryption,
				TLSHandshakeTimeout: cfg.Timeout,
				ForceAttemptHTTP2:   true,
				// Without pings, a broken HTTP/2 connection would be used until the operating system closes it.
				HTTP2:                  &http.HTTP2Config{SendPingTimeout: cfg.Timeout, PingTimeout: cfg.Timeout},
				MaxIdleConnsPerHost:    cfg.Concurrency,
				IdleConnTimeout:        90 * time.Second,
				MaxResponseHeaderBytes: 64 << 10,
				DisableCompression:     true, // a small response must not expand to a large one
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Timeout:       cfg.Timeout,
		},
		recorder: startRecorder(cfg),
		slots:    make(chan struct{}, cfg.Concurrency),
		began:    time.Now(),
		closing:  make(chan struct{}),
		ended:    make(chan struct{}),
	}, nil
}

// Capabilities implements postrider.Publisher. DedupeWindow is 0: dropping duplicates is up to the receiver.
func (p *Publisher) Capabilities() postrider.Capabilities {
	return postrider.Capabilities{Ordered: true, MaxBatch: messagesPerSlot * p.cfg.Concurrency, MaxMessageBytes: p.cfg.MaxMessageBytes}
}

// Publish implements postrider.Publisher. The package documentation lists the outcomes.
func (p *Publisher) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	if !p.begin() {
		return slices.Repeat([]error{postrider.Unavailable(ErrClosed)}, len(msgs))
	}
	defer p.running.Done()
	c := &call{p: p, msgs: msgs, errs: make([]error, len(msgs))}
	var senders sync.WaitGroup
	chains := make(chan []int)
	all := chainsOf(msgs)
	for range min(p.cfg.Concurrency, len(all)) {
		senders.Go(func() {
			for chain := range chains {
				c.send(ctx, chain)
			}
		})
	}
	for _, chain := range all {
		chains <- chain
	}
	close(chains)
	senders.Wait()
	if slices.ContainsFunc(c.errs, func(err error) bool { return err != nil }) {
		return c.errs
	}
	return nil
}

// begin registers a call unless the publisher is closed.
func (p *Publisher) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.running.Add(1)
	}
	return !p.closed
}

// Close waits for running requests, at most Config.Timeout, and writes the remaining attempts to the log, at most 5 s.
// Messages that were not sent, and all later calls, fail with Unavailable and ErrClosed.
func (p *Publisher) Close() error {
	p.mu.Lock()
	again := p.closed
	if !again {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	if again {
		<-p.ended
		return nil
	}
	defer close(p.ended)
	p.running.Wait()
	p.recorder.close()
	p.client.CloseIdleConnections()
	return nil
}

// chainsOf returns the messages of each key, by index and in order; a message without a key is its own chain.
func chainsOf(msgs []*postrider.Message) [][]int {
	var chains [][]int
	byKey := make(map[string]int)
	for i, m := range msgs {
		if n, ok := byKey[m.Key]; ok && m.Key != "" {
			chains[n] = append(chains[n], i)
			continue
		}
		byKey[m.Key] = len(chains)
		chains = append(chains, []int{i})
	}
	return chains
}

// call is one Publish call.
type call struct {
	p    *Publisher
	msgs []*postrider.Message
	errs []error
	// down is set when the receiver is unavailable: the unsent messages then fail with the same error.
	down atomic.Pointer[error]
}

// send sends the messages of a chain one after another, until one fails.
func (c *call) send(ctx context.Context, chain []int) {
	for n, i := range chain {
		err := c.sendOne(ctx, c.msgs[i])
		if err == nil {
			continue
		}
		if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
			c.down.CompareAndSwap(nil, &err)
		}
		c.errs[i] = err
		for _, follower := range chain[n+1:] {
			c.errs[follower] = postrider.PredecessorFailed(c.msgs[i], err)
		}
		return
	}
}

func (c *call) sendOne(ctx context.Context, m *postrider.Message) error {
	if limit := c.p.cfg.MaxMessageBytes; limit > 0 && m.Size() > limit {
		return postrider.Dead("too large for the receiver", fmt.Errorf("%d bytes; MaxMessageBytes is %d", m.Size(), limit))
	}
	if down := c.down.Load(); down != nil {
		return *down
	}
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	select {
	case <-c.p.closing:
		return postrider.Unavailable(ErrClosed)
	default:
	}
	select {
	case c.p.slots <- struct{}{}:
		defer func() { <-c.p.slots }()
		return c.p.post(ctx, m)
	case <-c.p.closing:
		return postrider.Unavailable(ErrClosed)
	case <-ctx.Done():
		return notSent(ctx.Err())
	}
}

// notSent is the error of a message that was not sent because time ran out. It does not count as an attempt.
func notSent(err error) error {
	return fmt.Errorf("post to webhook: not sent: %w: %w", err, postrider.Snooze(time.Second))
}
