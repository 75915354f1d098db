package kafkabroker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

// call is one Publish call. It sends in rounds: first all messages that can be sent now, then those that had to wait for
// acknowledgements of the previous round, until every message is finished.
type call struct {
	p *Publisher
	// queues are the unfinished messages by key, in order; each message without a key has its own queue.
	queues []*queue
	round  int
	errs   []error
	failed bool

	// Memory that later calls reuse.
	all     []outgoing
	own     []queue     // own[i] is the queue of all[i] if that is the first message of its key
	firsts  []*outgoing // backing array of the queues' first messages
	byKey   map[string]*queue
	ready   []*outgoing
	records []*kgo.Record
	encoder encoder
}

type queue struct{ messages []*outgoing }

var calls = sync.Pool{New: func() any { return &call{byKey: make(map[string]*queue)} }}

func newCall(p *Publisher, msgs []*postrider.Message) *call {
	c, n := calls.Get().(*call), len(msgs)
	c.p, c.errs, c.all, c.own, c.firsts = p, room(c.errs, n), room(c.all, n), room(c.own, n), room(c.firsts, n)
	for i, m := range msgs {
		o := &c.all[i]
		o.index, o.msg = i, m
		l := c.byKey[m.Key]
		if l == nil || m.Key == "" {
			l = &c.own[i]
			l.messages = c.firsts[i : i : i+1]
			c.byKey[m.Key] = l
			c.queues = append(c.queues, l)
		} else {
			o.previous = l.messages[len(l.messages)-1]
		}
		l.messages = append(l.messages, o)
	}
	return c
}

// room returns a slice of n values in the memory of s. They are zero if those of s are.
func room[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// The memory of calls with more messages, or longer headers, than a relay's is not reused.
const keepMessages, keepBytes = 10_000, 8 << 20

// release makes the memory available to another call. All messages were accepted, so the client no longer has any
// record.
func (c *call) release() {
	if len(c.all) > keepMessages || cap(c.encoder.values) > keepBytes {
		return
	}
	clear(c.all)
	clear(c.own)
	clear(c.firsts)
	clear(c.byKey)
	clear(c.ready[:cap(c.ready)]) // rounds differ in length
	clear(c.records[:cap(c.records)])
	c.p, c.queues, c.round = nil, c.queues[:0], 0
	c.encoder.reset()
	calls.Put(c)
}

// run publishes the messages and returns the errors, nil if there are none.
func (c *call) run(ctx context.Context) []error {
	began := time.Now()
	err := c.encode(ctx)
	for err == nil {
		next := c.next()
		if len(next) == 0 {
			break
		}
		if err = c.send(ctx, next); err == nil {
			err = c.isolate(ctx, refusedOf(next))
		}
		if err == nil {
			c.p.diagnose(next, began)
			c.settle()
		}
	}
	for _, l := range c.queues { // not empty only if err is not nil
		for _, o := range l.messages {
			c.errs[o.index], c.failed = err, true
		}
	}
	if c.failed {
		return c.errs
	}
	c.release()
	return nil
}

// encode creates the records, and fails messages that cannot be sent at all.
func (c *call) encode(ctx context.Context) error {
	topics := make(map[string]*topic)
	unfit := make(map[string]error)
	for _, l := range c.queues {
		for _, o := range l.messages {
			name := o.msg.Topic
			if topics[name] == nil && unfit[name] == nil {
				topics[name], unfit[name] = c.p.topicOf(ctx, name)
				switch err := unfit[name]; {
				case ctx.Err() != nil:
					return fmt.Errorf("publish to Kafka: %w", ctx.Err())
				case postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable:
					return err // the error would be the same for all topics
				}
			}
			err := unfit[name]
			if err == nil {
				o.topic = topics[name]
				err = o.encode(&c.encoder)
			}
			if err != nil {
				c.finish(l, o, err)
				break
			}
		}
	}
	c.removeFinished()
	return nil
}

// next returns the messages that can be sent now: of each queue as many as fit into a batch.
func (c *call) next() []*outgoing {
	next := c.ready[:0]
	for _, l := range c.queues {
		size := 0
		for i, o := range l.messages {
			if size += o.size; i > 0 && size > o.topic.limit {
				break
			}
			next = append(next, o)
		}
	}
	c.ready = next
	return c.follow(next)
}

// follow starts a round and returns the messages that can be sent in it. All predecessors of such a message are
// accepted, or are sent in this round to the same topic; then they must end up in the same batch.
func (c *call) follow(messages []*outgoing) []*outgoing {
	c.round++
	return slices.DeleteFunc(messages, func(o *outgoing) bool {
		o.state, o.before = held, nil
		switch before := o.previous; {
		case before == nil || before.state == accepted:
		case before.round == c.round && before.topic == o.topic:
			o.before = before
		default:
			return true
		}
		o.round = c.round
		return false
	})
}

// send passes messages to the client and waits for all answers. It fails if the publisher is closed or ctx ends first;
// the client may then still have the messages, and the call must end.
func (c *call) send(ctx context.Context, messages []*outgoing) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("publish to Kafka: %w", ctx.Err())
	case <-c.p.closing:
		return clusterError(ErrClosed)
	default:
	}
	records := room(c.records, len(messages))
	for i, o := range messages {
		o.batch, o.waits = 0, false
		o.record.Timestamp = time.Time{} // set by the client; PublishTimeout counts from it
		records[i] = &o.record
	}
	c.records = records
	answers := make(chan kgo.ProduceResults, 1)
	c.p.running.Go(func() { answers <- c.p.client.ProduceSync(context.Background(), records...) })
	select {
	case all := <-answers:
		for _, a := range all {
			outgoingOf(a.Record).answer(a.Err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("publish to Kafka: %w; the topic may have the message", ctx.Err())
	}
}

// answer records the client's result of a message.
func (o *outgoing) answer(err error) {
	o.err = err
	switch {
	case o.waits:
		o.state = held
	case err == nil:
		o.state = accepted
	default:
		o.state = rejected
	}
}

// refusedOf returns the messages whose batch was rejected.
func refusedOf(messages []*outgoing) []*outgoing {
	var refused []*outgoing
	for _, o := range messages {
		if o.state == rejected && blameFor(o.err) == ofTheBatch {
			refused = append(refused, o)
		}
	}
	return refused
}

// isolate sends messages of rejected batches again, in halves, until each is accepted or rejected alone. (A message may
// still have shared its batch with a message of another call; it then fails, and is delivered by the next attempt.)
func (c *call) isolate(ctx context.Context, refused []*outgoing) error {
	if len(refused) < 2 {
		return nil
	}
	for half := range slices.Chunk(refused, (len(refused)+1)/2) {
		half = c.follow(half)
		if len(half) == 0 {
			continue
		}
		if err := c.send(ctx, half); err != nil {
			return err
		}
		if err := c.isolate(ctx, refusedOf(half)); err != nil {
			return err
		}
	}
	return nil
}

// settle processes the answers to all messages.
func (c *call) settle() {
	for _, l := range c.queues {
		for len(l.messages) > 0 && l.messages[0].state == accepted {
			l.messages = l.messages[1:]
		}
		if len(l.messages) > 0 && l.messages[0].state == rejected {
			o := l.messages[0]
			if blameFor(o.err) == ofTheTopic {
				c.p.topics.remove(o.topic.name)
			}
			c.finish(l, o, o.outcome())
		}
	}
	c.removeFinished()
}

// finish fails a message of a queue, and those after it.
func (c *call) finish(l *queue, o *outgoing, err error) {
	i := slices.Index(l.messages, o)
	c.errs[o.index], c.failed = err, true
	failed := postrider.PredecessorFailed(o.msg, err)
	for _, follower := range l.messages[i+1:] {
		c.errs[follower.index] = failed
	}
	l.messages = l.messages[:i]
}

func (c *call) removeFinished() {
	c.queues = slices.DeleteFunc(c.queues, func(l *queue) bool { return len(l.messages) == 0 })
}
