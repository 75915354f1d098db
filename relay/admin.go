package relay

import (
	"context"
	"errors"
)

// The reasons why an Administrator refuses. Nothing has been changed.
var (
	// ErrAlive: a process is alive that must be stopped first.
	ErrAlive = errors.New("a relay process is alive")
	// ErrUndelivered: a relay has not delivered everything in the log.
	ErrUndelivered = errors.New("a relay has undelivered messages")
	// ErrInUse: transactions that have used the outbox, e.g. to publish, are still open.
	ErrInUse = errors.New("the outbox is in use")
	// ErrUnknownRelay: the outbox has never seen this relay.
	ErrUnknownRelay = errors.New("no such relay")
	// ErrParked: a relay has held keys, parked messages or open dead letters.
	ErrParked = errors.New("the relay has parked messages, held keys or open dead letters")
)

// ErrRepartitioned is returned to a process that started before the number of partitions was changed: it must be restarted.
var ErrRepartitioned = errors.New("the number of partitions was changed while this process ran; restart it")

// MaxPartitions is the largest number of partitions of an outbox.
const MaxPartitions = 1024

// Administrator changes an outbox as a whole. Each operation is one transaction. Everything said about a relay here also
// applies to a consumer of that name.
type Administrator interface {
	// Repartition changes the number of partitions to n, from 1 to MaxPartitions, and keeps the order of every key: every
	// message in the log, parked message, held key and dead letter moves to the partition that postrider.PartitionOf returns
	// for n, every relay moves to the end of the log, and every lease ends. Publishers wait meanwhile and then write for the
	// new number without a restart. A relay process that was paused meanwhile fails with ErrRepartitioned until it is
	// restarted. Errors: ErrAlive, ErrUndelivered, ErrInUse (on SQLite sqlite.ErrBusy).
	Repartition(ctx context.Context, n int) error
	// ForgetRelay removes a relay that is gone for good, so that its cursor no longer keeps delivered messages in the log. It
	// will never deliver what it has not delivered yet. With discard, its open dead letters and its parked messages are
	// recorded as dead letters discarded by the operator, with the reason, and its held keys end; without, it must not have
	// any. A relay that has never run, but for which dead letters were imported, can be removed too. ForgetRelay returns how
	// many were discarded. If a relay of this name returns, it starts over where its Start says, except for messages that have
	// a dead letter. Errors: ErrUnknownRelay, ErrAlive, ErrParked, ErrInUse (on SQLite sqlite.ErrBusy).
	ForgetRelay(ctx context.Context, name, by, reason string, discard bool) (discarded int, err error)
}
