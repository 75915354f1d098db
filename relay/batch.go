package relay

import (
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
)

// Cursor is a relay's progress in one partition. Its meaning belongs to the store; a relay only knows that a batch's Next
// covers the batch, and how to move within it (see Batch).
type Cursor struct {
	// Position is the sequence up to which fresh messages are delivered.
	Position int64
	// Snapshot is opaque to the relay. A store whose sequence order is not its commit order keeps there which transactions were
	// visible at Position.
	Snapshot string
}

// FetchRequest says what to read.
type FetchRequest struct {
	// Partitions are the partitions to read, each after its cursor.
	Partitions []FetchPartition
	// Limit is the maximum number of records per partition, MaxBytes the maximum number of bytes over all partitions.
	Limit, MaxBytes int
}

// FetchPartition is one partition to read.
type FetchPartition struct {
	LeaseRef
	// After is the Next of the partition's previous batch, or the cursor of the lease.
	After Cursor
}

// Batch is what was read from one partition.
type Batch struct {
	Partition int
	// Lost says that the partition's lease does not hold, or that the cursor is beyond what the server knows, as after a crash.
	// No other field is set then.
	Lost    bool
	Records []Record
	// Late is the number of records at the front of Records that were committed late: their Sequence is at or before the
	// Position of the cursor that was read after (FetchPartition.After).
	//
	//   - While a late record is unsettled, the cursor stays where it was.
	//   - Once all late records are settled, {Position: r.Sequence, Snapshot: Next.Snapshot} is a valid cursor for each
	//     further record r up to which everything is settled.
	//   - If there is a further record, {Position: After.Position, Snapshot: Next.Snapshot} is valid then, too.
	Late int
	// Next is the cursor once every record is settled.
	Next Cursor
	// More says that more can be read from the partition right away.
	More bool
}

// Record is a message as read from the store.
type Record struct {
	// Message has no Attempt set yet.
	Message *postrider.Message
	// Delay is the time left until the message's delivery time, on the database's clock; zero or negative if it need not wait.
	Delay time.Duration
	// Attempts is the number of attempts so far, 0 for a message from the log.
	Attempts int
	// Redrives is how often operators have redriven it from the dead letters.
	Redrives int
	// Reason is why a parked message was parked; empty for a message from the log.
	Reason ParkReason
	// ParkedFor is the time since the message was first parked; parking it again does not restart it.
	ParkedFor time.Duration
	// Err says why the stored row cannot be read as a message. Message then holds what could be read (at least Sequence and
	// Key), and the message is dead-lettered. The relay itself checks the limits of Message.Validate. The times of Message are
	// in the years 1 to 9999.
	Err error
}

// check sets Err if the row breaks the rules of a message, and returns the message's key. A key that is too long is none: no
// index takes it, and all its messages are dead-lettered.
func (r *Record) check() (key string) {
	if r.Err == nil {
		r.Err = stored.Check(r.Message)
	}
	if key = r.Message.Key; len(key) > postrider.MaxKeyBytes {
		return ""
	}
	return key
}
