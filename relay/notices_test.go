package relay_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/relay"
)

// TestFirstStartIsLogged: a relay that has delivered nothing yet says where it begins. One that continues does not.
func TestFirstStartIsLogged(t *testing.T) {
	t.Parallel()
	for start, from := range map[relay.Start]string{
		relay.FromOldest: "the oldest message of the log", relay.FromNow: "what is published after its first start",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			want := `msg="relay has delivered nothing yet" relay=r begins_with="` + from + `"`
			for _, logs := range []bool{true, false} {
				var j journal
				r, text := b.logged(relay.Config{Start: start})
				handle(t, r, j.take)
				stop := b.start(r)
				pass(time.Minute)
				b.publish(b.msgs("order/42")...)
				pass(time.Minute)
				stop()
				if strings.Contains(text.String(), want) != logs || j.len() != 1 {
					t.Errorf("%d delivered, and the line is expected: %t\n%s", j.len(), logs, text)
				}
			}
		})
	}
}

// TestTopicsThatMatchNothingAreLogged: once, with the topics that the log has, at the first start and at the next. A relay that takes
// a message, even if it starts again while others are skipped, is quiet.
func TestTopicsThatMatchNothingAreLogged(t *testing.T) {
	t.Parallel()
	for topic, warns := range map[string]bool{"order.plcaed": true, "order.placed": false} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			b.publish(b.on("order.placed", 3)...)
			b.publish(b.on("other", 3)...)
			for range 2 {
				var j journal
				r, text := b.logged(relay.Config{Topics: []string{topic}})
				mustHandle(t, r, "order.placed", j.take)
				stop := b.start(r)
				pass(time.Minute)
				b.publish(b.on("other", 3)...)
				pass(time.Minute)
				stop()
				n := strings.Count(text.String(), "no message so far had a topic that the relay takes")
				if (n == 1) != warns || n > 1 {
					t.Errorf("topic %s: %d warnings\n%s", topic, n, text)
				}
				if warns && (!strings.Contains(text.String(), "topics=order.plcaed") || !strings.Contains(text.String(), `unrouted_topics="`)) {
					t.Errorf("the warning lacks topics:\n%s", text)
				}
				if at := b.status(); at.Unmatched() != warns {
					t.Errorf("topic %s, status: %+v", topic, at)
				}
			}
		})
	}
}
