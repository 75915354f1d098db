package kafkabroker_test

import (
	"testing"

	"github.com/postrider/postrider"
)

// TestBoundAfterUnsettled leaves the first message of a partition unsettled and settles those after it, of which there are more
// than may be delivered meanwhile. Other partitions go on, although more of this one has been fetched than the queue has space for.
func TestBoundAfterUnsettled(t *testing.T) {
	t.Parallel()
	const bound, more, marks = 16384, 3000, 50
	s := newSource(t)
	var msgs []*postrider.Message
	for i := range bound + more {
		msgs = append(msgs, message("orders", "slow", i))
	}
	mustPublish(t, s.publisher, msgs...)
	sub, _ := s.join(t, nil)
	first := receive(t, sub, 1)[0]
	for n := 1; n < bound; {
		got := receive(t, sub, 1)
		ack(t, got...)
		n += len(got)
	}
	s.publish(t, 0, 3*marks) // about a quarter of them to the same partition
	for n := 0; n < marks; n++ {
		d := receive(t, sub, 1)[0]
		if d.Position.Partition == first.Position.Partition {
			t.Fatalf("offset %d is delivered, and offset %d is not settled", d.Position.Offset, first.Position.Offset)
		}
		ack(t, d)
	}
	ack(t, first)
	for left := more; left > 0; {
		for _, d := range receive(t, sub, 1) {
			ack(t, d)
			if d.Message.Key == "slow" {
				left--
			}
		}
	}
}
