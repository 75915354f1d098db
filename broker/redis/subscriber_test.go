package redisbroker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
	redisbroker "github.com/postrider/postrider/broker/redis"
)

func TestSettledIsDeleted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client(t)
	sub := subscribe(t, s.url()+"?partitions=1&delete_settled=true&group=g&topics=orders", redisbroker.SubscriberConfig{})
	p := open(t, s.url()+"?partitions=1", redisbroker.Config{})
	if errs := p.Publish(t.Context(), numbered("orders", "a", 4)); errs != nil {
		t.Fatal(errs)
	}
	got := receive(t, sub, 4)
	ack(t, got[:2]...)
	if err := got[2].Reject(t.Context(), "bad"); err != nil {
		t.Error(err)
	}
	if n := client.XLen(t.Context(), "postrider:{orders/0}").Val(); n != 1 {
		t.Errorf("stream has %d entries, want the one that is not settled", n)
	}
}

// TestEverythingFlushed deletes all data of the server while one member reads and another waits.
func TestEverythingFlushed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	url := s.url() + "?partitions=2&group=g&topics=orders&claim_after=1s"
	sub := subscribe(t, url, redisbroker.SubscriberConfig{})
	p := open(t, s.url()+"?partitions=2", redisbroker.Config{})
	publish := func(msgs []*postrider.Message) {
		t.Helper()
		if errs := p.Publish(t.Context(), msgs); errs != nil {
			t.Fatal(errs)
		}
	}
	publish(numbered("orders", "a", 3))
	before := receive(t, sub, 3)
	if err := s.client(t).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	publish(numbered("orders", "a", 2))
	after := receive(t, sub, 2)
	awaitLost(t, before...)
	if a, b := before[0].Position, after[0].Position; a.Incarnation == b.Incarnation {
		t.Errorf("incarnation is %q before and after", a.Incarnation)
	}
	ack(t, after...)
}

// TestGroupDestroyed deletes the group: everything is redelivered, at the same positions.
func TestGroupDestroyed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	sub := subscribe(t, s.url()+"?partitions=1&group=g&topics=orders", redisbroker.SubscriberConfig{})
	p := open(t, s.url()+"?partitions=1", redisbroker.Config{})
	if errs := p.Publish(t.Context(), numbered("orders", "a", 3)); errs != nil {
		t.Fatal(errs)
	}
	before := receive(t, sub, 3)
	ack(t, before[0])
	if err := s.client(t).XGroupDestroy(t.Context(), "postrider:{orders/0}", "g").Err(); err != nil {
		t.Fatal(err)
	}
	after := receive(t, sub, 3)
	awaitLost(t, before[1:]...)
	for i := range before {
		if before[i].Position != after[i].Position {
			t.Errorf("message %s stood at %+v, and now at %+v", before[i].Message.ID, before[i].Position, after[i].Position)
		}
	}
	ack(t, after...)
}

// TestPendingEntryTrimmed deletes entries that were delivered and nacked. They are reported.
func TestPendingEntryTrimmed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client(t)
	sub := subscribe(t, s.url()+"?partitions=1&group=g&topics=orders", redisbroker.SubscriberConfig{})
	p := open(t, s.url()+"?partitions=1", redisbroker.Config{})
	if errs := p.Publish(t.Context(), numbered("orders", "a", 3)); errs != nil {
		t.Fatal(errs)
	}
	got := receive(t, sub, 3)
	if err := client.XTrimMaxLen(t.Context(), "postrider:{orders/0}", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if err := got[0].Nack(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	left, removed := receiveRemoved(t, sub, 1)
	if left[0].Message.ID != got[2].Message.ID {
		t.Errorf("message %s came, want the one that is left", left[0].Message.ID)
	}
	n := int64(0)
	for _, e := range removed {
		if n += e.Messages; !e.Delivered || e.Partition != got[0].Position.Partition {
			t.Errorf("removed: %+v, want messages that had been delivered", e)
		}
	}
	if n != 2 {
		t.Errorf("%d were removed, want 2", n)
	}
	ack(t, left...)
	if pending := client.XPending(t.Context(), "postrider:{orders/0}", "g").Val(); pending.Count != 0 {
		t.Errorf("%d entries are pending", pending.Count)
	}
}

// TestDeadConsumersAreRemoved checks that consumers that left or crashed are removed from the group.
func TestDeadConsumersAreRemoved(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client(t)
	url := "?partitions=1&group=g&topics=orders&claim_after=300ms"
	faults := newProxy(t, s.address())
	p := open(t, s.url()+"?partitions=1", redisbroker.Config{})
	dead, err := openSubscriber(t, faults.url()+url+"&publish_timeout=1s", redisbroker.SubscriberConfig{}).Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dead.Close(context.WithoutCancel(t.Context())) })
	if errs := p.Publish(t.Context(), numbered("orders", "a", 3)); errs != nil {
		t.Fatal(errs)
	}
	first := receive(t, dead, 3)
	faults.Sever()
	next := subscribe(t, s.url()+url, redisbroker.SubscriberConfig{})
	again := receive(t, next, 3)
	awaitLost(t, first...)
	for i, d := range first {
		if again[i].Position != d.Position || again[i].Deliveries != 2 {
			t.Errorf("delivery is %+v, want the second of %+v", again[i], d.Position)
		}
	}
	ack(t, again...)
	if err := next.Close(t.Context()); err != nil {
		t.Error(err)
	}
	consumers := client.XInfoConsumers(t.Context(), "postrider:{orders/0}", "g").Val()
	if len(consumers) != 0 {
		t.Errorf("consumers %+v are left", consumers)
	}
}

// TestClockSetBack reads a stream whose IDs stay at a future time, because the server's clock was ahead: more entries
// than fit into an offset have the same time. Their positions differ, and a Nack loses the deliveries after the nacked
// one.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s.url()+"?partitions=1", redisbroker.Config{})
	ahead := fmt.Sprintf("%d-%d", time.Now().Add(time.Hour).UnixMilli(), 1<<20-3)
	if err := s.client(t).XAdd(t.Context(), &redis.XAddArgs{Stream: "postrider:{orders/0}", ID: ahead, Values: []string{"data", "x"}}).Err(); err != nil {
		t.Fatal(err)
	}
	if errs := p.Publish(t.Context(), numbered("orders", "a", 5)); errs != nil {
		t.Fatal(errs)
	}
	sub := subscribe(t, s.url()+"?partitions=1&group=g&topics=orders", redisbroker.SubscriberConfig{})
	got := receive(t, sub, 6)
	for i, d := range got[1:] {
		if a, b := got[i].Position, d.Position; a.Incarnation == b.Incarnation && a.Offset >= b.Offset {
			t.Errorf("message %s stands at %+v, the one before it at %+v", d.Message.ID, b, a)
		}
	}
	ack(t, got[:3]...)
	if err := got[3].Nack(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, d := range got[4:] {
		select {
		case <-d.Lost():
		default:
			t.Fatalf("message %s follows one that was given back, and is not lost", d.Message.ID)
		}
	}
	for i, d := range receive(t, sub, 3) {
		if before := got[3+i]; d.Message.ID != before.Message.ID || d.Position != before.Position {
			t.Errorf("message %s comes again at %+v, want %s at %+v", d.Message.ID, d.Position, before.Message.ID, before.Position)
		}
		ack(t, d)
	}
}

// TestReadByHand has an operator read an entry with the group while a member has earlier ones. The member loses them
// until the operator has settled the entry, and then they are redelivered before all others. Meanwhile the member
// neither extends them nor keeps the server busy.
func TestReadByHand(t *testing.T) {
	t.Parallel()
	const stream, claimAfter = "postrider:{orders/0}", time.Second
	s := startServer(t)
	client := s.client(t)
	sub := subscribe(t, s.url()+"?partitions=1&group=g&topics=orders", redisbroker.SubscriberConfig{ClaimAfter: claimAfter})
	p := open(t, s.url()+"?partitions=1", redisbroker.Config{})
	msgs := numbered("orders", "a", 6)
	if errs := p.Publish(t.Context(), msgs[:2]); errs != nil {
		t.Fatal(errs)
	}
	before := receive(t, sub, 2)
	if errs := p.Publish(t.Context(), msgs[2:]); errs != nil {
		t.Fatal(errs)
	}
	peeked := readByHand(t, client, stream, "operator")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	received := make(chan []*postrider.Delivery, 1)
	go func() {
		got, _ := sub.Receive(ctx, 10) // fails when ctx ends
		received <- got
	}()
	awaitLost(t, before...)
	began := time.Now()
	if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "what the member has to be free for others", func() bool {
		client.XClaimJustID(t.Context(), &redis.XClaimArgs{Stream: stream, Group: "g", Consumer: "operator", Messages: []string{peeked}})
		free := client.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: stream, Group: "g", Idle: claimAfter, Start: "-", End: "+", Count: 10})
		return len(free.Val()) == 2
	})
	if n, limit := callsOf(t, client, "evalsha"), 20+int(time.Since(began)/(10*time.Millisecond)); n > limit {
		t.Errorf("the member looked %d times while it could do nothing, want at most %d", n, limit)
	}
	cancel()
	if got := <-received; len(got) > 0 {
		t.Errorf("%d messages came while the operator had one of those before them", len(got))
	}
	if err := client.XAck(t.Context(), stream, "g", peeked).Err(); err != nil {
		t.Fatal(err)
	}
	for i, d := range receive(t, sub, 5) {
		if want := []string{msgs[0].ID, msgs[1].ID, msgs[3].ID, msgs[4].ID, msgs[5].ID}[i]; d.Message.ID != want {
			t.Errorf("message %s came, want %s", d.Message.ID, want)
		}
		ack(t, d)
	}
}

// TestAllIsClaimedOrNothing joins a group in which one consumer has crashed and another one still has an entry. After
// that entry is settled, the entries of the crashed consumer are redelivered before all others.
func TestAllIsClaimedOrNothing(t *testing.T) {
	t.Parallel()
	const stream = "postrider:{orders/0}"
	s := startServer(t)
	client := s.client(t)
	p := open(t, s.url()+"?partitions=1", redisbroker.Config{})
	if errs := p.Publish(t.Context(), numbered("orders", "a", 4)); errs != nil {
		t.Fatal(errs)
	}
	if err := client.XGroupCreate(t.Context(), stream, "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	first, second := readByHand(t, client, stream, "a-dead"), readByHand(t, client, stream, "b-alive")
	if err := client.Do(t.Context(), "xclaim", stream, "g", "a-dead", 0, first, "idle", time.Hour.Milliseconds()).Err(); err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, s.url()+"?partitions=1&group=g&topics=orders", redisbroker.SubscriberConfig{ClaimAfter: time.Minute})
	if err := client.XAck(t.Context(), stream, "g", second).Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"orders-a-00001", "orders-a-00003", "orders-a-00004"} {
		d := receive(t, sub, 1)[0]
		if d.Message.ID != want {
			t.Fatalf("message %s came, want %s", d.Message.ID, want)
		}
		ack(t, d)
	}
}

// readByHand reads an entry as a consumer of group g, and returns its ID.
func readByHand(t testing.TB, client *redis.Client, stream, consumer string) string {
	t.Helper()
	got, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{stream, ">"}, Count: 1}).Result()
	if err != nil {
		t.Fatal(err)
	}
	return got[0].Messages[0].ID
}

// callsOf returns how often a server ran a command since its statistics began.
func callsOf(t testing.TB, client *redis.Client, command string) int {
	t.Helper()
	stats, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, found, ok := strings.Cut(stats, "cmdstat_"+command+":calls=")
	var n int
	if _, err := fmt.Sscan(strings.ReplaceAll(found, ",", " "), &n); !ok || err != nil {
		t.Fatalf("no number of calls of %s: %v", command, err)
	}
	return n
}

// TestForeignEntries reads entries that other programs wrote.
func TestForeignEntries(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client(t)
	sub := subscribe(t, s.url()+"?partitions=1&group=g&topics=orders", redisbroker.SubscriberConfig{})
	for _, values := range [][]string{
		{"ce_specversion", "1.0", "ce_id", "1", "ce_type", "placed", "ce_source", "/else", "data", "{}", "other", "field"},
		{"no", "event"},
	} {
		if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "postrider:{orders/0}", Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	got := receive(t, sub, 2)
	if m := got[0].Message; got[0].Err != nil || m.ID != "1" || m.Type != "placed" || string(m.Payload) != "{}" {
		t.Errorf("delivery is %+v with message %+v", got[0], m)
	}
	if got[1].Err == nil || string(got[1].Raw) != `["no" "event"]` {
		t.Errorf("delivery is %+v with %q, want an error", got[1], got[1].Raw)
	}
	ack(t, got...)
}

// TestRights runs as users with exactly the documented permissions.
func TestRights(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client(t)
	publish := []any{"+multi", "+exec", "+xadd", "+info", "+client|setname"}
	read := []any{
		"+evalsha", "+script|load", "+xinfo", "+xrange", "+xgroup", "+xpending", "+xreadgroup", "+xclaim", "+xack", "+xdel", "+exists", "+time",
		"+zadd", "+zrem", "+zremrangebyscore", "+zrange", "+pexpire",
	}
	for name, rights := range map[string][]any{"publisher": publish, "reader": append(read, publish...)} {
		if err := client.Do(t.Context(), append([]any{"acl", "setuser", name, "on", ">x", "~postrider:*"}, rights...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, "redis://publisher:x@"+s.address(), redisbroker.Config{})
	sub := subscribe(t, "redis://reader:x@"+s.address()+"?group=g&topics=orders&delete_settled=true", redisbroker.SubscriberConfig{})
	if errs := p.Publish(t.Context(), numbered("orders", "a", 2)); errs != nil {
		t.Fatal(errs)
	}
	got := receive(t, sub, 2)
	reader := openSubscriber(t, "redis://reader:x@"+s.address(), redisbroker.SubscriberConfig{Group: "g", Topics: []string{"orders"}})
	for _, kept := range []bool{true, false} {
		want := postrider.PositionRemoved
		if kept {
			want = postrider.PositionKept
		}
		if state, err := reader.VerifyPosition(t.Context(), got[1].Position); err != nil || state != want {
			t.Errorf("with the entry there %v: state %v, error %v, want %v", kept, state, err, want)
		}
		if kept {
			ack(t, got...) // deletes the entries
		}
	}
	trimmed := got[0].Position
	if errs := p.Publish(t.Context(), numbered("orders", "a", 3)); errs != nil {
		t.Fatal(errs)
	}
	if state, err := reader.VerifyPosition(t.Context(), trimmed); err != nil || state != postrider.PositionRemoved {
		t.Errorf("of an entry that was deleted: state %v, error %v, want removed", state, err)
	}
}
