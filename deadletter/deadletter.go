// Package deadletter manages dead letters: messages that a relay or consumer could not process. A dead letter keeps the
// message, its attempts and their causes until someone redrives or discards it. Relays and consumers share one set of
// dead letters, each under its own name.
//
// # Operations
//
//   - List, show and count by a [store.DeadFilter], and count by cause. Causes that differ only in numbers and identifiers
//     count as one, see [store.Fingerprint].
//   - Redrive: a [store.Redrive] is a durable job with a filter, a rate and its progress. Any process may drive it
//     ([Store.Drive], [Store.Run]), several at once too; when one stops, another continues. A redriven message goes back
//     only to the relay or consumer that dead-lettered it. Deduplication does not drop it, since it was never processed.
//   - Discard, with a reason that stays on record.
//   - Edit payload or headers before a redrive; the previous content stays readable.
//   - Move dead letters to another outbox, or keep a copy: [Store.Export] and [Store.Import].
//
// # States
//
//	open ──redrive──► redriven      the message is parked, due at once; if it is dead-lettered again,
//	  │                             that is a new dead letter with one more redrive
//	  └────discard──► discarded
//
// The number of redrives per message is limited ([DefaultMaxRedrives]): a message that is dead-lettered again each time
// needs another fix. An operator can override the limit with store.DeadFilter.MaxRedrives.
package deadletter

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/postrider/postrider/store"
)

// Errors of operations on dead letters and redrives.
var (
	// ErrNotFound: no dead letter has this number.
	ErrNotFound = errors.New("no such dead letter")
	// ErrResolved: the dead letter was already redriven or discarded.
	ErrResolved = errors.New("dead letter is already resolved")
	// ErrRedrivenTooOften: the message has been redriven as often as store.DeadFilter.MaxRedrives allows.
	ErrRedrivenTooOften = errors.New("message was sent back too often")
	// ErrEdited: someone else has edited the dead letter since it was read.
	ErrEdited = errors.New("dead letter was edited meanwhile")
	// ErrRedriveEnded: the redrive has finished, failed or been cancelled.
	ErrRedriveEnded = errors.New("redrive has ended")
)

// DefaultMaxRedrives is how often a message may be redriven; Unbounded removes the limit.
const (
	DefaultMaxRedrives = 3
	Unbounded          = -1
)

// allows says whether a message that has been redriven this often may be redriven again.
func allows(f store.DeadFilter, redrives int) bool {
	return f.MaxRedrives == Unbounded || redrives < cmp.Or(f.MaxRedrives, DefaultMaxRedrives)
}

func checkMaxRedrives(f store.DeadFilter) error {
	if f.MaxRedrives < Unbounded {
		return fmt.Errorf("a message cannot have been sent back %d times", f.MaxRedrives)
	}
	return nil
}

// refuseTooOften is the error for a dead letter, selected by number, that allows refuses.
func refuseTooOften(number int64, redrives int) error {
	return fmt.Errorf("%w: that of dead letter %d was sent back %d times and died again each time; find out why, or raise the "+
		"bound (postrider dead redrive --force)", ErrRedrivenTooOften, number, redrives)
}
