package relay

import (
	"context"
	"errors"
)

// Why an Administrator refuses. Nothing was changed then.
var (
	// ErrAlive: a process is alive that must be stopped first.
	ErrAlive = errors.New("a relay process is alive")
	// ErrUndelivered: a relay has not delivered everything in the log.
	ErrUndelivered = errors.New("a relay has undelivered messages")
	// ErrInUse: transactions that have used the outbox, e.g. published, are still open.
	ErrInUse = errors.New("the outbox is in use")
	// ErrUnknownRelay: the outbox has never seen this relay.
	ErrUnknownRelay = errors.New("no such relay")
	// ErrPutAside: a relay has held keys, parked messages or open dead letters.
	ErrPutAside = errors.New("the relay has parked messages, held keys or open dead letters")
)

// ErrRepartitioned is what a process hears that began before the number of partitions was changed: it must be restarted.
var ErrRepartitioned = errors.New("the number of partitions was changed while this process ran; restart it")

// MaxPartitions is the largest number of partitions of an outbox.
const MaxPartitions = 1024

// Administrator takes the steps that change an outbox as a whole. Each is one transaction. What holds for a relay here
// holds for a consumer of that name too.
type Administrator interface {
	// Repartition changes the number of partitions to n, from 1 to MaxPartitions, keeping the order of every key: every
	// message in the log, every parked message, held key and dead letter goes to the partition that
	// postrider.PartitionOf gives it among n, every relay goes to the end of the log, and every lease ends.
	// Publishers wait meanwhile, and then write for the new number without being restarted. A relay process that has slept
	// through it fails with ErrRepartitioned until it is restarted. Errors: ErrAlive, ErrUndelivered, ErrInUse (on SQLite
	// sqlite.ErrBusy).
	Repartition(ctx context.Context, n int) error
	// ForgetRelay removes a relay that is gone for good, so that its cursor no longer keeps delivered messages in the log.
	// What it has not delivered yet it will never deliver. With discard, its open dead letters and its parked messages, as
	// dead letters, are recorded as discarded by the operator, with the reason, and its held keys end; without, it must not
	// have any. One that has never run, but for which dead letters were imported, may be forgotten too. It returns how many
	// were discarded. A relay of this name that comes back starts over, where its Start says, but for messages that have a
	// dead letter.
	// Errors: ErrUnknownRelay, ErrAlive, ErrPutAside, ErrInUse (on SQLite sqlite.ErrBusy).
	ForgetRelay(ctx context.Context, name, by, reason string, discard bool) (discarded int, err error)
}
