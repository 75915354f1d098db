package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
)

const (
	// Maximum number of messages and bytes per transaction; a single message may be larger. A transaction blocks the
	// server.
	transactionMessages, transactionBytes = 500, 1 << 20
	// clusterTransactions is how many transactions of one call run concurrently.
	clusterTransactions = 16
)

// Publisher publishes to Redis streams. It is safe for concurrent use.
type Publisher struct {
	cfg        Config
	client     redis.UniversalClient
	ownsClient bool

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // calls, and transactions whose call has returned
}

var _ postrider.Publisher = (*Publisher)(nil)

// New returns a Publisher on an existing client, which the caller closes after the Publisher. The error lists everything
// that is wrong in cfg.
//
// The client should respect context deadlines (ContextTimeoutEnabled) and need not retry commands (MaxRetries: -1), as
// clients created by Open do.
func New(client redis.UniversalClient, cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Publisher{cfg: cfg, client: client}, nil
}

// Capabilities implements postrider.Publisher. DedupeWindow is 0: Redis does not detect duplicates.
func (p *Publisher) Capabilities() postrider.Capabilities {
	return postrider.Capabilities{Ordered: true, MaxMessageBytes: p.cfg.MaxMessageBytes}
}

// Publish implements postrider.Publisher. The package documentation explains the order. Unavailable errors say what to
// do about the server.
func (p *Publisher) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]error{fmt.Errorf("publish to Redis: %w", err)}, len(msgs))
	}
	if !p.begin() {
		return slices.Repeat([]error{postrider.Unavailable(fmt.Errorf("publish to Redis: %w", ErrClosed))}, len(msgs))
	}
	defer p.running.Done()
	c := &call{p: p, msgs: msgs, errs: make([]error, len(msgs)), failed: make(map[string]int)}
	for c.next() {
		c.take(p.wait(ctx, c.batch))
	}
	if slices.ContainsFunc(c.errs, func(err error) bool { return err != nil }) {
		return c.errs
	}
	return nil
}

// begin registers a call that Close waits for, unless the publisher is closed.
func (p *Publisher) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.running.Add(1)
	}
	return !p.closed
}

// wait runs a transaction and returns its results, or the error of ctx if ctx ends first: the client respects deadlines,
// but not cancellation.
func (p *Publisher) wait(ctx context.Context, batch []*postrider.Message) []error {
	if ctx.Done() == nil {
		return p.run(ctx, batch)
	}
	results := make(chan []error, 1)
	p.running.Go(func() { results <- p.run(ctx, batch) })
	select {
	case errs := <-results:
		return errs
	case <-ctx.Done():
		return slices.Repeat([]error{ctx.Err()}, len(batch))
	}
}

// run runs one transaction; in a cluster, one per stream, because a transaction is limited to one slot. If the server
// rejects a transaction because the permission for one of its streams is missing, nothing is stored, and run repeats it
// per stream.
func (p *Publisher) run(ctx context.Context, batch []*postrider.Message) []error {
	if _, cluster := p.client.(*redis.ClusterClient); !cluster {
		if errs := p.transact(ctx, batch); !slices.ContainsFunc(errs, forAnother) {
			return errs
		}
	}
	return p.runEach(ctx, batch)
}

// runEach runs one transaction per stream, concurrently.
func (p *Publisher) runEach(ctx context.Context, batch []*postrider.Message) []error {
	at := make(map[string][]int)
	for i, m := range batch {
		stream := p.streamOf(m)
		at[stream] = append(at[stream], i)
	}
	errs := make([]error, len(batch))
	places := make(chan struct{}, clusterTransactions)
	var running sync.WaitGroup
	for _, indexes := range at {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			part := make([]*postrider.Message, len(indexes))
			for j, i := range indexes {
				part[j] = batch[i]
			}
			for j, err := range p.transact(ctx, part) {
				errs[indexes[j]] = err
			}
		})
	}
	running.Wait()
	return errs
}

// transact runs one transaction.
func (p *Publisher) transact(ctx context.Context, batch []*postrider.Message) []error {
	if p.cfg.Replicas > 0 || p.cfg.Fsync {
		return p.confirmed(ctx, batch)
	}
	cmds, err := p.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return p.fill(ctx, pipe, batch) })
	return results(ctx, cmds, err, len(batch))
}

// fill adds messages to a transaction.
func (p *Publisher) fill(ctx context.Context, pipe redis.Pipeliner, batch []*postrider.Message) error {
	for _, m := range batch {
		args := make([]any, 0, 40)
		args = append(args, "xadd", p.streamOf(m))
		if p.cfg.MaxLen > 0 {
			args = append(args, "maxlen", "~", p.cfg.MaxLen)
		}
		args = append(args, "*")
		if err := pipe.Process(ctx, redis.NewStringCmd(ctx, appendFields(args, m)...)); err != nil {
			return err
		}
	}
	return nil
}

func (p *Publisher) streamOf(m *postrider.Message) string {
	return streamOf(p.cfg.Prefix, m.Topic, postrider.PartitionOf(m.Key, m.ID, p.cfg.Partitions))
}

// results returns the results of a transaction's n messages. Messages that failed only because another command failed
// get that error, combined with their EXECABORT.
func results(ctx context.Context, cmds []redis.Cmder, err error, n int) []error {
	if len(cmds) != n || err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		return slices.Repeat([]error{outcome(ctx, err)}, n)
	}
	var cause error
	for _, cmd := range cmds {
		if e := cmd.Err(); e != nil && !redis.IsExecAbortError(e) {
			cause = e
			break
		}
	}
	errs := make([]error, n)
	for i, cmd := range cmds {
		e := cmd.Err()
		if e != nil && cause != nil && redis.IsExecAbortError(e) {
			e = fmt.Errorf("%w: %w", cause, e)
		}
		errs[i] = outcome(ctx, e)
	}
	return errs
}

// forAnother reports whether a message failed only because of another one, in a transaction that stored nothing.
func forAnother(err error) bool {
	return redis.IsExecAbortError(err) && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable
}

// Close waits for running calls, and closes the client if Open created it. Later calls fail with Unavailable and
// ErrClosed.
func (p *Publisher) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	p.running.Wait()
	if closed || !p.ownsClient {
		return nil
	}
	return p.client.Close()
}

// call is one Publish call.
type call struct {
	p      *Publisher
	msgs   []*postrider.Message
	errs   []error
	failed map[string]int // by key: index of the first failed message
	looked int            // msgs[:looked] have been considered
	all    error          // if not nil, nothing more is sent because of it

	batch []*postrider.Message // of the next transaction
	at    []int                // index in msgs of each message of batch
}

// next fills the next transaction. Messages after a failed one of their key are not sent.
func (c *call) next() bool {
	c.batch, c.at = c.batch[:0:0], c.at[:0]
	bytes := 0
	for ; c.looked < len(c.msgs) && len(c.batch) < transactionMessages; c.looked++ {
		i, m := c.looked, c.msgs[c.looked]
		size := m.Size()
		if head, follows := c.failed[m.Key]; follows && m.Key != "" {
			c.errs[i] = postrider.PredecessorFailed(c.msgs[head], c.errs[head])
			continue
		}
		if limit := c.p.cfg.MaxMessageBytes; size > limit {
			c.fail(i, postrider.Dead("too large for the broker", fmt.Errorf("publish to Redis: %d bytes; the limit is %d (MaxMessageBytes)", size, limit)))
			continue
		}
		if c.all != nil {
			c.fail(i, c.all)
			continue
		}
		if len(c.batch) > 0 && bytes+size > transactionBytes {
			break
		}
		c.batch, c.at, bytes = append(c.batch, m), append(c.at, i), bytes+size
	}
	return len(c.batch) > 0
}

// take records the results of the transaction. If the broker is unavailable or the context has ended, no more
// transactions are sent.
func (c *call) take(errs []error) {
	for j, err := range errs {
		if err == nil {
			if head, follows := c.failed[c.batch[j].Key]; follows && head < c.at[j] && c.batch[j].Key != "" {
				c.errs[c.at[j]] = postrider.PredecessorFailed(c.msgs[head], c.errs[head])
			}
			continue
		}
		err = fmt.Errorf("publish to Redis: %w", err)
		c.fail(c.at[j], err)
		if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			c.all = err
		}
	}
}

func (c *call) fail(i int, err error) {
	c.errs[i] = err
	if first, known := c.failed[c.msgs[i].Key]; !known || i < first {
		c.failed[c.msgs[i].Key] = i
	}
}
