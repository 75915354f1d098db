package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

// ErrClosed is the cause of the postrider.Unavailable error that Publish returns after Close.
var ErrClosed = errors.New("Kafka publisher is closed")

const (
	// linger is how long an incomplete batch waits for more messages of a call; the last message of the call ends the
	// wait.
	linger = 5 * time.Millisecond
	// maxBuffered is the maximum number of unacknowledged messages, over all calls; see also Config.Buffer.
	maxBuffered = 100_000
)

// Publisher publishes to the topics of a Kafka cluster. It is safe for concurrent use.
type Publisher struct {
	cfg    Config
	client *kgo.Client
	topics *topics
	caps   postrider.Capabilities

	running sync.WaitGroup // calls, and records that the client has
	closing chan struct{}
	// answered is the time of the last acknowledgement by a broker, in nanoseconds since began.
	answered atomic.Int64
	began    time.Time

	mu     sync.Mutex
	closed bool
}

var _ postrider.Publisher = (*Publisher)(nil)

// Open connects to a cluster through one of its brokers, or through several (comma-separated). The URL may have
// credentials, and options after a question mark, which take precedence over cfg (see ParseURL):
//
//	kafka://user:password@host:9092,other:9092?topic=orders&publish_timeout=30s
//
// The scheme kafkas:// requires encryption. Open retries unreachable brokers until ctx ends, and then returns
// postrider.Unavailable. If the credentials or a certificate are rejected, or Topic does not match cfg, Open fails
// immediately with an error that says what to change.
func Open(ctx context.Context, address string, cfg Config) (*Publisher, error) {
	servers, cfg, err := ParseURL(address, cfg)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	brokers, err := brokersOf(servers)
	if err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, closing: make(chan struct{}), began: time.Now()}
	p.topics = &topics{cfg: cfg, running: &p.running, known: make(map[string]*knownTopic)}
	options, err := cfg.options(brokers)
	if err != nil {
		return nil, err
	}
	if p.client, err = kgo.NewClient(append(options, p.producerOptions()...)...); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	p.topics.client, p.topics.admin = p.client, kadm.NewClient(p.client)
	if err := p.prepare(ctx, brokers); err != nil {
		p.client.Close()
		return nil, err
	}
	return p, nil
}

// producerOptions returns the options that the delivery guarantees depend on.
func (p *Publisher) producerOptions() []kgo.Opt {
	wait := p.cfg.PublishTimeout
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(newPartitioner()),
		kgo.ProducerBatchMaxBytesFn(p.topics.batchBytes),
		kgo.ProducerBatchCompression(codecs[p.cfg.Compress], kgo.NoCompression()),
		kgo.ProducerLinger(linger),
		kgo.MaxBufferedRecords(maxBuffered),
		kgo.MaxBufferedBytes(p.cfg.Buffer),
		// A message that fails here is published again later, and the client must not send it too. A message that is
		// already on its way to a broker may still be stored: it is then duplicated, in the right order.
		kgo.RecordDeliveryTimeout(wait),
		kgo.AllowIdempotentProduceCancellation(),
		kgo.ProduceRequestTimeout(wait),
		kgo.RequestTimeoutOverhead(max(wait/2, time.Second)),
		kgo.RetryTimeout(wait),
		kgo.ProducerOnDataLossDetected(func(name string, partition int32) {
			p.cfg.Logger.Error("Kafka has lost acknowledged messages; publish them again (replay)", "topic", name, "partition", partition)
		}),
		kgo.WithHooks(answers{p}),
	}
}

// answers records when a broker has acknowledged a batch.
type answers struct{ p *Publisher }

var _ kgo.HookProduceBatchWritten = answers{}

// OnProduceBatchWritten implements kgo.HookProduceBatchWritten.
func (a answers) OnProduceBatchWritten(kgo.BrokerMetadata, string, int32, kgo.ProduceBatchMetrics) {
	a.p.answered.Store(int64(time.Since(a.p.began)))
}

// answeredSince reports whether anything was acknowledged after t, of any call.
func (p *Publisher) answeredSince(t time.Time) bool {
	return p.began.Add(time.Duration(p.answered.Load())).After(t)
}

// prepare connects, and determines the publisher's capabilities.
func (p *Publisher) prepare(ctx context.Context, brokers []string) error {
	if err := connect(ctx, p.client, brokers, p.cfg.Logger); err != nil {
		return err
	}
	limit, err := brokerLimit(ctx, p.topics.admin)
	if err != nil {
		p.cfg.Logger.Info("Kafka does not tell the largest message that it takes, and the usual limit is assumed; allow DescribeConfigs on the cluster",
			"limit", defaultMessageBytes, "error", err)
		limit = defaultMessageBytes
	}
	if p.cfg.Topic != "" {
		t, err := p.topics.get(ctx, p.cfg.Topic)
		if err != nil {
			return err
		}
		limit = t.limit
	}
	p.caps = postrider.Capabilities{Ordered: true, MaxMessageBytes: sizeLimit(min(limit, p.cfg.Buffer))}
	return nil
}

// Capabilities implements postrider.Publisher. MaxMessageBytes is the max.message.bytes of Config.Topic, or the brokers'
// message.max.bytes, at most Config.Buffer, minus 4 KiB for headers. The limit of an individual topic also applies.
func (p *Publisher) Capabilities() postrider.Capabilities { return p.caps }

// Publish implements postrider.Publisher. The package documentation lists the errors.
func (p *Publisher) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]error{fmt.Errorf("publish to Kafka: %w", err)}, len(msgs))
	}
	if !p.begin() {
		return slices.Repeat([]error{clusterError(ErrClosed)}, len(msgs))
	}
	defer p.running.Done()
	return newCall(p, msgs).run(ctx)
}

// begin registers a call unless the publisher is closed.
func (p *Publisher) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Add(1)
	return true
}

// Close stops sending and waits up to Config.PublishTimeout for the acknowledgements of messages that are already sent.
// Messages that were not sent, and all later calls, fail with Unavailable and ErrClosed.
func (p *Publisher) Close() error {
	p.mu.Lock()
	first := !p.closed
	if first {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	if first {
		// Closing the client fails messages that are not acknowledged by then.
		defer time.AfterFunc(p.cfg.PublishTimeout, p.client.Close).Stop()
	}
	p.running.Wait()
	p.client.Close()
	return nil
}
