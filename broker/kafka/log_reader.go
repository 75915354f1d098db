package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

// logReadBytes is how many (compressed) bytes a reader of a partition fetches ahead.
const logReadBytes = 1 << 20

var errRecreated = errors.New("the topic was recreated")

// ReadLog implements postrider.Log. Each reader has a client of its own, which reads one partition without a group.
func (s *Subscriber) ReadLog(ctx context.Context, p postrider.LogPartition, after int64) (postrider.LogReader, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	r := &logReader{s: s, part: p}
	r.life, r.end = context.WithCancel(context.Background())
	if err := r.open(ctx, after); err != nil {
		r.end()
		return nil, postrider.Unavailable(fmt.Errorf("read partition %s of Kafka: %w", p.Name, err))
	}
	return r, nil
}

// logReader reads a partition. It ends with the first error of its connections to the brokers, or of the partition.
type logReader struct {
	s      *Subscriber
	part   postrider.LogPartition
	client *kgo.Client
	left   []*kgo.Record
	life   context.Context // until the reader ends
	end    context.CancelFunc

	mu    sync.Mutex
	ended error
}

var (
	_ kgo.HookBrokerConnect = (*logReader)(nil)
	_ kgo.HookBrokerE2E     = (*logReader)(nil)
)

func (r *logReader) open(ctx context.Context, after int64) error {
	shared, err := r.s.shared()
	if err != nil {
		return err
	}
	details, err := describeTopic(ctx, shared, r.part.Topic)
	if err != nil {
		return err
	}
	if topicID(details) != r.part.Incarnation {
		return errRecreated
	}
	first, err := offsetsAt(ctx, shared, details, earliest)
	if err != nil {
		return err
	}
	number := int32(r.part.Number)
	at := kgo.NewOffset().At(max(after+1, first[number]))
	r.client, err = kgo.NewClient(append(r.s.options[:len(r.s.options):len(r.s.options)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.part.Topic: {number: at}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepRetryableFetchErrors(), // any error ends the reader
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a position passes them, so that their removal is no loss
		kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(int32(min(r.s.cfg.FetchBytes, logReadBytes))),
		kgo.FetchMaxPartitionBytes(int32(min(r.s.cfg.FetchBytes, logReadBytes))),
		kgo.BrokerMaxReadBytes(1<<30),
		kgo.WithHooks(r),
	)...)
	return err
}

// fail ends the reader.
func (r *logReader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = err
		r.end()
	}
}

func (r *logReader) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (r *logReader) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		r.fail(fmt.Errorf("connect to %s:%d: %w", meta.Host, meta.Port, err))
	}
}

// OnBrokerE2E implements kgo.HookBrokerE2E. After a fetch that failed, the next records may come from another log.
func (r *logReader) OnBrokerE2E(meta kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if err := e2e.Err(); err != nil && key == fetchKey {
		r.fail(fmt.Errorf("broker %s:%d: %w", meta.Host, meta.Port, err))
	}
}

// Read implements postrider.LogReader.
func (r *logReader) Read(ctx context.Context, limit, maxBytes int) ([]*postrider.Delivery, error) {
	for {
		if err := r.err(); err != nil {
			return nil, postrider.Unavailable(fmt.Errorf("read partition %s of Kafka: %w", r.part.Name, err))
		}
		if len(r.left) > 0 {
			return r.take(limit, maxBytes), nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.poll(ctx, limit)
	}
}

// poll takes records from the client until ctx or the reader ends.
func (r *logReader) poll(ctx context.Context, limit int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.life, cancel)()
	for _, f := range r.client.PollRecords(ctx, limit) {
		for _, t := range f.Topics {
			for i := range t.Partitions {
				r.left = append(r.left, t.Partitions[i].Records...)
				if err := t.Partitions[i].Err; err != nil && ctx.Err() == nil {
					r.fail(err)
				}
			}
		}
	}
}

// take returns the deliveries of the next records.
func (r *logReader) take(limit, maxBytes int) (out []*postrider.Delivery) {
	for len(r.left) > 0 && len(out) < limit {
		record := r.left[0]
		if maxBytes -= len(record.Value); maxBytes < 0 && len(out) > 0 {
			break
		}
		d := &postrider.Delivery{}
		if !record.Attrs.IsControl() {
			d = r.s.cfg.deliver(record)
		}
		d.Position = postrider.Position{Incarnation: r.part.Incarnation, Partition: r.part.Name, Offset: record.Offset, Mark: recordMark(record)}
		out, r.left = append(out, d), r.left[1:]
	}
	return out
}

// Close implements postrider.LogReader.
func (r *logReader) Close(context.Context) error {
	r.fail(postrider.ErrSubscriptionClosed)
	r.client.Close()
	return nil
}
