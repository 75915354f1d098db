package kafkabroker

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partitioner chooses the partition of a record as the Java client does by default (the murmur2 hash of its key, or any one
// for a while), and holds back a record that must not go yet. It is what the order of keys rests on.
//
// A record that follows another of its key (outgoing.before) may only stand in the same batch as that one: then the broker
// takes both or none. Whether it does is decided here, under the lock under which the client fills batches. The client asks
// Partition, and adds the record to the last batch of that partition if it is still open. If a new batch would have to be
// begun, it calls OnNewBatch and asks again: so every batch gets a number here before it has a record. A record is held back
// if a batch was begun since the record before it was placed, or would be begun with it; why the other batch is no longer
// open (full, sent, failed) does not matter.
type partitioner struct {
	keyed kgo.Partitioner // of the client
	begun atomic.Uint64   // the number of batches begun, over all topics
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
	fresh  bool // the record that is asked about next begins a batch
	// last is the batch begun last in each partition by a record with a key, unkeyed that by one without: the number by which
	// the client knows the partition of such a record is that of a partition that can be written to, and may be another's.
	last    []uint64
	unkeyed uint64
}

var _ kgo.TopicPartitionerOnNewBatch = (*topicPartitioner)(nil)

// nowhere is a partition that does not exist: the client fails the record.
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

// current is the number of the batch begun last that may be one of the partition.
func (p *topicPartitioner) current(partition int) uint64 { return max(p.last[partition], p.unkeyed) }
