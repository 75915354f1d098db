package natsbroker

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
)

// batch is one fast batch of a call: messages that follow one another to the stream without waiting, each with its number
// in the batch. The stream takes number n+1 only if it has n, whatever happens, so that it always has a beginning of the
// batch and nothing else. It says from time to time up to which number it has the messages, and so it does at the end.
//
// A batch ends with a message of its own that the stream does not store. It also ends at a number that is missing, or that
// the stream refuses: what follows is not taken any more. What is left of the call is then sent one by one, so that every
// message gets its own answer; it has not been stored, or is dropped as a second copy.
type batch struct {
	c      *call
	number uint64
	msgs   []int32 // the call's messages: msgs[0] is number 1

	halted atomic.Bool   // sending more is of no use
	over   chan struct{} // closed when no more answers are to come

	// With the call's mu.
	confirmed int // the stream has msgs[:confirmed]
	ended     bool
	answered  time.Time // when something was heard of the batch last
}

// flow is how many messages the server may take before it says so. It makes it less when there are other batches.
const flow = 500

// What a message is to its batch.
const (
	opStart  = '0'
	opAppend = '1'
	opEnd    = '3' // the message is not stored
)

// inBatches sends the call's messages in fast batches. What has no result then is to be sent one by one.
func (c *call) inBatches(ctx context.Context) {
	left := c.forBatches()
	for len(left) > 0 && c.awaitRoom(ctx) {
		b := &batch{c: c, over: make(chan struct{}), answered: time.Now(), msgs: make([]int32, 0, len(left))}
		b.number = c.p.expect(b)
		left = b.send(ctx, left)
		whole := b.wait(ctx)
		c.p.forget(b.number)
		if !whole {
			c.single.only = true
			return
		}
	}
}

// forBatches returns the messages that may go into a batch: not those that the stream does not take, as far as is known,
// nor what stands behind these in their keys.
func (c *call) forBatches() []int32 {
	left := make([]int32, 0, len(c.msgs))
	var apart map[string]bool // keys
	for i, m := range c.msgs {
		switch {
		case c.state[i] == isDone || apart[m.Key] && m.Key != "":
		case c.encoder.address(m):
			if apart == nil {
				apart = make(map[string]bool)
			}
			apart[m.Key] = true
		default:
			left = append(left, int32(i))
		}
	}
	return left
}

// awaitRoom takes a place in the window. It reports false when the call has ended instead.
func (c *call) awaitRoom(ctx context.Context) bool {
	select {
	case <-c.p.closing:
		c.closed()
		return false
	case <-ctx.Done():
		c.cancelled(ctx)
		return false
	default:
	}
	select {
	case c.p.window <- struct{}{}:
		return true
	case <-c.p.closing:
		c.closed()
	case <-c.lost:
		c.broken()
	case <-ctx.Done():
		c.cancelled(ctx)
	}
	return false
}

// send sends messages of left, in order, while there is room in the window, and then the end of the batch, so that there is
// no waiting for room that only the end would make. It has a place in the window for the first one. It returns what is left.
func (b *batch) send(ctx context.Context, left []int32) []int32 {
	c := b.c
	room := true
	for ; len(left) > 0 && !b.halted.Load() && ctx.Err() == nil; left = left[1:] {
		if room = room || c.p.takeRoom(); !room {
			break
		}
		sent, err := b.put(left[0])
		if err != nil && !c.refusedHere(int(left[0]), err) {
			b.end()
		}
		room = !sent
	}
	if room {
		<-c.p.window
	}
	if len(b.msgs) > 0 {
		b.putEnd()
	} else {
		b.end()
	}
	return left
}

// put sends the batch's next message, unless it has its result already, being behind one that was refused. What is not sent
// leaves its place in the window free.
func (b *batch) put(i int32) (sent bool, err error) {
	c := b.c
	op := byte(opAppend)
	if len(b.msgs) == 0 {
		op = opStart
	}
	// Only the stream that took the first message knows the batch and takes more of it.
	msg, err := c.encoder.encode(c.msgs[i], op == opStart)
	if err != nil {
		return false, err
	}
	msg.Reply = c.encoder.batchReply(b.number, len(b.msgs)+1, op)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state[i] == isDone {
		return false, nil
	}
	if err := c.p.conn.PublishMsg(msg); err != nil {
		return false, err
	}
	b.msgs = append(b.msgs, i)
	c.state[i] = isSent
	return true, nil
}

// putEnd sends the end of the batch, to the subject of its first message.
func (b *batch) putEnd() {
	c := b.c
	err := c.p.conn.PublishMsg(&nats.Msg{
		Subject: Subject(c.p.cfg.Prefix, c.msgs[b.msgs[0]].Topic),
		Reply:   c.encoder.batchReply(b.number, len(b.msgs)+1, opEnd),
	})
	if isUnsendable(err) {
		c.broken()
		b.end()
	}
}

// wait returns when the batch has ended, or when there is no use in waiting. It reports whether the stream has all of it.
func (b *batch) wait(ctx context.Context) bool {
	c := b.c
	timer := time.NewTimer(c.p.cfg.PublishTimeout)
	defer timer.Stop()
	for {
		select {
		case <-b.over:
			return b.settle()
		case <-timer.C:
			if left := b.patience(); left > 0 {
				timer.Reset(left)
				continue
			}
			b.fellSilent()
		case <-c.lost:
			b.end()
			c.broken()
		case <-ctx.Done():
			b.end()
			c.cancelled(ctx)
		}
	}
}

// fellSilent ends a batch of which nothing was heard for PublishTimeout. If nothing else was answered either, the call ends with it.
func (b *batch) fellSilent() {
	b.end()
	c := b.c
	c.mu.Lock()
	confirmed := b.confirmed
	c.mu.Unlock()
	if confirmed == len(b.msgs) {
		return
	}
	if err := c.p.noAnswer(c.msgs[b.msgs[confirmed]], false); postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
		c.giveUp(err)
	}
}

// patience is for how long something of the batch may still be heard.
func (b *batch) patience() time.Duration {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.c.p.cfg.PublishTimeout - time.Since(b.answered)
}

// settle gives back the places of messages that the stream does not have or is not known to have.
func (b *batch) settle() (whole bool) {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range b.msgs[b.confirmed:] {
		if c.state[i] == isSent {
			c.state[i] = isReady
			<-c.p.window
		}
	}
	return b.confirmed == len(b.msgs)
}

// batchAnswer is what the server says of a batch.
type batchAnswer struct {
	// Type is "ack" (it has all messages up to Sequence), "gap" (a message is missing; the end follows), "err" (the message
	// Sequence is refused; the end follows), or empty for the end or for a message that is refused as if it stood alone.
	Type     string              `json:"type"`
	Sequence uint64              `json:"seq"`
	Every    uint16              `json:"msgs"` // with "ack": how many messages there are to the next
	Stream   string              `json:"stream"`
	Batch    string              `json:"batch"` // with the end only
	Count    uint64              `json:"count"` // with the end: it has so many messages of the batch, the first ones
	Error    *jetstream.APIError `json:"error"`
}

// isStrange says whether something else answers that listens on the subject too.
func (a *batchAnswer) isStrange() bool {
	switch {
	case a.Type == "ack":
		return a.Every == 0
	case a.Type == "gap":
		return false
	case a.Error != nil:
		return a.Error.ErrorCode == 0
	default:
		return a.Stream == ""
	}
}

// answer takes in what the server says. It runs on the goroutine of the subscription. The server's answers come in the order
// of what they are about; what comes behind the end is not looked at.
func (b *batch) answer(rest string, m *nats.Msg) (known bool) {
	number, op := parseBatchReply(rest)
	p := b.c.p
	var a batchAnswer
	switch {
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		if op == opEnd {
			b.end()
			break
		}
		b.refuse(number, p.nobodyAnswers)
	case json.Unmarshal(m.Data, &a) != nil, a.isStrange():
		return false
	case a.Type == "ack":
		b.confirm(a.Sequence)
	case a.Type == "gap":
		b.halted.Store(true)
	case a.Error != nil && (op == opEnd || isOfBatch(a.Error)):
		b.end()
	case a.Error != nil:
		b.refuse(number, func(m *postrider.Message) error { return p.refused(a.Error, m) })
	default:
		if a.Batch != "" && a.Stream == p.stream.Name {
			b.confirm(a.Count)
		}
		b.end()
	}
	return true
}

// isOfBatch says whether an error is about the batch, and not about one of its messages.
func isOfBatch(err *jetstream.APIError) bool {
	switch err.ErrorCode {
	case codeBatchDisabled, codeBatchPattern, codeBatchID, codeBatchUnknown, codeBatchTooMany:
		return true
	}
	return false
}

// confirm records that the stream has the batch's first n messages.
func (b *batch) confirm(n uint64) {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	b.answered = time.Now()
	for ; !b.ended && uint64(b.confirmed) < n && b.confirmed < len(b.msgs); b.confirmed++ {
		if i := b.msgs[b.confirmed]; c.state[i] == isSent {
			c.done(int(i), nil)
		}
	}
}

// refuse records the outcome of a message that is refused. The batch ends behind it.
func (b *batch) refuse(number int, outcome func(*postrider.Message) error) {
	b.halted.Store(true)
	c := b.c
	c.mu.Lock()
	b.answered = time.Now()
	known := !b.ended && number > b.confirmed && number <= len(b.msgs)
	var i int32
	if known {
		i = b.msgs[number-1]
	}
	c.mu.Unlock()
	if known {
		c.finish(int(i), outcome(c.msgs[i]))
	}
}

// end records that no more is to come.
func (b *batch) end() {
	b.halted.Store(true)
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if !b.ended {
		b.ended = true
		close(b.over)
	}
}

// parseBatchReply reads number and operation at the end of <flow>.fail.<number>.<op>.$FI.
func parseBatchReply(rest string) (number int, op byte) {
	fields := strings.Split(rest, ".")
	if len(fields) != 5 || len(fields[3]) != 1 {
		return 0, 0
	}
	n, err := strconv.ParseUint(fields[2], 10, 31)
	if err != nil {
		return 0, 0
	}
	return int(n), fields[3][0]
}

var _ waiter = (*batch)(nil)

// batchesAllowed is whether the stream allows batches, as of the last look at it. It is looked at again from time to time,
// because what is right of a stream with one replica is not of one with three.
type batchesAllowed struct {
	looking sync.Mutex
	allowed atomic.Bool
	until   atomic.Int64 // how long this holds, in nanoseconds of the Unix clock
}

// lookEvery is for how long a look at the stream is good.
const lookEvery = 10 * time.Second

func (a *batchesAllowed) set(allowed bool) {
	a.allowed.Store(allowed)
	a.until.Store(time.Now().Add(lookEvery).UnixNano())
}

// takesBatches says whether the stream takes batches now. Where that is not known, it says no.
func (p *Publisher) takesBatches(ctx context.Context) bool {
	a := &p.batches
	if time.Now().UnixNano() < a.until.Load() {
		return a.allowed.Load()
	}
	if !a.looking.TryLock() {
		return false
	}
	defer a.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(p.cfg.PublishTimeout, time.Second))
	defer cancel()
	stream, err := p.js.Stream(ctx, p.stream.Name)
	if err != nil {
		return false
	}
	a.set(allowsBatches(stream.CachedInfo().Config))
	return a.allowed.Load()
}
