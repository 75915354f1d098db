package postrider

import "context"

// Log is a broker's log that can be read from any position. Its reader keeps the position; the broker needs no group and no
// acknowledgements. A Subscriber whose capabilities say Log implements it.
type Log interface {
	// Partitions returns the named partitions of the log, or all without names, with their state as reported by the server
	// that is authoritative for each, never by a replica that may lag. It leaves out those that do not exist. An Unavailable
	// error says that it cannot tell now.
	Partitions(ctx context.Context, names ...string) ([]LogPartition, error)
	// ReadLog opens a reader of the messages of p, which Partitions returned, whose offset is above after. Messages that
	// are no longer there are skipped, unless p is Sparse. An Unavailable error says that the log cannot be read now.
	ReadLog(ctx context.Context, p LogPartition, after int64) (LogReader, error)
	// VerifyPosition checks whether the log still has the message of at.Mark at at.Offset. It asks the server that is
	// authoritative for the log, never a replica that may lag. It may be called concurrently. An Unavailable error says that
	// it cannot tell now.
	VerifyPosition(ctx context.Context, at Position) (PositionState, error)
}

// LogPartition is one partition of a log. The messages of a key are in one partition.
type LogPartition struct {
	// Name is the Position.Partition of its messages, Incarnation their Position.Incarnation.
	Name, Incarnation string
	// Topic and Number identify the partition too; they spread the partitions of a topic evenly over processes. They never
	// change for a name.
	Topic  string
	Number int
	// Term changes when another server has become authoritative for the partition: it may lack the tail, which a reader does
	// not notice. "" if there is only one server, or if readers end then.
	Term string
	// First is the lowest offset that the log may still have, End the highest that it has assigned; First is End+1 if it has
	// no message.
	First, End int64
	// Sparse: successive messages do not have successive offsets, so a range of offsets says nothing about how many messages
	// it had.
	Sparse bool
	// Shared: messages of other partitions have offsets between those of its messages, so a range of offsets says as little.
	Shared bool
	// A log can be divided, and be whole again. Whole names the partition that has the messages of this one while the log is whole; Parts
	// names those that share the messages of this one while it is divided. The offsets are the same. "" and none in all other logs.
	Whole string
	Parts []string
	// Removed is the highest offset at which the log says that a single message was removed, with others before and after it;
	// 0 for none.
	Removed int64
}

// LogReporter is optional for a Log whose broker has tools that show how far consumers have come.
type LogReporter interface {
	// ReportPosition tells the broker that a consumer, by its name, has processed its partition up to a position. Nothing
	// depends on it: the broker may not have it, or refuse it.
	ReportPosition(ctx context.Context, consumer string, at Position) error
}

// LogReader reads a partition of a log in order. One goroutine at a time uses it.
type LogReader interface {
	// Read waits for messages and returns 1 to limit of them, in the order of their offsets: about maxBytes of payload at
	// most, but at least one message. The deliveries have no Settler.
	//
	// A delivery with neither a message nor an error says that the log has nothing for this reader up to its position, e.g. because
	// those messages are of other topics. Its position has the mark of the message there.
	//
	// A reader never resumes by itself: when its connection breaks, when the log is recreated or a message is lost on
	// the way, Read returns an Unavailable error, and every later call does; so it does in a Sparse log when messages after the
	// last one may have been removed. Nothing is skipped before. The caller verifies that the log still has what was read, and
	// opens another reader. The other error is that of ctx, after which the reader can still be used.
	Read(ctx context.Context, limit, maxBytes int) ([]*Delivery, error)
	// Close ends the reader.
	Close(ctx context.Context) error
}
