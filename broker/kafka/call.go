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

// call is one Publish under way. It sends in rounds: all that may go now, then what had to wait for an answer of that round,
// until every message is finished.
type call struct {
	p *Publisher
	// lanes are the messages that are not finished, by key and in order; one without a key has a lane of its own.
	lanes  []*lane
	round  int
	errs   []error
	failed bool

	// Memory that a call leaves to a later one.
	all     []outgoing
	own     []lane      // that of all[i] if it is the first of its key
	firsts  []*outgoing // the beginnings of lanes
	byKey   map[string]*lane
	ready   []*outgoing
	records []*kgo.Record
	encoder encoder
}

type lane struct{ messages []*outgoing }

var calls = sync.Pool{New: func() any { return &call{byKey: make(map[string]*lane)} }}

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
			c.lanes = append(c.lanes, l)
		} else {
			o.previous = l.messages[len(l.messages)-1]
		}
		l.messages = append(l.messages, o)
	}
	return c
}

// room returns n values, which are zero if those of s are.
func room[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// A call leaves nothing when it had more messages, or longer headers, than a relay's.
const keepMessages, keepBytes = 10_000, 8 << 20

// release leaves the memory to another call. All messages were accepted: the client has none of the records any more.
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
	c.p, c.lanes, c.round = nil, c.lanes[:0], 0
	c.encoder.reset()
	calls.Put(c)
}

// run returns the errors, nil if there are none.
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
	for _, l := range c.lanes { // if err is not nil
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

// encode makes the records, and finishes the messages that cannot be sent at all.
func (c *call) encode(ctx context.Context) error {
	topics := make(map[string]*topic)
	unfit := make(map[string]error)
	for _, l := range c.lanes {
		for _, o := range l.messages {
			name := o.msg.Topic
			if topics[name] == nil && unfit[name] == nil {
				topics[name], unfit[name] = c.p.topicOf(ctx, name)
				switch err := unfit[name]; {
				case ctx.Err() != nil:
					return fmt.Errorf("publish to Kafka: %w", ctx.Err())
				case postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable:
					return err // it would be the same for all topics
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
	c.forgetFinished()
	return nil
}

// next returns what may be sent now: of each lane as much as fits into a batch.
func (c *call) next() []*outgoing {
	next := c.ready[:0]
	for _, l := range c.lanes {
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

// follow begins a round with those messages that may be sent in it: all before them in their key are accepted, or sent in
// this round to the same topic, in which case they may only stand in the same batch.
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

// send hands messages to the client and waits for all answers. It fails if nothing may be sent any more, or ctx ends first;
// then the client may still have the messages, and the call is to be given up.
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
		o.record.Timestamp = time.Time{} // now, by which the client measures PublishTimeout
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

// answer takes in what the client says of a message.
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

// refusedOf returns those of messages that stood in a batch that was refused.
func refusedOf(messages []*outgoing) []*outgoing {
	var refused []*outgoing
	for _, o := range messages {
		if o.state == rejected && blameFor(o.err) == ofTheBatch {
			refused = append(refused, o)
		}
	}
	return refused
}

// isolate sends messages of refused batches again, in halves, until each is accepted or refused alone. (It may then still
// have shared its batch with one of another call; it fails and is delivered with the next attempt.)
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

// settle takes note of the answers to all messages.
func (c *call) settle() {
	for _, l := range c.lanes {
		for len(l.messages) > 0 && l.messages[0].state == accepted {
			l.messages = l.messages[1:]
		}
		if len(l.messages) > 0 && l.messages[0].state == rejected {
			o := l.messages[0]
			if blameFor(o.err) == ofTheTopic {
				c.p.topics.forget(o.topic.name)
			}
			c.finish(l, o, o.outcome())
		}
	}
	c.forgetFinished()
}

// finish fails a message of a lane, and those behind it.
func (c *call) finish(l *lane, o *outgoing, err error) {
	i := slices.Index(l.messages, o)
	c.errs[o.index], c.failed = err, true
	behind := postrider.PredecessorFailed(o.msg, err)
	for _, follower := range l.messages[i+1:] {
		c.errs[follower.index] = behind
	}
	l.messages = l.messages[:i]
}

func (c *call) forgetFinished() {
	c.lanes = slices.DeleteFunc(c.lanes, func(l *lane) bool { return len(l.messages) == 0 })
}
