package memorybroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/postrider/postrider"
)

var _ postrider.Log = (*Subscriber)(nil)

// errInterrupted ends the readers of a log that was recreated. They do not notice that a log has lost its tail.
var errInterrupted = errors.New("memory broker: the log was recreated")

// Expire removes the first n messages of a topic from its log, as retention does. Groups, Messages and Broker.Subscribe still have
// them.
func (b *Broker) Expire(topic string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expired[topic] = max(b.expired[topic], min(n, len(b.topics[topic])))
	b.tell()
}

// partitionName is the Partition of positions.
func partitionName(topic string, partition int) string { return fmt.Sprintf("%s/%d", topic, partition) }

// logEntry is a message in a partition of a log.
type logEntry struct {
	msg    *postrider.Message
	offset int64
}

// entries returns the messages of a partition after an offset, and the state of the partition. It needs b.mu.
func (s *Subscriber) entries(topic string, partition int, after int64, limit int) (out []logEntry, state postrider.LogPartition) {
	b := s.broker
	state = postrider.LogPartition{
		Name: partitionName(topic, partition), Incarnation: strconv.Itoa(b.incarnations[topic]), Topic: topic, Number: partition, End: -1,
		Term: strconv.FormatInt(b.sessions, 10),
	}
	for i, m := range b.topics[topic] {
		if postrider.PartitionOf(m.Key, m.ID, s.cfg.Partitions) != partition {
			continue
		}
		state.End++
		switch {
		case i < b.expired[topic]:
			state.First = state.End + 1
		case state.End > after && len(out) < limit:
			out = append(out, logEntry{m, state.End})
		}
	}
	return out, state
}

// Partitions implements postrider.Log.
func (s *Subscriber) Partitions(ctx context.Context, names ...string) ([]postrider.LogPartition, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if err := s.broker.unavailable(); err != nil {
		return nil, err
	}
	var out []postrider.LogPartition
	for _, topic := range s.cfg.Topics {
		for p := range s.cfg.Partitions {
			_, state := s.entries(topic, p, 0, 0)
			if len(names) == 0 || slices.Contains(names, state.Name) {
				out = append(out, state)
			}
		}
	}
	return out, nil
}

// ReadLog implements postrider.Log.
func (s *Subscriber) ReadLog(ctx context.Context, p postrider.LogPartition, after int64) (postrider.LogReader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if err := s.broker.unavailable(); err != nil {
		return nil, err
	}
	if p.Incarnation != strconv.Itoa(s.broker.incarnations[p.Topic]) {
		return nil, postrider.Unavailable(errInterrupted)
	}
	return &logReader{s: s, part: p, after: after}, nil
}

// verifyLog is VerifyPosition for a log without a group.
func (s *Subscriber) verifyLog(at postrider.Position) postrider.PositionState {
	for _, topic := range s.cfg.Topics {
		for p := range s.cfg.Partitions {
			if partitionName(topic, p) != at.Partition || at.Incarnation != strconv.Itoa(s.broker.incarnations[topic]) {
				continue
			}
			found, state := s.entries(topic, p, at.Offset-1, 1)
			switch {
			case at.Offset < state.First:
				return postrider.PositionRemoved
			case len(found) > 0 && found[0].offset == at.Offset && strconv.Itoa(s.broker.numbers[found[0].msg]) == at.Mark:
				return postrider.PositionKept
			}
		}
	}
	return postrider.PositionReplaced
}

// logReader reads one partition.
type logReader struct {
	s     *Subscriber
	part  postrider.LogPartition
	after int64
	ended bool
}

// Read implements postrider.LogReader.
func (r *logReader) Read(ctx context.Context, limit, maxBytes int) ([]*postrider.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.s.broker.mu.Lock()
		changed := r.s.broker.changed
		out, err := r.read(limit, maxBytes)
		r.s.broker.mu.Unlock()
		if len(out) > 0 || err != nil {
			return out, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (r *logReader) read(limit, maxBytes int) ([]*postrider.Delivery, error) {
	b := r.s.broker
	err := b.unavailable()
	if err == nil && (r.ended || r.part.Incarnation != strconv.Itoa(b.incarnations[r.part.Topic])) {
		err = postrider.Unavailable(errInterrupted)
	}
	if err != nil {
		r.ended = true
		return nil, err
	}
	found, _ := r.s.entries(r.part.Topic, r.part.Number, r.after, limit)
	var out []*postrider.Delivery
	for _, e := range found {
		if maxBytes -= len(e.msg.Payload); maxBytes < 0 && len(out) > 0 {
			break
		}
		d := &postrider.Delivery{Message: clone(e.msg), Position: postrider.Position{
			Incarnation: r.part.Incarnation, Partition: r.part.Name, Offset: e.offset, Mark: strconv.Itoa(b.numbers[e.msg]),
		}}
		if b.poison[e.msg] {
			d.Err, d.Raw = errPoison, d.Message.Payload
		}
		out, r.after = append(out, d), e.offset
	}
	return out, nil
}

// Close implements postrider.LogReader.
func (r *logReader) Close(context.Context) error {
	r.s.broker.mu.Lock()
	defer r.s.broker.mu.Unlock()
	r.ended = true
	return nil
}
