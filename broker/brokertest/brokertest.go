// Package brokertest tests publishers against the contract of postrider.Publisher, and subscribers against that of
// postrider.Subscriber (RunSubscriber). A publisher's own tests call Run with a Harness for its broker:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		brokertest.Run(t, brokertest.Features{}, func(t *testing.T) brokertest.Harness { … })
//	}
//
// Every test gets a new harness. In addition to what its name says, it checks the two rules that always hold:
//
//   - After the first failed message of a key, all later messages of the key in the same call report failure.
//   - When failed messages are sent again, as a relay does, everything arrives, and the first copies of each key's
//     messages are in order.
package brokertest

import (
	"reflect"
	"testing"

	"github.com/postrider/postrider"
)

// Features lists what a broker cannot promise, or what its harness cannot do. The zero value means everything is
// possible.
type Features struct {
	// Unordered: the order of a key is not kept, and Capabilities must say so.
	Unordered bool
	// NoDedupe: a message that is sent again is duplicated, and Capabilities must say so.
	NoDedupe bool
	// NoSizeLimit: the publisher knows no limit for the message size, and Capabilities must say so.
	NoSizeLimit bool
	// The harness does not have the function of that name.
	NoRefuse, NoLoseAcks, NoLoseMessages, NoDrop, NoRestart, NoPause bool
}

// Harness is a new broker with a publisher, and functions that cause faults between them. The broker must be stopped at
// the end of the test (t.Cleanup). The publisher should wait about three seconds for answers: long enough for a busy
// machine, short enough for the tests with a silent broker.
type Harness struct {
	// Publisher is the publisher to test.
	Publisher postrider.Publisher
	// Close closes the publisher. A second call must be harmless.
	Close func() error
	// Arrived returns the messages of a topic in the broker, in order, decoded as a receiver would.
	Arrived func(t testing.TB, topic string) []*postrider.Message
	// Refuse makes the broker reject each of these message IDs once.
	Refuse func(ids ...string)
	// LoseAcks makes the broker accept each of these messages and lose its acknowledgement, once.
	LoseAcks func(ids ...string)
	// LoseMessages loses each of these messages, once, before it reaches the broker, without notice.
	LoseMessages func(ids ...string)
	// Drop closes every connection between publisher and broker; reconnecting works immediately.
	Drop func()
	// Stop kills the broker, and Start restarts it at the same address with the data that it had stored.
	Stop, Start func(t testing.TB)
	// Pause keeps connections open but blocks all traffic, until Resume.
	Pause, Resume func()
}

// Run tests the publisher of the harnesses that start returns, one per test.
func Run(t *testing.T, f Features, start func(t *testing.T) Harness) {
	t.Helper()
	tests := []struct {
		name   string
		run    func(t *testing.T, s *suite)
		wanted bool
	}{
		{"capabilities", testCapabilities, true},
		{"empty batch", testEmptyBatch, true},
		{"fidelity", testFidelity, true},
		{"one key", testOneKey, true},
		{"many keys", testManyKeys, true},
		{"concurrent calls", testConcurrentCalls, true},
		{"sent again", testSentAgain, true},
		{"too large", testTooLarge, !f.NoSizeLimit},
		{"refused: followers fail, others do not", testRefused, !f.NoRefuse},
		{"refused without key", testRefusedUnkeyed, !f.NoRefuse},
		{"refused at random", testRefusedAtRandom, !f.NoRefuse},
		{"lost acknowledgements", testLostAcks, !f.NoLoseAcks},
		{"lost messages", testLostMessages, !f.NoLoseMessages},
		{"connections dropped", testDrop, !f.NoDrop},
		{"unavailable while stopped", testStopped, !f.NoRestart},
		{"restart while publishing", testRestart, !f.NoRestart},
		{"no answer", testNoAnswer, !f.NoPause},
		{"cancelled before", testCancelledBefore, true},
		{"cancelled while waiting", testCancelledWhileWaiting, !f.NoPause},
		{"closed", testClosed, true},
		{"closed while publishing", testClosedWhilePublishing, true},
	}
	t.Run("contract", func(t *testing.T) {
		for _, tt := range tests {
			if tt.wanted {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					tt.run(t, newSuite(t, f, start(t)))
				})
			}
		}
	})
	t.Run("no goroutine is left", func(t *testing.T) {
		checkNoLeaks(t, func(t *testing.T) {
			s := newSuite(t, f, start(t))
			s.mustAccept(t.Context(), t, batch("leaks", 60, 1, "a", "b", ""))
			if !f.NoDrop {
				s.Drop()
				s.deliver(t.Context(), t, batch("leaks", 60, 1_000, "a", "b", ""))
			}
		})
	})
}

// checkComplete fails the test if the harness lacks a function that its features do not exclude.
func (f Features) checkComplete(t *testing.T, h Harness) {
	t.Helper()
	needed := map[string]bool{
		"Publisher": true, "Close": true, "Arrived": true,
		"Refuse": !f.NoRefuse, "LoseAcks": !f.NoLoseAcks, "LoseMessages": !f.NoLoseMessages, "Drop": !f.NoDrop,
		"Stop": !f.NoRestart, "Start": !f.NoRestart, "Pause": !f.NoPause, "Resume": !f.NoPause,
	}
	v := reflect.ValueOf(h)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; needed[name] && v.Field(i).IsNil() {
			t.Fatalf("Harness.%s is missing; give it, or set the feature that says why the broker cannot have it", name)
		}
	}
}
