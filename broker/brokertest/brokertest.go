// Package brokertest holds publishers to the contract of postrider.Publisher, and subscribers to that of
// postrider.Subscriber (RunSubscriber). A publisher's own tests call Run with a Harness for its broker:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		brokertest.Run(t, brokertest.Features{}, func(t *testing.T) brokertest.Harness { … })
//	}
//
// Every test gets a fresh harness and checks, besides what its name says, the two rules that always hold: behind the
// first failed message of a key, every follower of its key in the same call reports failure; and when what failed is sent
// again, as a relay does, everything arrives and the first copies of each key's messages stand in order.
package brokertest

import (
	"reflect"
	"testing"

	"github.com/postrider/postrider"
)

// Features names what a broker cannot promise, or what its harness cannot bring about. The zero value promises everything.
type Features struct {
	// Unordered: the order of a key is not kept, and Capabilities must say so.
	Unordered bool
	// NoDedupe: a message that is sent again arrives again, and Capabilities must say so.
	NoDedupe bool
	// NoSizeLimit: the publisher knows no limit of a message's size, and Capabilities must say so.
	NoSizeLimit bool
	// The harness has no function of that name.
	NoRefuse, NoLoseAcks, NoLoseMessages, NoDrop, NoRestart, NoPause bool
}

// Harness is a fresh broker with a publisher on it, and what can go wrong between them. The broker itself ends with the
// test (t.Cleanup). Where the publisher waits for answers, it should give up after about
// three seconds: late enough for a busy machine, soon enough for the tests of a silent broker.
type Harness struct {
	// Publisher is what is tested.
	Publisher postrider.Publisher
	// Close closes the publisher. It must be harmless to call it twice.
	Close func() error
	// Arrived returns what the broker keeps under a topic, in order, decoded as a receiver would.
	Arrived func(t testing.TB, topic string) []*postrider.Message
	// Refuse makes the broker answer once, for each of these message IDs, that it does not take the message.
	Refuse func(ids ...string)
	// LoseAcks makes the broker take each of these messages and its answer, once, not reach the publisher.
	LoseAcks func(ids ...string)
	// LoseMessages makes each of these messages, once, not reach the broker, without anybody noticing.
	LoseMessages func(ids ...string)
	// Drop cuts every connection between publisher and broker; new ones can be made at once.
	Drop func()
	// Stop makes the broker end without warning, and Start brings it back at the same address with what it had stored.
	Stop, Start func(t testing.TB)
	// Pause lets connections stand but nothing through, until Resume.
	Pause, Resume func()
}

// Run tests the publisher of the harnesses that start returns, one for each test.
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

// checkComplete fails for a harness that lacks what its features do not excuse.
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
