package memorybroker

import (
	"errors"

	"github.com/postrider/postrider"
)

// errPoison is the Err of a delivery that Poison made.
var errPoison = errors.New("memory broker: what was put here is no message")

// faults is what has been asked for to go wrong. It is guarded by Broker.mu.
type faults struct {
	unavailable error
	hold        <-chan struct{}
	one         func(m *postrider.Message) (before, after error)
	countdowns  []countdown
}

// countdown is a fault of the message that is offered when left reaches 0.
type countdown struct {
	left          int
	before, after error
}

// next returns the faults of the message that is offered now: an error before it is accepted, or one after.
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

// SetUnavailable makes everything that is asked of the broker from now on report postrider.Unavailable(err), until it is
// called with nil.
func (b *Broker) SetUnavailable(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.unavailable = err
	b.tell()
}

// FailBefore makes the nth message offered from now on, counting from 1, fail with err without being accepted. Messages
// that are not offered at all, because they are too large or stand behind a failed one, do not count.
func (b *Broker) FailBefore(n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.countdowns = append(b.faults.countdowns, countdown{left: n, before: err})
}

// FailAfter makes the nth message offered from now on, counting from 1, fail with err although it is accepted, as when an
// acknowledgement is lost.
func (b *Broker) FailAfter(n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.countdowns = append(b.faults.countdowns, countdown{left: n, after: err})
}

// FailWhen asks f about every message offered from now on: it returns an error for which the message is not accepted, or
// one that is reported although it is. It must not call the broker. Nil ends it.
func (b *Broker) FailWhen(f func(m *postrider.Message) (before, after error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.one = f
}

// HoldAcks makes every Publish from now on return only when release is closed or its context has ended. The messages are
// accepted at once all the same. Nil ends it for later calls.
func (b *Broker) HoldAcks(release <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.hold = release
}

// Poison puts raw where messages of a topic and key go, although it is no message: subscribers deliver it with Err and Raw.
// Messages and Subscribe show it as a message with nothing but that payload.
func (b *Broker) Poison(topic, key string, raw []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := clone(&postrider.Message{Topic: topic, Key: key, Payload: raw})
	b.poison[m] = true
	b.append(m)
}
