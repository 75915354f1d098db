package redisbroker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
	redisbroker "github.com/postrider/postrider/broker/redis"
)

const ordersKey = "postrider:{orders/0}"

// receiveRemoved receives until n deliveries have come, and returns them with what was reported as removed before them.
func receiveRemoved(t *testing.T, sub postrider.Subscription, n int) (all []*postrider.Delivery, removed []postrider.RemovedError) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(all) < n {
		got, err := sub.Receive(ctx, n-len(all))
		if e, ok := errors.AsType[*postrider.RemovedError](err); ok {
			removed = append(removed, *e)
		} else if err != nil && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Fatalf("after %d of %d messages: %v", len(all), n, err)
		}
		all = append(all, got...)
	}
	return all, removed
}

func entryIDs(t *testing.T, client *redis.Client) (ids []string) {
	t.Helper()
	entries, err := client.XRange(t.Context(), ordersKey, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return ids
}

// removing is a stream whose entries are removed while a group reads it.
type removing struct {
	*testing.T
	server *server
	client *redis.Client
	sub    postrider.Subscription
	n      int
}

func newRemoving(t *testing.T, options string) *removing {
	r := &removing{T: t, server: startServer(t)}
	r.client = r.server.client(t)
	r.join(options)
	return r
}

func (r *removing) join(options string) {
	r.sub = subscribe(r.T, r.server.url()+"?partitions=1&group=g&topics=orders"+options, redisbroker.SubscriberConfig{})
}

func (r *removing) publish(n int) {
	r.Helper()
	p := open(r.T, r.server.url()+"?partitions=1", redisbroker.Config{})
	msgs := numbered("orders", "a", r.n+n)[r.n:]
	if errs := p.Publish(r.Context(), msgs); errs != nil {
		r.Fatal(errs)
	}
	r.n += n
}

// trim removes all entries but the last n.
func (r *removing) trim(n int64) {
	r.Helper()
	if err := r.client.XTrimMaxLen(r.Context(), ordersKey, n).Err(); err != nil {
		r.Fatal(err)
	}
}

// settles receives and acknowledges n messages, and compares what is reported as removed before them.
func (r *removing) settles(n int, want ...postrider.RemovedError) {
	r.Helper()
	got, removed := receiveRemoved(r.T, r.sub, n)
	if len(removed) != len(want) {
		r.Fatalf("removed: %+v, want %+v", removed, want)
	}
	for i := range want {
		want[i].Partition = "orders/0"
		if removed[i] != want[i] {
			r.Errorf("removed: %+v, want %+v", removed[i], want[i])
		}
	}
	ack(r.T, got...)
}

// TestRemovedBeforeItWasDelivered: the stream is trimmed while the group is away, or slow. The exact number is reported once.
func TestRemovedBeforeItWasDelivered(t *testing.T) {
	t.Parallel()
	r := newRemoving(t, "")
	if err := r.sub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"0-0", ""} { // nothing was ever read, and then 2 messages
		if before == "" {
			before = entryIDs(t, r.client)[1]
		}
		r.publish(6)
		r.trim(2)
		after := entryIDs(t, r.client)[0]
		r.join("")
		r.settles(2, postrider.RemovedError{Messages: 4, From: before, To: after})
		r.publish(1)
		r.settles(1)
		r.trim(0)
		r.publish(2)
		r.settles(2)
		if err := r.sub.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemovedBeforeTheGroup: what was removed before the group existed was never its own.
func TestRemovedBeforeTheGroup(t *testing.T) {
	t.Parallel()
	r := newRemoving(t, "")
	r.publish(5)
	r.settles(5)
	r.trim(2)
	if err := r.client.XDel(t.Context(), ordersKey, entryIDs(t, r.client)[0]).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.client.XGroupDestroy(t.Context(), ordersKey, "g").Err(); err != nil {
		t.Fatal(err)
	}
	r.settles(1)
	r.publish(2)
	r.settles(2)
}

// TestDeletedBeforeItWasDelivered: entries were deleted one by one, so only the range is known.
func TestDeletedBeforeItWasDelivered(t *testing.T) {
	t.Parallel()
	r := newRemoving(t, "")
	r.publish(1)
	r.settles(1)
	if err := r.sub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.publish(4)
	ids := entryIDs(t, r.client)
	if err := r.client.XDel(t.Context(), ordersKey, ids[2], ids[3]).Err(); err != nil {
		t.Fatal(err)
	}
	r.join("")
	r.settles(2, postrider.RemovedError{Messages: 1, From: ids[0], To: ids[3]})
	r.publish(1)
	r.settles(1)
}

// TestSettledAreNotRemoved: a group that deletes what it has settled, and whose stream is trimmed, reports nothing.
func TestSettledAreNotRemoved(t *testing.T) {
	t.Parallel()
	r := newRemoving(t, "&delete_settled=true")
	for range 3 {
		r.publish(3)
		r.settles(3)
		r.publish(2)
		r.settles(1)
		r.settles(1)
		r.trim(0)
	}
}

// TestRemovedFromADeadProcess: the process that had received the messages died, and they were trimmed before another claims them.
func TestRemovedFromADeadProcess(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	faults := newProxy(t, s.address())
	const options = "?partitions=1&group=g&topics=orders&claim_after=300ms"
	dead, err := openSubscriber(t, faults.url()+options+"&publish_timeout=1s", redisbroker.SubscriberConfig{}).Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dead.Close(context.WithoutCancel(t.Context())) })
	p := open(t, s.url()+"?partitions=1", redisbroker.Config{})
	if errs := p.Publish(t.Context(), numbered("orders", "a", 4)); errs != nil {
		t.Fatal(errs)
	}
	receive(t, dead, 4)
	faults.Sever()
	r := &removing{T: t, server: s, client: s.client(t), n: 4}
	ids := entryIDs(t, r.client)
	r.trim(1)
	r.join("&claim_after=300ms")
	r.settles(1, postrider.RemovedError{Messages: 3, From: ids[0], To: ids[2], Delivered: true})
}
