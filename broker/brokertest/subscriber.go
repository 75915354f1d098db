package brokertest

import (
	"reflect"
	"sync"
	"testing"

	"github.com/postrider/postrider"
)

// SubscriberFeatures lists what a broker cannot promise to a consumer, or what its harness cannot do. Each field is the
// reason, as a sentence. The zero value means everything is possible.
type SubscriberFeatures struct {
	// Unordered: the order of a key is not kept, and Capabilities must say so.
	Unordered string
	// NoPositions: messages have no position, and Capabilities must say so.
	NoPositions string
	// NoNackDelay: a nacked message is redelivered immediately, and Capabilities must say so.
	NoNackDelay string
	// NoDeliveryCount: Deliveries is 0. NoRedeliveredFlag: Redelivered may be false for a redelivered message.
	NoDeliveryCount, NoRedeliveredFlag string
	// OneActive: only one member of a group works at a time; the others wait until it leaves.
	OneActive string
	// OneInFlight: a group has at most one unsettled message.
	OneInFlight string
	// CumulativeAcks: a settled message is redelivered if an earlier one in its partition is not settled.
	CumulativeAcks string
	// UnconfirmedAcks: a settlement that reported success may be lost if the process crashes or is disconnected about
	// then.
	UnconfirmedAcks string
	// LostLate: the broker redelivers the messages of a broken connection as soon as it notices, and the member may
	// notice later. It must still notice.
	LostLate string
	// The environment does not have the function of that name.
	NoPoison, NoRecreate, NoCut, NoStop string
}

// SubscriberHarness is what RunSubscriber needs to test a broker's subscriber.
type SubscriberHarness struct {
	Features SubscriberFeatures
	// New creates a new environment for one test. It must be stopped at the end of the test (t.Cleanup).
	New func(t *testing.T) SubscriberEnv
}

// SubscriberEnv is an empty broker. If the broker has an AckWait, it should be about two seconds, and the broker should
// remove a crashed member as soon as it can, because tests wait for both.
type SubscriberEnv struct {
	// Topic is the topic that messages are published to and members read. If members share partitions, it has several.
	Topic string
	// Publisher publishes to the topic; it is this broker's own, so that the suite tests both directions.
	Publisher postrider.Publisher
	// Member returns a subscriber for one more process of a group. A new group reads from the first message that is
	// published after its first Subscribe, or from an earlier one.
	Member func(t testing.TB, group string) Member
	// Poison stores m as its publisher does, except that the CloudEvents attribute "time" is "yesterday", or another value
	// that makes it no message.
	Poison func(t testing.TB, m *postrider.Message)
	// Recreate deletes the topic with all its messages and allows it to be recreated.
	Recreate func(t testing.TB)
	// Stop kills the broker, and Start restarts it at the same address with the data that it had stored.
	Stop, Start func(t testing.TB)
}

// Member is one process of a group.
type Member struct {
	postrider.Subscriber
	// Cut breaks the member's connections and prevents new ones until Restore, as if its process had crashed or its
	// network had failed. It does not affect other members.
	Cut, Restore func()
}

// RunSubscriber tests a subscriber against the contract of postrider.Subscriber. Every test gets a new environment. In
// addition to what its name says, it checks what always holds:
//
//   - A settled message is not redelivered.
//   - A message keeps its position.
//   - If the broker promises order, a member that works on messages in the order of Receive, and skips those whose Lost
//     is closed, works on each key in order, and never while another process does (with LostLate: another process whose
//     connection is not broken).
//   - A member that is cut off loses its deliveries.
func RunSubscriber(t *testing.T, h SubscriberHarness) {
	t.Helper()
	f := h.Features
	t.Run("contract", func(t *testing.T) {
		// These tests mostly wait for the broker's timers, so more of them run concurrently than t.Parallel allows.
		places := make(chan struct{}, 8)
		var running sync.WaitGroup
		for _, tt := range subscriberTests(f) {
			if reason := firstReason(tt.unless, f.Unordered, tt.ordered); reason != "" {
				t.Logf("%s: not promised: %s", tt.name, reason)
				continue
			}
			places <- struct{}{}
			running.Go(func() {
				defer func() { <-places }()
				t.Run(tt.name, func(t *testing.T) { tt.run(t, newInbound(t, h)) })
			})
		}
		running.Wait()
	})
	t.Run("no goroutine is left", func(t *testing.T) {
		checkNoLeaks(t, func(t *testing.T) { testEverythingOnce(t, newInbound(t, h)) })
	})
}

// subscriberTest is a test of the contract.
type subscriberTest struct {
	name    string
	run     func(t *testing.T, s *inbound)
	unless  []string // reasons why the test does not apply, if not empty
	ordered bool     // only with order
}

func subscriberTests(f SubscriberFeatures) []subscriberTest {
	return []subscriberTest{
		{name: "capabilities", run: testSubscriberCapabilities},
		{name: "fidelity", run: testSubscriberFidelity},
		{name: "everything once", run: testEverythingOnce},
		{name: "two groups", run: testTwoGroups},
		{name: "positions", run: testPositions, unless: []string{f.NoPositions}},
		{name: "positions verified", run: testVerified, unless: []string{f.NoPositions}},
		{name: "topic recreated", run: testRecreated, unless: []string{f.NoPositions, f.NoRecreate}},
		{name: "poison", run: testPoison, unless: []string{f.NoPoison}},
		{name: "unsettled comes again after close", run: testUnsettled},
		{name: "some settled", run: testSomeSettled},
		{name: "settled from many goroutines", run: testSettledConcurrently},
		{name: "settled while closing", run: testSettledWhileClosing},
		{name: "settled twice", run: testSettledTwice},
		{name: "settled too late", run: testSettledTooLate},
		{name: "nack", run: testNack},
		{name: "nack with delay", run: testNackDelay, unless: []string{f.NoNackDelay}},
		{name: "nack keeps order", run: testNackKeepsOrder},
		{name: "nack loses later messages", run: testNackLosesQueued, ordered: true},
		{name: "reject", run: testReject},
		{name: "extend", run: testExtend},
		{name: "not settled in time", run: testNotSettledInTime},
		{name: "members share", run: testMembersShare, unless: []string{f.OneActive}},
		{name: "member joins and leaves", run: testJoinAndLeave},
		{name: "member leaves with work", run: testLeaveWithWork},
		{name: "lost in order", run: testLostInOrder, ordered: true},
		{name: "member dies", run: testMemberDies, unless: []string{f.NoCut}},
		{name: "cut and restored", run: testCutAndRestored, unless: []string{f.NoCut}},
		{name: "storm", run: testStorm},
		{name: "unavailable while stopped", run: testUnavailable, unless: []string{f.NoStop}},
		{name: "restart while reading", run: testRestartWhileReading, unless: []string{f.NoStop}},
		{name: "receive is cancelled", run: testReceiveCancelled},
		{name: "closed", run: testSubscriptionClosed},
		{name: "closed while waiting", run: testClosedWhileWaiting},
	}
}

func firstReason(reasons []string, unordered string, ordered bool) string {
	for _, reason := range reasons {
		if reason != "" {
			return reason
		}
	}
	if ordered {
		return unordered
	}
	return ""
}

// checkComplete fails the test if the environment lacks a function that its features do not exclude.
func (f SubscriberFeatures) checkComplete(t *testing.T, env SubscriberEnv) {
	t.Helper()
	if env.Topic == "" {
		t.Fatal("SubscriberEnv.Topic is missing")
	}
	needed := map[string]bool{
		"Publisher": true, "Member": true, "Poison": f.NoPoison == "", "Recreate": f.NoRecreate == "",
		"Stop": f.NoStop == "", "Start": f.NoStop == "",
	}
	v := reflect.ValueOf(env)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; needed[name] && v.Field(i).IsNil() {
			t.Fatalf("SubscriberEnv.%s is missing; give it, or the reason why the broker cannot have it", name)
		}
	}
}
