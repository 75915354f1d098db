package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/memory"
)

// TestFailedAttemptIsLogged: each failed attempt is logged at the default level, those before the message is parked too, until it is
// dead. A snooze is not.
func TestFailedAttemptIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		_, log := started(t, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{LocalAttempts: 3, MaxAttempts: 5},
			func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
				if m.Key == "later" {
					return postrider.Snooze(time.Hour)
				}
				return errors.New("boom\nsecond line")
			})
		publishKeys(t, b, "bad", "later")
		time.Sleep(time.Hour)
		said := log.String()
		for n := 1; n <= 4; n++ {
			by := "consumer"
			if n == 4 {
				by = "relay" // which retries what the consumer has parked
			}
			line := fmt.Sprintf(`level=WARN msg="attempt failed" `+by+`=view message=bad type=t key=bad tenant="" attempt=%d reason=retry next_attempt_in=`, n)
			if strings.Count(said, line) != 1 {
				t.Errorf("the log has not %q once:\n%s", line, said)
			}
		}
		if n := strings.Count(said, `msg="attempt failed"`); n != 4 || strings.Contains(said, "second line") {
			t.Errorf("%d lines of failed attempts, want 4 of one line:\n%s", n, said)
		}
		if !strings.Contains(said, `level=DEBUG msg="message is put off" consumer=view message=later`) {
			t.Errorf("the snooze is not logged at debug level:\n%s", said)
		}
	})
}

// TestManyFailuresAreCounted: a handler that fails for every message does not fill the log.
func TestManyFailuresAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		_, log := started(t, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{LocalAttempts: 1},
			func(context.Context, *memory.Tx, *postrider.Message) error {
				return postrider.Retry(time.Hour, errors.New("boom"))
			})
		var keys []string
		for i := range 50 {
			keys = append(keys, fmt.Sprint("k", i))
		}
		publishKeys(t, b, keys...)
		time.Sleep(time.Minute)
		said := log.String()
		if n := strings.Count(said, `msg="attempt failed"`); n != 10 || !strings.Contains(said, "not_logged=40") {
			t.Errorf("%d lines, want 10, and the number of the others:\n%s", n, said)
		}
	})
}

// publishKeys publishes a message of each key, whose ID is the key.
func publishKeys(t *testing.T, b *memorybroker.Broker, keys ...string) {
	t.Helper()
	var msgs []*postrider.Message
	for _, key := range keys {
		msgs = append(msgs, &postrider.Message{ID: key, Type: "t", Topic: "t", Source: "s", Key: key, Time: time.Now()})
	}
	if err := errors.Join(b.Publish(t.Context(), msgs)...); err != nil {
		t.Fatal(err)
	}
}
