package postrider

import (
	"context"
	"errors"
	"time"
)

// Subscriber reads messages of a broker on behalf of one consumer: a group of processes that share the work under one
// name. It delivers at least once; the effect exactly once is the inbox's part.
type Subscriber interface {
	// Subscribe joins the consumer's group and starts to read. It creates or checks what the broker needs for it and fails
	// with an error that says what to change; an error made by Unavailable says that the broker cannot be reached.
	Subscribe(ctx context.Context) (Subscription, error)
	// Capabilities says what the broker promises to a consumer. It does not change while the subscriber lives.
	Capabilities() SubscriberCapabilities
	// VerifyPosition looks in the log for the message of at.Mark at at.Offset, whatever the place from which a subscription
	// reads. It asks the server that answers for the log, never a replica that may lag. It may be called at any time, by
	// several goroutines. Errors made by Unavailable say that it cannot tell now. A broker without marks never hears of it and
	// returns PositionRemoved.
	VerifyPosition(ctx context.Context, at Position) (PositionState, error)
}

// SubscriberCapabilities is what a broker promises to a consumer. A consumer states what it needs and refuses to start on
// less.
type SubscriberCapabilities struct {
	// Ordered: messages of one key come in the order in which the broker has them, and to one process at a time. A broker without
	// leases may give them to the next process when a connection has broken and the process at its other end does not know yet.
	Ordered bool
	// Positions: every message has a Position whose Offset rises within its Partition and never changes, so that a
	// watermark can stand for all that was consumed.
	Positions bool
	// RedeliveryWindow is how long after the first delivery the broker may still deliver a message again; 0 means without
	// limit.
	RedeliveryWindow time.Duration
	// AckWait is how long the broker waits for a settlement before it delivers again; 0 means that it waits as long as
	// the connection lives.
	AckWait time.Duration
	// NackDelay: Nack keeps a message back for the time that it is given. Otherwise it comes again at once.
	NackDelay bool
}

// Subscription is a running membership in a consumer's group. Receive is called by one goroutine at a time; deliveries are
// settled from any.
type Subscription interface {
	// Receive waits until there are messages and returns 1 to max of them, in order. It reconnects by itself; an error made
	// by Unavailable reports that the broker could not be reached, and the next call goes on trying. Other errors: that of
	// ctx; ErrSubscriptionClosed.
	Receive(ctx context.Context, max int) ([]*Delivery, error)
	// Close stops reading, hands settlements that are under way to the broker, and leaves the group. What is not settled
	// will be delivered again, to this process or another.
	Close(ctx context.Context) error
}

// Delivery is one message on its way in. It is settled exactly once, by Ack, Nack or Reject; a second settlement does
// nothing. A message that is never settled is delivered again.
type Delivery struct {
	// Message is the message, its Attempt as in Deliveries if the broker counts.
	Message *Message
	// Err says why what came cannot be read as a message, in which case Message holds what could be read and Raw what came.
	Err error
	Raw []byte
	// Position is where it stands in the broker; zero when the broker has no positions.
	Position Position
	// Deliveries is how often the broker has delivered it, this time included; 0 when the broker does not say. Redelivered
	// says that it may have been delivered before.
	Deliveries  int
	Redelivered bool
	// Session changes when the log of Position may have become another one since the delivery before, which its broker need not
	// notice: after a reconnect, a restart, an election. It has a meaning only within a subscription.
	Session int64

	Settler
}

// Position is a place in a broker's log.
type Position struct {
	// Epoch names the incarnation of the log as far as the broker tells: it changes when the log is another one under the same
	// name, e.g. a topic that was deleted and created again.
	Epoch string
	// Partition names the log, e.g. "orders/3"; Offset rises within it.
	Partition string
	Offset    int64
	// Mark is what the log says about the message at Offset, e.g. when it was stored, and the message's ID. A log that has lost
	// its tail, which a broker may not notice, gives the same offsets to other messages; their marks differ. "" where the
	// broker has none. Up to 1,000 bytes.
	Mark string `json:",omitempty"`
}

// PositionState is what a log says about a position.
type PositionState int

const (
	// PositionRemoved: the message was removed, e.g. by retention or compaction, so that the log cannot say.
	PositionRemoved PositionState = iota
	// PositionKept: the message is in its place. So was, or is, every other one that was read up to there.
	PositionKept
	// PositionReplaced: the log ends before it, or has another message in its place. It is another incarnation of the log, which
	// may have new messages at offsets that were consumed before.
	PositionReplaced
)

// Settler settles one delivery with its broker. Errors made by Unavailable say that the broker did not take it, and will
// deliver again.
type Settler interface {
	// Ack says that the message is done with: its effect, or its place in the dead letters, is committed.
	Ack(ctx context.Context) error
	// Nack asks for the message again, after a time if the broker can (SubscriberCapabilities.NackDelay). From an ordered
	// source, those behind it in its partition come again too, and have been lost when Nack returns.
	Nack(ctx context.Context, after time.Duration) error
	// Reject asks never to deliver the message again, without its effect. It is for what stands in the dead letters here.
	Reject(ctx context.Context, reason string) error
	// Extend starts the broker's wait for a settlement anew, while work on the message goes on.
	Extend(ctx context.Context) error
	// Lost is closed when this process has lost the right to work on the message: its partition went to another process, or
	// the connection that it came by is gone. A settlement then does nothing. From an ordered source, those of all deliveries
	// behind it in its partition are closed by then, too, also of messages that have been delivered again since: one channel
	// serves them all, or they are closed from the last to the first. Otherwise a follower could be worked on before it comes
	// again behind this one.
	Lost() <-chan struct{}
}

// ErrSubscriptionClosed: Receive was called after Close.
var ErrSubscriptionClosed = errors.New("subscription is closed")
