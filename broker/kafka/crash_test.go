package kafkabroker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/memory"
)

// TestCutOffMemberStops checks that a member without contact to its group gives up its deliveries before others receive
// them, and that nothing is missing after it reconnects.
func TestCutOffMemberStops(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	s.publish(t, 0, 20)
	one, link := s.join(t, nil)
	got := receive(t, one, 20)
	ack(t, got[:5]...)
	link.Sever()
	two, _ := s.join(t, nil)
	for _, d := range got[5:] {
		select {
		case <-d.Lost():
		case <-time.After(5 * time.Minute):
			t.Fatal("a member that is cut off does not give up its work")
		}
		ack(t, d) // does nothing
	}
	link.Restore()
	want := make(map[string]bool)
	for _, d := range got[5:] {
		want[d.Message.ID] = true
	}
	var mu sync.Mutex
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(by(t))
	defer cancel()
	var reading sync.WaitGroup
	for _, sub := range []postrider.Subscription{one, two} {
		reading.Go(func() {
			for ctx.Err() == nil {
				again, _ := sub.Receive(ctx, 20) // retried while it is unavailable
				ack(t, again...)
				mu.Lock()
				before := len(want)
				for _, d := range again {
					delete(want, d.Message.ID)
				}
				if before > 0 && len(want) == 0 {
					close(done)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Errorf("what was given up does not come again: %d messages", len(want))
	}
	cancel()
	reading.Wait()
}

// reading waits until a member fetches: it then has its partitions and their start offsets.
func reading(t *testing.T, link *proxy) {
	t.Helper()
	until(t, func() bool { return link.count(fetchKey) > 0 })
}

// awaitMembers waits until the group is stable with n members.
func (s *source) awaitMembers(t *testing.T, n int) {
	t.Helper()
	until(t, func() bool {
		described, err := s.admin.DescribeGroups(by(t), s.topic)
		return err == nil && described[s.topic].State == "Stable" && len(described[s.topic].Members) == n
	})
}

// TestIdleMemberStaysStopped cuts off a member only from the group, not from the partitions, while it has nothing to
// settle. It must still stop.
func TestIdleMemberStaysStopped(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	one, link := s.join(t, nil)
	reading(t, link)
	link.dropRequests(false, groupKeys...)
	two, link2 := s.join(t, nil)
	reading(t, link2)
	s.awaitMembers(t, 1)
	s.publish(t, 0, 8)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for ctx.Err() == nil {
			got, _ := one.Receive(ctx, 8) // errors report that the group does not answer
			for _, d := range got {
				t.Errorf("the member that the group has given up receives message %s", d.Message.ID)
			}
		}
	})
	ack(t, receive(t, two, 8)...)
	waiting.Wait()
	link.dropRequests(false)
	link.Drop() // so that the member can leave
}

// TestCutOffWhileJoining loses the answer to a rejoin, and with it the outcome: the member must not wait for it while it
// has unsettled messages.
func TestCutOffWhileJoining(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	s.publish(t, 0, 20)
	one, link := s.join(t, nil)
	held := make(map[string]*postrider.Delivery)
	for _, d := range receive(t, one, 20) {
		held[d.Message.ID] = d
	}
	link.muteAfter(joinKey)
	two, _ := s.join(t, nil)
	for _, d := range receive(t, two, 20) {
		if !isLost(held[d.Message.ID]) {
			t.Errorf("two members work on message %s", d.Message.ID)
		}
	}
	link.Drop() // so that the member can leave
}

// TestWorkContinuesWhileOthersJoin makes the group wait for a crashed member for longer than another member's session. The
// other member gets no answer until its join request is answered, and continues to work meanwhile.
func TestWorkContinuesWhileOthersJoin(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	long := func(c *kafkabroker.SubscriberConfig) { c.SessionTimeout = 2 * sessionTimeout }
	one, link := s.join(t, nil)
	reading(t, link)
	_, crashing := s.join(t, long)
	reading(t, crashing) // partitions that the other member has released for it
	s.awaitMembers(t, 2)
	s.publish(t, 0, 40)
	under := receive(t, one, 1)
	crashing.Sever()
	_, link = s.join(t, nil)
	reading(t, link) // the group has removed the crashed member
	s.awaitMembers(t, 2)
	for _, d := range under {
		if isLost(d) {
			t.Errorf("message %s is lost, and nothing was wrong with the member", d.Message.ID)
		}
	}
}

// effects is a store that counts the side effects of committed transactions.
type effects struct {
	*memory.Store
	mu      sync.Mutex
	open    map[*memory.Tx][]*postrider.Message
	of      map[string]int   // number of side effects, by message ID
	version map[string]int64 // version of the last message, by key
	errs    []error
}

func (e *effects) handle(_ context.Context, tx *memory.Tx, m *postrider.Message) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open[tx] = append(e.open[tx], m)
	return nil
}

// Commit implements store.Inbox.
func (e *effects) Commit(ctx context.Context, tx *memory.Tx) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.Store.Commit(ctx, tx); err != nil {
		return err
	}
	for _, m := range e.open[tx] {
		if e.of[m.ID]++; e.of[m.ID] > 1 {
			e.errs = append(e.errs, fmt.Errorf("message %s has its effect %d times", m.ID, e.of[m.ID]))
		}
		if e.version[m.Key]++; m.AggregateVersion != e.version[m.Key] {
			e.errs = append(e.errs, fmt.Errorf("message %s has its effect as number %d of its key", m.ID, e.version[m.Key]))
		}
	}
	return nil
}

func (e *effects) number() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.of)
}

// TestEffectOnceThroughCrashes has consumers with an inbox work on a topic while members are cut off.
func TestEffectOnceThroughCrashes(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	store := &effects{
		Store: memory.New(memory.Config{}), open: make(map[*memory.Tx][]*postrider.Message),
		of: make(map[string]int), version: make(map[string]int64),
	}
	in, err := inbox.New(store)
	if err != nil {
		t.Fatal(err)
	}
	const messages = 400
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	var links []*proxy
	for range 2 {
		link := newProxy(t, s.address)
		links = append(links, link)
		sub := openSubscriber(t, link, kafkabroker.SubscriberConfig{Group: s.topic, Topics: []string{s.topic}})
		c, err := inbox.NewConsumer(in, sub, inbox.ConsumerConfig{Name: "view", RequireOrder: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.HandleFunc("test.happened", store.handle); err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	for n := range messages / 10 {
		var msgs []*postrider.Message
		for k := range 10 {
			msgs = append(msgs, message("orders", "order/"+strconv.Itoa(k), n+1))
		}
		mustPublish(t, s.publisher, msgs...)
		if n%10 == 5 {
			links[n/10%2].Sever()
		}
		if n%10 == 8 {
			links[n/10%2].Restore()
		}
	}
	until(t, func() bool { return store.number() == messages })
	cancel()
	running.Wait()
	for _, err := range store.errs {
		t.Error(err)
	}
}
