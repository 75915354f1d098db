package store

import (
	"context"
	"time"
)

// LogQuery selects messages of the log of all partitions, in the order of their sequences.
type LogQuery struct {
	// Relay is the relay for which LoggedMessage.Delivered is set; "" sets it for none.
	Relay string
	// After (exclusive) and UpTo (inclusive) bound the sequences.
	After, UpTo int64
	// Limit bounds how many sequences are searched, counted from the first message found.
	Limit int
}

// LogPage is a part of the log.
type LogPage struct {
	Messages []LoggedMessage
	// Last is the sequence up to which the log was searched: LogQuery.UpTo at the end.
	Last int64
}

// LoggedMessage is a message of the log, without headers and payload.
type LoggedMessage struct {
	Sequence                     int64
	Partition                    int
	ID, Topic, Key, Type, Tenant string
	CreatedAt                    time.Time
	// Delivered: the relay has delivered or skipped it. A message that it has parked, or that has an open or
	// discarded dead letter, is not delivered.
	Delivered bool
}

// LogReader reads the log for operators. It needs no lease.
type LogReader interface {
	// Logged returns a page of the log.
	Logged(ctx context.Context, q LogQuery) (LogPage, error)
	// LogEnd returns the highest sequence in the log, 0 if it is empty.
	LogEnd(ctx context.Context) (int64, error)
	// RelayLog says what a relay reads of the log, and how far it is.
	RelayLog(ctx context.Context, relay string) (RelayLog, error)
	// CountAllParked counts the parked messages of a relay, queued or not, up to limit.
	CountAllParked(ctx context.Context, relay string, limit int) (int, error)
}

// RelayLog is what a relay reads of the log.
type RelayLog struct {
	// Topics are the patterns of its topic filter in effect; none if there is no such relay.
	Topics []string
	// Position is the highest sequence that it has delivered, 0 for none.
	Position int64
}

// LogWriter changes what is delivered from the log, in one transaction.
type LogWriter interface {
	LogReader
	// ParkReplayed parks messages of the log that were delivered, so that they are delivered again, and returns how many. It leaves
	// out those that are parked, dead-lettered, erased or no longer in the log. No settlement of the relay in their partitions runs
	// meanwhile.
	//
	//	message       | is
	//	without a key | due at once
	//	with a key    | queued in its key, by sequence. The key is held from now on and due at once, unless it is held already
	//
	// A process of the relay that does not know yet that the key is held delivers the key's messages that it has in memory
	// first. From the first replayed message on, all others of the key are queued after it.
	ParkReplayed(ctx context.Context, r ReplayedMessages) (int, error)
}

// ReplayedMessages are messages to deliver again.
type ReplayedMessages struct {
	Relay string
	// Messages are those to park; only Sequence and Partition are used.
	Messages []LoggedMessage
	// Headers are added to those of each message.
	Headers map[string]string
	// Entry is added to the history of each message.
	Entry string
}

// Places returns the partition and the sequence of each message.
func (r *ReplayedMessages) Places() (partitions []int, sequences []int64) {
	for i := range r.Messages {
		partitions = append(partitions, r.Messages[i].Partition)
		sequences = append(sequences, r.Messages[i].Sequence)
	}
	return partitions, sequences
}
