package kafkabroker

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partitioner selects the partition of a record as the Java client does by default (murmur2 hash of the key; sticky
// without a key), and holds back records that must not be sent yet. The order of keys depends on it.
//
// A record that follows another one of its key (outgoing.before) may only be added to the same batch: the broker then
// stores both or none. The partitioner decides this under the lock under which the client fills batches. The client
// calls Partition, and adds the record to the last batch of that partition if it is still open. Otherwise it calls
// OnNewBatch and then Partition again, so every batch has a number here before it has a record. A record is held back if
// a batch was started after its predecessor was added, or would be started for it. Why the other batch is no longer open
// (full, sent, failed) does not matter.
type partitioner struct {
	keyed kgo.Partitioner // the client's partitioner
	begun atomic.Uint64   // number of batches started, over all topics
}

func newPartitioner() *partitioner {
	return &partitioner{keyed: kgo.StickyKeyPartitioner(nil)}
}

// ForTopic implements kgo.Partitioner.
func (p *partitioner) ForTopic(name string) kgo.TopicPartitioner {
	inner := p.keyed.ForTopic(name)
	return &topicPartitioner{TopicPartitioner: inner, sticky: inner.(kgo.TopicPartitionerOnNewBatch), begun: &p.begun}
}

// topicPartitioner is used by one goroutine at a time.
type topicPartitioner struct {
	kgo.TopicPartitioner
	sticky kgo.TopicPartitionerOnNewBatch
	begun  *atomic.Uint64
	fresh  bool // the next record passed to Partition starts a batch
	// last is the last batch that a record with a key started, by partition. unkeyed is the last one started by a record
	// without a key: for such records, the client numbers only writable partitions, so the number may belong to another
	// partition.
	last    []uint64
	unkeyed uint64
}

var _ kgo.TopicPartitionerOnNewBatch = (*topicPartitioner)(nil)

// nowhere is a partition that does not exist; the client fails the record.
const nowhere = -1

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (p *topicPartitioner) OnNewBatch() {
	p.sticky.OnNewBatch()
	p.fresh = true
}

// Partition implements kgo.TopicPartitioner.
func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	o := outgoingOf(r)
	partition := p.TopicPartitioner.Partition(r, n)
	if more := n - len(p.last); more > 0 {
		p.last = append(p.last, make([]uint64, more)...)
	}
	fresh := p.fresh
	p.fresh = false
	if b := o.before; b != nil && (fresh || b.batch == 0 || b.batch != p.current(partition)) {
		o.batch, o.waits = 0, true
		return nowhere
	}
	if fresh {
		number := p.begun.Add(1)
		if r.Key == nil {
			p.unkeyed = number
		} else {
			p.last[partition] = number
		}
	}
	o.batch = p.current(partition)
	return partition
}

// current returns the number of the last batch that may belong to the partition.
func (p *topicPartitioner) current(partition int) uint64 { return max(p.last[partition], p.unkeyed) }
