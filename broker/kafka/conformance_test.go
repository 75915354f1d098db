package kafkabroker_test

import (
	"context"
	"fmt"
	"iter"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

// TestConformance runs the contract tests through a proxy that causes faults. A connection cannot lose a single message
// and continue, so that fault does not exist. Only the restart tests kill the server; the other tests share one that the
// proxy makes unreachable.
func TestConformance(t *testing.T) {
	t.Parallel()
	features := brokertest.Features{NoDedupe: true, NoLoseMessages: true}
	brokertest.Run(t, features, func(t *testing.T) brokertest.Harness {
		if strings.Contains(t.Name(), "restart") {
			s := startServer(t, "")
			h := harness(t, s.address, "")
			h.Stop, h.Start = s.stop, s.start
			return h
		}
		address, prefix := sharedServer(t), newPrefix()
		if strings.HasSuffix(t.Name(), "fidelity") {
			prefix = "" // one of the topics has the maximum name length
		}
		h := harness(t, address, prefix)
		if prefix == "" {
			h.Arrived = deletingArrived(t, address, h.Arrived)
		}
		return h
	})
}

func harness(t *testing.T, address, prefix string) brokertest.Harness {
	faults := newProxy(t, address)
	p, err := kafkabroker.Open(by(t), "kafka://"+faults.Address(), kafkabroker.Config{
		Connection: through(faults), Prefix: prefix, Create: true, Partitions: 3, PublishTimeout: 15 * time.Second, Compress: "none",
	})
	if err != nil {
		t.Fatal(err)
	}
	return brokertest.Harness{
		Publisher: p,
		Close:     p.Close,
		Arrived: func(t testing.TB, topic string) []*postrider.Message {
			return arrived(t, address, kafkabroker.TopicName(prefix, topic))
		},
		Refuse:   faults.refuse.Mark,
		LoseAcks: faults.loseAck.Mark,
		Drop:     faults.Drop,
		Pause:    faults.Pause,
		Resume:   faults.Resume,
		Stop:     func(testing.TB) { faults.Sever() },
		Start:    func(testing.TB) { faults.Restore() },
	}
}

// deletingArrived deletes the topics that were read at the end of the test, so that it can run again on the same server.
func deletingArrived(t *testing.T, address string, arrived func(testing.TB, string) []*postrider.Message) func(testing.TB, string) []*postrider.Message {
	var names []string
	client := plainClient(t, address)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := kadm.NewClient(client).DeleteTopics(ctx, names...); err != nil {
			t.Errorf("delete topics: %v", err)
		}
	})
	return func(t testing.TB, topic string) []*postrider.Message {
		names = append(names, kafkabroker.TopicName("", topic))
		return arrived(t, topic)
	}
}

// through connects through a proxy, whatever address the broker advertises.
func through(p *proxy, options ...kgo.Opt) kafkabroker.Connection {
	return kafkabroker.Connection{Options: append(options, kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, p.Address())
	}))}
}

var prefixes atomic.Int64

// newPrefix returns a topic prefix that no other test or earlier run uses.
func newPrefix() string {
	return fmt.Sprintf("test%x-%d.", time.Now().UnixNano(), prefixes.Add(1))
}

// arrived reads all messages of a topic, partition by partition.
func arrived(t testing.TB, address, topic string) []*postrider.Message {
	t.Helper()
	var msgs []*postrider.Message
	for _, r := range records(t, address, topic) {
		m, err := postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}.Decode(headers(r), r.Value)
		if err != nil {
			t.Fatalf("record %d of %s/%d: %v", r.Offset, topic, r.Partition, err)
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// records reads all records of a topic, partition by partition.
func records(t testing.TB, address, topic string) []*kgo.Record {
	t.Helper()
	ctx := by(t)
	client := plainClient(t, address, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100*time.Millisecond))
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatalf("list offsets of %s: %v", topic, err)
	}
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	read := make([][]*kgo.Record, 64)
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			read[r.Partition] = append(read[r.Partition], r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	var all []*kgo.Record
	for _, partition := range read {
		all = append(all, partition...)
	}
	return all
}

func headers(r *kgo.Record) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, h := range r.Headers {
			if !yield(h.Key, string(h.Value)) {
				return
			}
		}
	}
}
