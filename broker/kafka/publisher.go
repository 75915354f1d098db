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

// ErrClosed is why Publish finds the broker unavailable after Close.
var ErrClosed = errors.New("Kafka publisher is closed")

const (
	// linger is how long a batch that is not full waits for the rest of a call; the call's last message ends the wait.
	linger = 5 * time.Millisecond
	// maxBuffered bounds the messages that wait for their acknowledgement, over all calls; see also Config.Buffer.
	maxBuffered = 100_000
)

// Publisher publishes to the topics of a Kafka cluster. It is safe for concurrent use.
type Publisher struct {
	cfg    Config
	client *kgo.Client
	topics *topics
	caps   postrider.Capabilities

	running sync.WaitGroup // calls, and what they have handed to the client
	closing chan struct{}
	// answered is when a broker acknowledged something last, as nanoseconds since began.
	answered atomic.Int64
	began    time.Time

	mu     sync.Mutex
	closed bool
}

var _ postrider.Publisher = (*Publisher)(nil)

// Open connects to a cluster by one of its brokers, or by several separated by commas. The URL may carry credentials, and
// options behind a question mark, which go before those of cfg (see ParseURL):
//
//	kafka://user:password@host:9092,other:9092?topic=orders&publish_timeout=30s
//
// The scheme kafkas:// asks for encryption. Brokers that cannot be reached are tried until ctx ends, which is reported as
// postrider.Unavailable; credentials or a certificate that are refused, and a Topic that does not fit cfg, fail Open at once
// with an error that says what to change.
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

// producerOptions are those that the promises depend on.
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
		// A message that is given up here is published again later, and must not be sent by two ways at once. What is on the way
		// to a broker may be stored all the same: then it arrives twice, in the right order.
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

// answers notes when a broker has acknowledged something.
type answers struct{ p *Publisher }

var _ kgo.HookProduceBatchWritten = answers{}

// OnProduceBatchWritten implements kgo.HookProduceBatchWritten.
func (a answers) OnProduceBatchWritten(kgo.BrokerMetadata, string, int32, kgo.ProduceBatchMetrics) {
	a.p.answered.Store(int64(time.Since(a.p.began)))
}

// answeredSince says whether anything was acknowledged since a time, of whatever call.
func (p *Publisher) answeredSince(t time.Time) bool {
	return p.began.Add(time.Duration(p.answered.Load())).After(t)
}

// prepare connects, and finds out what the publisher can promise.
func (p *Publisher) prepare(ctx context.Context, brokers []string) error {
	if err := connect(ctx, p.client, brokers); err != nil {
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

// Capabilities implements postrider.Publisher. MaxMessageBytes is the max.message.bytes of Config.Topic, or else the brokers'
// message.max.bytes, without 4 KiB for headers; a topic may have a limit of its own, to which its messages are held.
func (p *Publisher) Capabilities() postrider.Capabilities { return p.caps }

// Publish implements postrider.Publisher. See the package comment for which failure is reported how.
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

// begin registers a call.
func (p *Publisher) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Add(1)
	return true
}

// Close lets the calls under way send nothing more and waits for what they have sent to be acknowledged, at most for
// Config.PublishTimeout; what was not sent fails with Unavailable and ErrClosed, and so does every later call.
func (p *Publisher) Close() error {
	p.mu.Lock()
	first := !p.closed
	if first {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	if first {
		// The end of the client fails what has no answer by then.
		defer time.AfterFunc(p.cfg.PublishTimeout, p.client.Close).Stop()
	}
	p.running.Wait()
	p.client.Close()
	return nil
}
