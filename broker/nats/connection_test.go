package natsbroker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

// TestDomain: with a JetStream domain, acknowledgements contain it, and those of duplicates say so.
func TestDomain(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, func(o *server.Options) { o.JetStreamDomain = "leaf" })
		createStream(t, s.address(), "ORDERS", batches)
		p := open(t, "nats://"+s.address()+"?stream=ORDERS", natsbroker.Config{})
		for range 2 {
			if errs := p.Publish(t.Context(), numbered("orders", "a", 20)); errs != nil {
				t.Fatal(errs)
			}
		}
		if got := arrived(t, s.address(), "ORDERS", "orders"); len(got) != 20 {
			t.Errorf("%d messages arrived, want 20", len(got))
		}
	})
}

func TestNotAllowed(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, func(o *server.Options) {
			o.Users = []*server.User{{Username: "shop", Password: "secret", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{"ORDERS.secret.>"}},
			}}}
		})
		url := "nats://shop:secret@" + s.address()
		createStream(t, url, "ORDERS", batches)
		p := open(t, url+"?stream=ORDERS", natsbroker.Config{PublishTimeout: 3 * time.Second})
		open, secret := numbered("open", "b", 9), numbered("secret.plan", "a", 6)
		for name, msgs := range map[string][]*postrider.Message{
			"first": {secret[0], secret[1], open[0], open[1], open[2]},
			"among": {open[3], secret[2], open[4], secret[3], open[5]},
			"last":  {open[6], open[7], open[8], secret[4], secret[5]},
		} {
			errs := p.Publish(t.Context(), msgs)
			failed := false
			for i, m := range msgs {
				switch {
				case m.Key == "b" && errs[i] != nil:
					t.Errorf("%s: message %s, which is allowed: %v", name, m.ID, errs[i])
				case m.Key == "a" && failed:
					wantOutcome(t, errs[i], postrider.Retried, postrider.ErrPredecessorFailed.Error())
				case m.Key == "a":
					wantOutcome(t, errs[i], postrider.Retried, "may not publish to subject ORDERS.secret.plan")
					failed = true
				}
			}
		}
	})
}

// TestGivenConnection checks that New does not close the caller's connection, even if it has ended.
func TestGivenConnection(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, _ := connect(t, s.address())
	p, err := natsbroker.New(t.Context(), conn, natsbroker.Config{Stream: "ORDERS"})
	if err != nil {
		t.Fatal(err)
	}
	if errs := p.Publish(t.Context(), numbered("orders", "a", 3)); errs != nil {
		t.Error(errs[0])
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if !conn.IsConnected() {
		t.Error("Close of the publisher closed the connection")
	}
	if p, err = natsbroker.New(t.Context(), conn, natsbroker.Config{Stream: "ORDERS"}); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for _, err := range p.Publish(t.Context(), numbered("orders", "a", 1)) {
		wantOutcome(t, err, postrider.BrokerUnavailable)
	}
	if err := p.Close(); err != nil {
		t.Errorf("close after the connection: %v", err)
	}
}

// TestLameDuck checks that an orderly server shutdown has no effect.
func TestLameDuck(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, func(o *server.Options) {
		o.LameDuckDuration, o.LameDuckGracePeriod = 200*time.Millisecond, 10*time.Millisecond
	})
	p := open(t, "nats://"+s.address()+"?stream=ORDERS&publish_timeout=1s", natsbroker.Config{
		Options: []nats.Option{nats.CustomReconnectDelay(func(int) time.Duration { return 10 * time.Millisecond })},
	})
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		s.server.LameDuckShutdown()
		s.server.WaitForShutdown()
		s.start(t)
	}()
	var all []*postrider.Message
	for n := 0; ; n++ {
		msgs := numbered(fmt.Sprintf("orders.%d", n), "a", 50)
		all = append(all, msgs...)
		deliver(t, p, msgs)
		select {
		case <-restarted:
		default:
			continue
		}
		break
	}
	if got := arrived(t, s.address(), "ORDERS", "orders.*"); len(got) < len(all) {
		t.Errorf("%d messages arrived of %d", len(got), len(all))
	}
}
