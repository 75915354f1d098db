package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// logged returns a relay whose log, at the default level, can be read when it has stopped.
func (b *bundle) logged(cfg relay.Config) (*relay.Relay, *bytes.Buffer) {
	b.t.Helper()
	var text bytes.Buffer
	cfg.Name, cfg.Logger = "r", slog.New(slog.NewTextHandler(&text, nil))
	r, err := relay.New(b.store, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return r, &text
}

// TestFailedAttemptIsLogged: each failed attempt is logged at the default level. A snooze is not.
func TestFailedAttemptIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r, text := b.logged(relay.Config{MaxAttempts: 3})
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			if m.Key == "snoozed" {
				return postrider.Snooze(time.Hour)
			}
			return errBoom
		})
		b.publish(b.msgs("order/42", "snoozed")...)
		stop := b.start(r)
		pass(time.Minute)
		stop()
		for _, line := range []string{
			"level=WARN msg=\"attempt failed\" relay=r message=m001 type=t key=order/42 tenant=\"\" attempt=1 reason=retry next_attempt_in=",
			"attempt=2 reason=retry", "cause=boom", "level=ERROR msg=\"message is dead\"",
		} {
			if !strings.Contains(text.String(), line) {
				t.Errorf("the log does not have %q:\n%s", line, text)
			}
		}
		if n := strings.Count(text.String(), "attempt failed"); n != 2 || strings.Contains(text.String(), "snoozed") {
			t.Errorf("%d lines of failed attempts, want 2, and none of the snooze:\n%s", n, text)
		}
	})
}

// TestFailureNamesItsMessage: with its versions, and the messages that it belongs to.
func TestFailureNamesItsMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r, text := b.logged(relay.Config{MaxAttempts: 2})
		handle(t, r, func(context.Context, *postrider.Message) error { return errBoom })
		m := b.msg("k")
		m.SchemaVersion, m.AggregateVersion, m.CorrelationID, m.CausationID = 3, 7, "c-1", "m-0"
		b.publish(m)
		stop := b.start(r)
		pass(time.Minute)
		stop()
		if n := strings.Count(text.String(), "schema_version=3 aggregate_version=7 correlation=c-1 causation=m-0 attempt"); n != 2 {
			t.Errorf("%d lines name the message, want 2:\n%s", n, text)
		}
	})
}

// TestManyFailedAttemptsFillNoLog: a thousand attempts that fail at once are logged as a few lines and a count of the others.
func TestManyFailedAttemptsFillNoLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r, text := b.logged(relay.Config{})
		var failed atomic.Int32
		handle(t, r, func(context.Context, *postrider.Message) error {
			failed.Add(1)
			return postrider.Retry(time.Hour, errBoom)
		})
		for i := range 1000 {
			b.publish(b.msg(fmt.Sprint(i)))
		}
		stop := b.start(r)
		pass(time.Minute)
		stop()
		if n := strings.Count(text.String(), "attempt failed"); n < 1 || n > 30 {
			t.Errorf("%d lines of %d failed attempts, want 30 at most", n, failed.Load())
		}
		if !strings.Contains(text.String(), "not_logged=9") {
			t.Errorf("the log does not count what it leaves out:\n%s", text)
		}
	})
}

// TestDroppedMessagesAreLogged: maintenance says how many messages it drops, and nothing when there are none.
func TestDroppedMessagesAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r, text := b.logged(relay.Config{KeepDelivered: time.Hour})
		handle(t, r, func(context.Context, *postrider.Message) error { return nil })
		b.publish(b.msgs("order/1", "order/2")...)
		stop := b.start(r)
		pass(3 * time.Hour)
		stop()
		const line = `level=INFO msg="old messages were dropped from the log" relay=r messages=2`
		if said := text.String(); strings.Count(said, "dropped") != 1 || !strings.Contains(said, line) {
			t.Errorf("the log has not %q once:\n%s", line, said)
		}
	})
}

// TestOutageOfLeasesIsLoggedTwice: when it begins, and when it ends, however many attempts fail meanwhile.
func TestOutageOfLeasesIsLoggedTwice(t *testing.T) {
	t.Parallel()
	for op, texts := range map[string][2]string{
		"Acquire":   {"relay cannot lease partitions and keeps trying", "relay leases partitions again"},
		"Heartbeat": {"relay cannot renew its leases and keeps trying", "relay renews its leases again"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var down atomic.Bool
			down.Store(true)
			var calls atomic.Int64
			b := faulty(t, func(called string, done bool) error {
				if called != op || done || !down.Load() {
					return nil
				}
				calls.Add(1)
				return errBoom
			})
			r, text := b.logged(relay.Config{})
			handle(t, r, func(context.Context, *postrider.Message) error { return nil })
			stop := b.start(r)
			pass(time.Hour)
			down.Store(false)
			pass(time.Minute)
			stop()
			if calls.Load() < 100 || strings.Count(text.String(), texts[0]) != 1 || strings.Count(text.String(), texts[1]) != 1 {
				t.Errorf("%s failed %d times, want many, one %q and one %q in the log:\n%s", op, calls.Load(), texts[0], texts[1], text)
			}
		})
	}
}
