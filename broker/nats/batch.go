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

// batch is one fast batch of a call: numbered messages that are sent without waiting. The stream accepts number n+1 only
// if it has number n, so it always has the first messages of the batch, without gaps. It acknowledges the messages up to
// a number from time to time, and at the end.
//
// A batch is ended by an extra message that the stream does not store. It also ends at a number that is missing or
// rejected: the stream ignores the rest. The remaining messages of the call are then sent one by one, so that each gets
// its own answer: each is either not stored yet or dropped as a duplicate.
type batch struct {
	c      *call
	number uint64
	msgs   []int32 // indexes of the call's messages; msgs[0] has number 1

	halted atomic.Bool   // sending more is useless
	over   chan struct{} // closed when no more answers are expected

	// Guarded by the call's mu.
	confirmed int // the stream has msgs[:confirmed]
	ended     bool
	answered  time.Time // time of the last answer to the batch
}

// flow is how many messages the server may accept before it acknowledges. The server lowers it if there are other
// batches.
const flow = 500

// Operations: what a message does in its batch.
const (
	opStart  = '0'
	opAppend = '1'
	opEnd    = '3' // the message is not stored
)

// inBatches sends the call's messages in fast batches. Messages without a result afterwards must be sent one by one.
func (c *call) inBatches(ctx context.Context) {
	left := c.forBatches()
	for len(left) > 0 && c.awaitRoom(ctx) {
		b := &batch{c: c, over: make(chan struct{}), answered: time.Now(), msgs: make([]int32, 0, len(left))}
		b.number = c.p.expect(b)
		left = b.send(ctx, left)
		whole := b.wait(ctx)
		c.p.removeWaiter(b.number)
		if !whole {
			c.single.only = true
			return
		}
	}
}

// forBatches returns the messages that may be sent in a batch. It leaves out messages that the stream is not known to
// take, and later messages of their keys.
func (c *call) forBatches() []int32 {
	left := make([]int32, 0, len(c.msgs))
	var singled map[string]bool // keys
	for i, m := range c.msgs {
		switch {
		case c.state[i] == isDone || singled[m.Key] && m.Key != "":
		case c.encoder.address(m):
			if singled == nil {
				singled = make(map[string]bool)
			}
			singled[m.Key] = true
		default:
			left = append(left, int32(i))
		}
	}
	return left
}

// awaitRoom takes an entry of the window. It returns false if the call has ended instead.
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

// send sends messages of left, in order, as long as the window has free entries, and then ends the batch. It does not wait
// for entries, because only the end of the batch may free them. The caller has taken the entry for the first message. It
// returns the rest of left.
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

// put sends the next message of the batch, unless it already failed because a predecessor was rejected. If it is not
// sent, its entry in the window can be used for the next one.
func (b *batch) put(i int32) (sent bool, err error) {
	c := b.c
	op := byte(opAppend)
	if len(b.msgs) == 0 {
		op = opStart
	}
	// Only the stream that accepted the first message knows the batch and accepts more of it.
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

// putEnd sends the end of the batch to the subject of its first message.
func (b *batch) putEnd() {
	c := b.c
	err := c.p.conn.PublishMsg(&nats.Msg{
		Subject: c.p.cfg.subject(c.msgs[b.msgs[0]]),
		Reply:   c.encoder.batchReply(b.number, len(b.msgs)+1, opEnd),
	})
	if isUnsendable(err) {
		c.broken()
		b.end()
	}
}

// wait waits for the end of the batch, or until waiting is useless. It reports whether the stream has the whole batch.
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

// fellSilent ends a batch that had no answer for PublishTimeout. If nothing else was answered either, it ends the call.
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
		c.failRest(err)
	}
}

// patience returns how much longer to wait for an answer to the batch.
func (b *batch) patience() time.Duration {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.c.p.cfg.PublishTimeout - time.Since(b.answered)
}

// settle frees the window entries of messages that the stream is not known to have. It reports whether it has the whole
// batch.
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

// batchAnswer is the server's answer to a message of a batch.
type batchAnswer struct {
	// Type is
	//   - "ack": the stream has all messages up to Sequence;
	//   - "gap": a message is missing; the end follows;
	//   - "err": message Sequence is rejected; the end follows;
	//   - empty: the end, or a message rejected like a single one.
	Type     string              `json:"type"`
	Sequence uint64              `json:"seq"`
	Every    uint16              `json:"msgs"` // for "ack": number of messages until the next one
	Stream   string              `json:"stream"`
	Batch    string              `json:"batch"` // only at the end
	Count    uint64              `json:"count"` // only at the end: the stream has the first Count messages of the batch
	Error    *jetstream.APIError `json:"error"`
}

// isStrange reports whether the answer comes from another program that listens on the subject.
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

// answer handles an answer of the server. It runs on the subscription's goroutine. The server answers in the order of
// the messages; everything after the end is ignored.
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

// isOfBatch reports whether an error concerns the whole batch rather than one message.
func isOfBatch(err *jetstream.APIError) bool {
	switch err.ErrorCode {
	case codeBatchDisabled, codeBatchPattern, codeBatchID, codeBatchUnknown, codeBatchTooMany:
		return true
	}
	return false
}

// confirm records that the stream has the first n messages of the batch.
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

// refuse sets the result of a rejected message. The batch ends there.
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

// end records that no more answers are expected.
func (b *batch) end() {
	b.halted.Store(true)
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if !b.ended {
		b.ended = true
		close(b.over)
	}
}

// parseBatchReply parses number and operation from <flow>.fail.<number>.<op>.$FI.
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

// batchesAllowed caches whether the stream allows batches. The value expires, because the stream may be changed, for
// example from one replica to three.
type batchesAllowed struct {
	looking sync.Mutex
	allowed atomic.Bool
	until   atomic.Int64 // expiry of allowed, in Unix nanoseconds
}

// lookEvery is how long a cached value is valid.
const lookEvery = 10 * time.Second

func (a *batchesAllowed) set(allowed bool) {
	a.allowed.Store(allowed)
	a.until.Store(time.Now().Add(lookEvery).UnixNano())
}

// takesBatches reports whether the stream accepts batches now. It returns false if that is unknown.
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
