package brokertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// manyKeys returns enough keys for every member to get some of them.
func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("order/%d", i)
	}
	return keys
}

// stream publishes batches of messages with increasing numbers.
type stream struct {
	s    *inbound
	keys []string
	all  []*postrider.Message
	next int64
}

func (st *stream) publish(t testing.TB, perKey int) {
	t.Helper()
	msgs := batch(st.s.Topic, perKey*len(st.keys), st.next+1, st.keys...)
	st.next += int64(perKey)
	st.s.publish(t, msgs)
	st.all = append(st.all, msgs...)
}

// counted starts a reader and counts the messages that it works on.
func (r *reader) counted(t testing.TB) (count *atomic.Int64, stop func()) {
	count = new(atomic.Int64)
	return count, r.start(t, func(*delivery) bool {
		count.Add(1)
		return false
	})
}

func testMembersShare(t *testing.T, s *inbound) {
	one, two := s.join(t, "g"), s.join(t, "g")
	st := &stream{s: s, keys: manyKeys(20)}
	first, stop1 := one.counted(t)
	second, stop2 := two.counted(t)
	s.until(t, st, "both members to have worked", func() bool { return first.Load() > 0 && second.Load() > 0 })
	one.ledger.awaitApplied(t, st.all)
	stop1()
	stop2()
	one.leave(t)
	two.leave(t)
	s.nothingLeft(t, "g", st.keys...)
}

// until publishes until the condition is true, each batch after the previous one was worked on.
func (s *inbound) until(t testing.TB, st *stream, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if condition() {
			return
		}
		st.publish(t, 2)
		s.ledger("g").awaitApplied(t, st.all)
	}
	t.Fatalf("waited %s for %s", patience, what)
}

// testJoinAndLeave has members join and leave while messages are published. All leave properly, so that nothing is
// settled twice.
func testJoinAndLeave(t *testing.T, s *inbound) {
	st := &stream{s: s, keys: manyKeys(20)}
	stay := s.join(t, "g")
	stay.start(t, nil)
	for range 3 {
		st.publish(t, 4)
		r := s.join(t, "g")
		stop := r.start(t, nil)
		st.publish(t, 4)
		stay.ledger.awaitApplied(t, st.all[:len(st.all)/2])
		stop()
		r.leave(t)
	}
	stay.ledger.awaitApplied(t, st.all)
}

// testLeaveWithWork has a member leave while it has unsettled messages.
func testLeaveWithWork(t *testing.T, s *inbound) {
	st := &stream{s: s, keys: manyKeys(10)}
	one := s.join(t, "g")
	st.publish(t, 6)
	got := one.take(t, s.inFlight(20))
	two := s.join(t, "g")
	stop := two.start(t, nil)
	for _, d := range got[:len(got)/2] {
		if !d.lost() {
			d.apply(t)
			d.ack(t.Context(), t)
		}
	}
	one.leave(t)
	two.ledger.awaitApplied(t, st.all)
	stop()
	two.leave(t)
	s.nothingLeft(t, "g", st.keys...)
}

// takeAtOnce receives n messages that the reader holds at the same time. If the broker has leases, a slow machine may
// lose some messages while it receives others; they are redelivered.
func (r *reader) takeAtOnce(t testing.TB, n int) []*delivery {
	t.Helper()
	got := r.take(t, n)
	for deadline := time.Now().Add(patience); ; got = append(got, r.take(t, n-len(got))...) {
		got = slices.DeleteFunc(got, (*delivery).lost)
		if len(got) == n {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %d messages that are not lost before the last of them comes, and has %d", patience, n, len(got))
		}
	}
}

// testLostInOrder checks that when a message is seen to be lost, all messages after it are lost too.
func testLostInOrder(t *testing.T, s *inbound) {
	n := s.inFlight(50)
	r := s.join(t, "g")
	s.publish(t, batch(s.Topic, 50, 1, "a"))
	got := r.takeAtOnce(t, n)
	looking := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		close(looking)
		for deadline := time.Now().Add(patience); !got[0].lost(); {
			if time.Now().After(deadline) {
				t.Errorf("message %s is not lost, and its subscription is closed", got[0].Message.ID)
				return
			}
		}
		for _, d := range slices.Backward(got) { // immediately, and from the last: the moment is short
			if !d.lost() {
				t.Errorf("message %s is not lost, and %s before it is", d.Message.ID, got[0].Message.ID)
				return
			}
		}
	})
	<-looking
	r.leave(t)
	watching.Wait()
}

// testMemberDies cuts off a member with unsettled messages, permanently.
func testMemberDies(t *testing.T, s *inbound) {
	st := &stream{s: s, keys: manyKeys(10)}
	one := s.join(t, "g")
	st.publish(t, 4)
	got := one.take(t, s.inFlight(20))
	two := s.join(t, "g")
	two.start(t, nil)
	for _, d := range got[:len(got)/2] {
		if !d.lost() {
			d.apply(t)
			d.ack(t.Context(), t)
		}
	}
	if s.features.UnconfirmedAcks != "" {
		one.ledger.allowAgain()
	}
	one.die()
	st.publish(t, 4)
	two.ledger.awaitApplied(t, st.all)
}

// testCutAndRestored checks that a member continues after its connections broke.
func testCutAndRestored(t *testing.T, s *inbound) {
	st := &stream{s: s, keys: manyKeys(5)}
	r := s.join(t, "g")
	r.start(t, nil)
	for range 2 {
		st.publish(t, 10)
		r.ledger.await(t, "some work to be done", func() bool { return r.ledger.applied(st.all[len(st.all)-40]) > 0 })
		if s.features.UnconfirmedAcks != "" {
			r.ledger.allowAgain()
		}
		r.breaks()
		r.member.Cut()
		r.member.Restore()
	}
	st.publish(t, 2)
	r.ledger.awaitApplied(t, st.all)
}

// testStorm has three members that work, nack at random, leave and crash, while messages are published.
func testStorm(t *testing.T, s *inbound) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	st := &stream{s: s, keys: append(manyKeys(12), "")}
	refuse := func(*delivery) bool { return rand.IntN(15) == 0 }
	var readers []*reader
	var stops []func()
	add := func() {
		r := s.join(t, "g")
		readers, stops = append(readers, r), append(stops, r.start(t, refuse))
	}
	remove := func(i int, dies bool) {
		r, stop := readers[i], stops[i]
		readers, stops = append(readers[:i:i], readers[i+1:]...), append(stops[:i:i], stops[i+1:]...)
		if dies {
			if s.features.UnconfirmedAcks != "" {
				r.ledger.allowAgain()
			}
			r.die()
		}
		stop()
		if !dies {
			r.leave(t)
		}
	}
	for range 3 {
		add()
	}
	for n := range 4 {
		st.publish(t, 8)
		readers[0].ledger.awaitApplied(t, st.all[:len(st.all)*3/4])
		remove(random.IntN(len(readers)), n == 2 && s.features.NoCut == "")
		add()
	}
	readers[0].ledger.awaitApplied(t, st.all)
}
