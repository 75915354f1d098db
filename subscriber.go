package postrider

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Subscriber reads a broker's messages for one consumer: a group of processes that share the work under one name. It
// delivers at least once; the inbox makes the processing exactly once.
type Subscriber interface {
	// Subscribe joins the consumer's group and starts to read. It creates or checks what it needs in the broker and fails
	// with an error that says what to change. An Unavailable error says that the broker cannot be reached.
	Subscribe(ctx context.Context) (Subscription, error)
	// Capabilities returns the broker's guarantees to a consumer. They do not change during the subscriber's lifetime.
	Capabilities() SubscriberCapabilities
	// VerifyPosition checks whether the log still has the message of at.Mark at at.Offset, regardless of where a
	// subscription reads. It asks the server that is authoritative for the log, never a replica that may lag. It may be
	// called at any time, concurrently. An Unavailable error says that it cannot tell now. For a broker without marks it
	// is never called and returns PositionRemoved.
	VerifyPosition(ctx context.Context, at Position) (PositionState, error)
}

// SubscriberCapabilities lists a broker's guarantees to a consumer. A consumer refuses to start if they are less than it
// needs.
type SubscriberCapabilities struct {
	// Log: the subscriber reads a log from the positions that the consumer keeps, and implements Log. It has no group:
	// Subscribe fails, and nothing is redelivered. It has Ordered and Positions too.
	Log bool
	// Ordered: messages of one key arrive in the broker's order, and at one process at a time. A broker without leases
	// may give them to the next process when a connection has broken and the process at the other end does not know yet.
	Ordered bool
	// Positions: every message has a Position whose Offset rises within its Partition and never changes.
	Positions bool
	// RedeliveryWindow is how long after the first delivery the broker may redeliver a message; 0 means without limit.
	RedeliveryWindow time.Duration
	// AckWait is how long the broker waits for a settlement before it redelivers; 0 means that it waits as long as the
	// connection lives.
	AckWait time.Duration
	// NackDelay: Nack delays redelivery by the given time. Otherwise the message is redelivered at once.
	NackDelay bool
}

// Subscription is an active membership in a consumer's group. One goroutine at a time calls Receive; any goroutine may
// settle deliveries.
type Subscription interface {
	// Receive waits for messages and returns 1 to max of them, in order. It reconnects by itself: an Unavailable error
	// reports that the broker could not be reached, and the next call keeps trying. A *RemovedError reports messages that
	// the broker removed, once; the next call goes on with those after them. Other errors: that of ctx;
	// ErrSubscriptionClosed.
	Receive(ctx context.Context, max int) ([]*Delivery, error)
	// Close stops reading, sends pending settlements to the broker, and leaves the group. Unsettled messages are
	// redelivered, to this process or another.
	Close(ctx context.Context) error
}

// Delivery is a message received from a broker. It is settled once, by Ack, Nack or Reject; a second settlement does
// nothing. A message that is never settled is redelivered.
type Delivery struct {
	// Message is the message; its Attempt equals Deliveries if the broker counts.
	Message *Message
	// Err says why the received bytes (Raw) cannot be read as a message; Message then holds the parts that could be read.
	Err error
	Raw []byte
	// Position is the message's position in the broker; zero when the broker has no positions.
	Position Position
	// Deliveries is how often the broker has delivered the message, including this time; 0 when the broker does not say.
	// Redelivered says that it may have been delivered before.
	Deliveries  int
	Redelivered bool
	// Session changes when the log of Position may have been replaced since the previous delivery, which the broker need
	// not notice: after a reconnect, a restart, an election. It is meaningful only within a subscription.
	Session int64

	Settler
}

// Position is a position in a broker's log.
type Position struct {
	// Incarnation identifies the log as far as the broker tells: it changes when another log has the same name, e.g. a
	// topic that was deleted and recreated.
	Incarnation string `json:"Epoch"`
	// Partition names the log, e.g. "orders/3"; Offset rises within it.
	Partition string
	Offset    int64
	// Mark identifies the message at Offset by what the log stores, e.g. when it was stored, and the message's ID. A log
	// that has lost its tail, which a broker may not notice, reuses offsets for other messages; their marks differ. ""
	// where the broker has none. Up to 1,000 bytes.
	Mark string `json:",omitempty"`
}

// PositionState is the state of a position in its log.
type PositionState int

const (
	// PositionRemoved says that the message was removed, e.g. by retention or compaction, so the log cannot tell.
	PositionRemoved PositionState = iota
	// PositionKept says that the message is still at its offset, and no message read before it has been replaced.
	PositionKept
	// PositionReplaced says that the log ends before the offset, or has another message there. It is another log
	// incarnation, which may have new messages at offsets that were consumed before.
	PositionReplaced
)

// Settler settles one delivery with its broker. An Unavailable error says that the broker did not accept the settlement
// and will redeliver. A settlement whose ctx has ended may still be made; if it returns the error of ctx, the message is
// redelivered, without waiting for the end of the subscription.
type Settler interface {
	// Ack says that the message is done: its processing, or its dead letter, is committed.
	Ack(ctx context.Context) error
	// Nack asks for redelivery, after a delay if the broker supports it (SubscriberCapabilities.NackDelay). From an
	// ordered source, the later messages of its partition are redelivered too, and are lost when Nack returns.
	Nack(ctx context.Context, after time.Duration) error
	// Reject asks never to redeliver the message, although it was not processed. Use it for a message that is already
	// a dead letter here.
	Reject(ctx context.Context, reason string) error
	// Extend restarts the broker's wait for a settlement while work on the message continues.
	Extend(ctx context.Context) error
	// Lost is closed when this process has lost the right to work on the message: its partition went to another process,
	// or its connection is gone. Settlements then do nothing.
	//
	// From an ordered source, by then Lost is closed for all later deliveries of the partition too, including messages
	// that have been redelivered since: either they share one channel, or the channels are closed from last to first.
	// Otherwise a later message could be processed before this one is redelivered.
	Lost() <-chan struct{}
}

// RemovedError says that the broker removed messages of a group before they were settled: its retention is too short, or the group
// was away for too long.
type RemovedError struct {
	// Partition is that of Position.
	Partition string
	// Messages is their number. If the broker cannot count them, each range counts as one.
	Messages int64
	// From and To say where they were, in the broker's words: the first and the last of messages that had been delivered, or
	// the positions around messages that had not.
	From, To string
	// Delivered: the group had received them, so some may have been processed, and only the acknowledgement is missing.
	Delivered bool
}

// Error implements error.
func (e *RemovedError) Error() string {
	return fmt.Sprintf("the broker removed %d messages of %s, %s to %s, before they were settled", e.Messages, e.Partition, e.From, e.To)
}

// ErrSubscriptionClosed: Receive was called after Close.
var ErrSubscriptionClosed = errors.New("subscription is closed")
