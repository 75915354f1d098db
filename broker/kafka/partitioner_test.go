package kafkabroker

import (
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// batches simulates the client: it calls a partitioner as the client does, with at most one open batch per partition.
type batches struct {
	client     *partitioner
	p          kgo.TopicPartitioner
	partitions int
	open       map[int]bool
}

func newBatches(partitions int) *batches {
	client := newPartitioner()
	return &batches{client: client, p: client.ForTopic("orders"), partitions: partitions, open: make(map[int]bool)}
}

// put adds a message, after another one if before is not nil, and returns it and its partition.
func (b *batches) put(key string, before *outgoing) (*outgoing, int) {
	o := &outgoing{before: before}
	o.record = kgo.Record{Context: o}
	if key != "" {
		o.record.Key = []byte(key)
	}
	at := b.p.Partition(&o.record, b.partitions)
	if at != nowhere && !b.open[at] {
		b.p.(kgo.TopicPartitionerOnNewBatch).OnNewBatch()
		at = b.p.Partition(&o.record, b.partitions)
	}
	if at != nowhere {
		b.open[at] = true
	}
	return o, at
}

// end closes the open batch of a partition: it is sent, full, or failed.
func (b *batches) end(partition int) { delete(b.open, partition) }

// TestMessagesOfAKeyShareBatches tests what may happen between a message and the next one of its key.
func TestMessagesOfAKeyShareBatches(t *testing.T) {
	t.Parallel()
	elsewhere := func(b *batches, from int) string { // returns a key of another partition
		for n := 0; ; n++ {
			key := "other/" + strconv.Itoa(n)
			probe := &outgoing{}
			probe.record = kgo.Record{Context: probe, Key: []byte(key)}
			if b.p.Partition(&probe.record, b.partitions) != from {
				return key
			}
		}
	}
	for name, c := range map[string]struct {
		between func(b *batches, partition int)
		waits   bool
	}{
		"nothing":                           {func(*batches, int) {}, false},
		"another message in the same batch": {func(b *batches, _ int) { b.put("a", nil) }, false},
		"a batch in another partition":      {func(b *batches, p int) { b.put(elsewhere(b, p), nil) }, false},
		"the batch has ended":               {func(b *batches, p int) { b.end(p) }, true},
		"it ended and another was begun":    {func(b *batches, p int) { b.end(p); b.put("a", nil) }, true},
		"a batch without keys was begun":    {func(b *batches, _ int) { clear(b.open); b.put("", nil) }, true},
		"the client does not know the topic any more": {func(b *batches, _ int) {
			b.p, b.open = b.client.ForTopic("orders"), make(map[int]bool)
			b.put("a", nil)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBatches(4)
			first, partition := b.put("a", nil)
			if first.waits || partition == nowhere {
				t.Fatal("a message that follows none is held back")
			}
			c.between(b, partition)
			second, at := b.put("a", first)
			if second.waits != c.waits || (at == nowhere) != c.waits {
				t.Errorf("the follower is held back: %v (partition %d), want %v", second.waits, at, c.waits)
			}
			third, _ := b.put("a", second)
			if third.waits != c.waits {
				t.Errorf("the follower's follower is held back: %v, want %v", third.waits, c.waits)
			}
		})
	}
}
