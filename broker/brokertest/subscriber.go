package brokertest

import (
	"reflect"
	"sync"
	"testing"

	"github.com/postrider/postrider"
)

// SubscriberFeatures names what a broker cannot promise to a consumer, or what its harness cannot bring about; each field
// is the reason why, in a sentence. The zero value promises everything.
type SubscriberFeatures struct {
	// Unordered: the order of a key is not kept, and Capabilities must say so.
	Unordered string
	// NoPositions: messages have no position, and Capabilities must say so.
	NoPositions string
	// NoNackDelay: Nack brings a message again at once, and Capabilities must say so.
	NoNackDelay string
	// NoDeliveryCount: Deliveries is 0. NoRedeliveredFlag: Redelivered may be false for what was delivered before.
	NoDeliveryCount, NoRedeliveredFlag string
	// OneActive: one member of a group works at a time, and the others wait until it leaves.
	OneActive string
	// OneInFlight: a group has no more than one unsettled message at a time.
	OneInFlight string
	// CumulativeAcks: what is settled comes again if something before it in its partition is not.
	CumulativeAcks string
	// UnconfirmedAcks: a settlement that reported success is lost if the process dies, or is cut off, about that time.
	UnconfirmedAcks string
	// LostLate: the broker passes the messages of a broken connection on as soon as it has noticed, and the member may notice later.
	// It still must.
	LostLate string
	// The environment has no function of that name.
	NoPoison, NoRecreate, NoCut, NoStop string
}

// SubscriberHarness is what RunSubscriber needs to test a broker's subscriber.
type SubscriberHarness struct {
	Features SubscriberFeatures
	// New makes a fresh environment for one test. What it starts ends with the test (t.Cleanup).
	New func(t *testing.T) SubscriberEnv
}

// SubscriberEnv is a broker with nothing in it. Where the broker waits for a settlement (AckWait) it should wait for
// about two seconds, and give up a dead member as soon as it can: tests wait for that.
type SubscriberEnv struct {
	// Topic is what messages are published to and members read. Where members share by partitions, it has several.
	Topic string
	// Publisher publishes to the topic; it is this broker's own, so that the suite sees the whole way of a message.
	Publisher postrider.Publisher
	// Member makes a subscriber for one more process of a group. A new group reads from the first message that is published
	// behind its first Subscribe, or from an earlier one.
	Member func(t testing.TB, group string) Member
	// Poison puts something that is no message where messages of the key go, and returns what must come as Delivery.Raw.
	Poison func(t testing.TB, key string) []byte
	// Recreate deletes the topic with everything in it and allows it to be recreated.
	Recreate func(t testing.TB)
	// Stop makes the broker end without warning, and Start brings it back at the same address with what it had stored.
	Stop, Start func(t testing.TB)
}

// Member is one process of a group.
type Member struct {
	postrider.Subscriber
	// Cut breaks the member's connections and keeps new ones from being made, as when its process or network has died, until
	// Restore. It concerns no other member.
	Cut, Restore func()
}

// RunSubscriber tests a subscriber against the contract of postrider.Subscriber. Every test gets a fresh environment and
// checks, besides what its name says, what always holds: what was settled does not come again; a message keeps its
// position; and who works on messages in the order in which Receive returned them, and leaves out those whose Lost is
// closed, works on each key in order, if the broker promises order, and never while another process does (LostLate: one whose
// connection is not broken); and who is cut off loses what it holds.
func RunSubscriber(t *testing.T, h SubscriberHarness) {
	t.Helper()
	f := h.Features
	tests := []struct {
		name    string
		run     func(t *testing.T, s *inbound)
		unless  []string // reasons why the test does not apply, if not empty
		ordered bool     // only with order
	}{
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
		{name: "nack", run: testNack},
		{name: "nack with delay", run: testNackDelay, unless: []string{f.NoNackDelay}},
		{name: "nack keeps order", run: testNackKeepsOrder},
		{name: "nack loses those behind", run: testNackLosesFollowers, ordered: true},
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
	t.Run("contract", func(t *testing.T) {
		// These tests wait for the broker's timers more than they work: more of them run at a time than t.Parallel lets run.
		places := make(chan struct{}, 8)
		var running sync.WaitGroup
		for _, tt := range tests {
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

// checkComplete fails for an environment that lacks what its features do not excuse.
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
