package memorybroker

import (
	"errors"

	"github.com/postrider/postrider"
)

// errPoison is the Err of a delivery that Poison made.
var errPoison = errors.New("memory broker: what was put here is no message")

// faults holds the faults that tests asked for. It is guarded by Broker.mu.
type faults struct {
	unavailable error
	hold        <-chan struct{}
	one         func(m *postrider.Message) (before, after error)
	countdowns  []countdown
}

// countdown is a fault that applies to the message offered when left reaches 0.
type countdown struct {
	left          int
	before, after error
}

// next returns the faults of the message being offered: an error before it is accepted, or one after.
func (f *faults) next(m *postrider.Message) (before, after error) {
	kept := f.countdowns[:0]
	for _, c := range f.countdowns {
		if c.left--; c.left > 0 {
			kept = append(kept, c)
			continue
		}
		before, after = c.before, c.after
	}
	f.countdowns = kept
	if before == nil && after == nil && f.one != nil {
		before, after = f.one(m)
	}
	return before, after
}

// SetUnavailable makes all later calls to the broker fail with postrider.Unavailable(err). SetUnavailable(nil) ends
// this.
func (b *Broker) SetUnavailable(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.unavailable = err
	b.tell()
}

// FailBefore makes the nth message offered from now on, counting from 1, fail with err without being accepted. Messages
// that are too large, or come after a failed one of their key, are not counted.
func (b *Broker) FailBefore(n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.countdowns = append(b.faults.countdowns, countdown{left: n, before: err})
}

// FailAfter makes the nth message offered from now on, counting from 1, fail with err although it is accepted, as if the
// acknowledgement had been lost.
func (b *Broker) FailAfter(n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.countdowns = append(b.faults.countdowns, countdown{left: n, after: err})
}

// FailWhen calls f for every message offered from now on. If f returns before, the message is not accepted; if it
// returns after, the message is accepted and Publish reports the error. f must not call the broker. FailWhen(nil) ends
// this.
func (b *Broker) FailWhen(f func(m *postrider.Message) (before, after error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.one = f
}

// HoldAcks makes every later Publish return only when release is closed or its context ends. The messages are accepted
// immediately. HoldAcks(nil) ends this for later calls.
func (b *Broker) HoldAcks(release <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.hold = release
}

// Poison stores m as something that is not a message: subscribers deliver it with Err, with its payload as Raw, and with m as
// what could be read. Messages and Subscribe return it as a message.
func (b *Broker) Poison(m *postrider.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m = clone(m)
	b.poison[m] = true
	b.append(m)
}
