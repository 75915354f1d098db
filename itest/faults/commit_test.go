package faults

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// TestAcknowledgedThenFailover: a queue does not redeliver acknowledged messages. So the effect of a message must be on
// the synchronous standby before the message is acknowledged, even if the database commits asynchronously by default.
func TestAcknowledgedThenFailover(t *testing.T) {
	t.Parallel()
	p := newPostgresWorld(t, lateLog...)
	primary, s := p.server.URL, p.startStandby()
	p.url = p.bothURL(s)
	p.reopen()
	broker := startNATS(t)
	p.runToNATS(p.store(10), relay.Config{Name: "to-nats"}, broker.URL)
	p.admin(primary, "alter system set synchronous_standby_names = '*'; select pg_reload_conf()")
	asynchronous := p.url + "&synchronous_commit=off"
	runConsumer(p.world, postgresStore(t, asynchronous, 24), "consumer", broker.URL, addEffect("consumer", onPostgres))
	p.writeLate()
	load := p.newLoad()
	for range 3 {
		load.publish(accounts)
	}
	facts := p.facts()
	awaitAcknowledged(t, broker.URL, len(facts))
	p.failOver(s)
	if after := p.facts(); len(after) != len(facts) {
		t.Fatalf("the load itself is wrong: %d of %d steps came through the failover", len(after), len(facts))
	}
	p.awaitEffects("consumer", facts)
}

// awaitAcknowledged waits until a consumer of the stream STEPS has acknowledged n messages.
func awaitAcknowledged(t *testing.T, broker string, n int) {
	t.Helper()
	nc, err := nats.Connect(broker)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "all messages are acknowledged", func() string {
		c, err := js.Consumer(t.Context(), "STEPS", "consumer")
		if err != nil {
			return err.Error()
		}
		info, err := c.Info(t.Context())
		if err != nil {
			return err.Error()
		}
		if int(info.AckFloor.Stream) < n || info.NumAckPending > 0 {
			return fmt.Sprintf("%d of %d, %d delivered and not acknowledged", info.AckFloor.Stream, n, info.NumAckPending)
		}
		return ""
	})
}

// TestSynchronousStandbyHangs: commits wait for a standby that does not respond, longer than the lease TTL. When the
// standby is dropped, everything is delivered, in order and with its effect once.
func TestSynchronousStandbyHangs(t *testing.T) {
	t.Parallel()
	p := newPostgresWorld(t)
	plain := newRecorder()
	for range 2 {
		p.runHandler(p.store(10), relay.Config{Name: "plain", LeaseTTL: shortLease}, plain)
		runHandlerTx(p.world, p.store(20), relay.Config{Name: "effects", LeaseTTL: shortLease}, addEffect("effects", onPostgres))
	}
	load := p.newLoad()
	during, cancel := context.WithTimeout(t.Context(), 4*shortLease)
	defer cancel()
	ended := load.during(during)
	<-time.After(shortLease / 2)
	p.admin(p.server.URL, "alter system set synchronous_standby_names = 'nobody'; select pg_reload_conf()")
	<-time.After(2 * shortLease)
	p.admin(p.server.URL, "alter system reset synchronous_standby_names; select pg_reload_conf()")
	ended()
	facts := p.facts()
	p.checkAcknowledged(load.acknowledged)
	p.awaitEffects("effects", facts)
	p.awaitDelivered(plain, "plain", facts, false)
	p.checkCounts(p.awaitSettled(p.store(2)), len(facts), "plain", "effects")
}

// TestRepeatableReadAcrossHeartbeats: by the database's default, handlers' transactions keep their snapshot from the
// beginning, and heartbeats happen between that and their commit. They commit nevertheless.
func TestRepeatableReadAcrossHeartbeats(t *testing.T) {
	t.Parallel()
	p := newPostgresWorld(t)
	p.exec("alter database postgres set default_transaction_isolation = 'repeatable read'")
	p.reopen()
	load := p.newLoad()
	const steps = 16
	load.publish(steps)
	var calls atomic.Int64
	add := addEffect("effects", onPostgres)
	for range 2 { // with a second process, a lease is renewed after a tenth of its TTL
		runHandlerTx(p.world, p.store(20), relay.Config{Name: "effects"}, func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
			calls.Add(1)
			select {
			case <-time.After(2 * time.Second):
				return add(ctx, tx, m)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	p.awaitEffects("effects", p.facts())
	if n := calls.Load(); n >= 2*steps {
		t.Errorf("a promise broke: %d calls for %d messages", n, steps)
	}
	p.checkCounts(p.awaitSettled(p.store(2)), steps, "effects")
}

// TestSuccessorAfterCrash: a second process starts when the server is back, while the first still delivers what it has in
// memory. No two calls for a key run at once, and the order is kept.
func TestSuccessorAfterCrash(t *testing.T) {
	t.Parallel()
	p := newPostgresWorld(t)
	load := p.newLoad()
	for range 10 {
		load.publish(accounts)
	}
	hooks := newRecorder()
	hooks.work = 100 * time.Millisecond
	url := hooks.serve(t)
	for i := range 3 {
		p.startRelay(webhookRelay("hooks", url))
		await(t, "messages arrive", func() string {
			if n := len(hooks.seen()); n < 100*(i+1) {
				return fmt.Sprintf("%d have", n)
			}
			return ""
		})
		p.crash()
	}
	p.startRelay(webhookRelay("hooks", url))
	facts := p.facts()
	p.awaitDelivered(hooks, "hooks", facts, false)
	p.checkCounts(p.awaitSettled(p.store(2)), len(facts), "hooks")
}

// TestStatusOnStandby: status works on a standby, and shows what has been replicated.
func TestStatusOnStandby(t *testing.T) {
	t.Parallel()
	p := newPostgresWorld(t)
	plain := newRecorder()
	p.runHandler(p.store(10), relay.Config{Name: "plain"}, plain)
	s := p.startStandby()
	p.newLoad().publish(accounts)
	p.awaitSettled(p.store(2))
	standby := postgresStore(t, s.server.URL, 2)
	await(t, "the standby shows that all is delivered", func() string {
		all, err := statusOf(t.Context(), standby)
		if err != nil {
			return err.Error()
		}
		if n := all["plain"].Delivered; n != accounts {
			return fmt.Sprintf("%d of %d", n, accounts)
		}
		return ""
	})
	t.Log(p.postrider("status", "--details", "--store", s.server.URL))
}
