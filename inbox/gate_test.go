package inbox_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/memory"
)

// gate is a relay.Gate that lets a number through at a time.
type gate struct{ free atomic.Int32 }

// Allow implements relay.Gate.
func (g *gate) Allow(limit int) (int, time.Duration) { return min(int(g.free.Load()), limit), 0 }

// Changed implements relay.Gate.
func (*gate) Changed() <-chan struct{} { return nil }

// TestHandlersThatHangAndAGate: as many handlers hang as the gate lets messages through. Others are handled all the same, no more at a
// time than it lets through.
func TestHandlersThatHangAndAGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, g := newBroker(t), &gate{}
		publish := func(keys string) {
			for _, key := range strings.Fields(keys) {
				m := &postrider.Message{ID: key, Type: "t", Topic: "t", Source: "s", Key: key, Time: time.Now()}
				if err := errors.Join(b.Publish(t.Context(), []*postrider.Message{m})...); err != nil {
					t.Fatal(err)
				}
			}
		}
		var out, most atomic.Int32
		released := make(chan struct{})
		g.free.Store(3)
		c, _ := started(t, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{Gate: g}, func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
			if strings.HasPrefix(m.Key, "hang") {
				<-released
				return nil
			}
			most.Store(max(most.Load(), out.Add(1)))
			defer out.Add(-1)
			time.Sleep(time.Second)
			return nil
		})
		t.Cleanup(func() { close(released) })
		publish("hang1 hang2 hang3")
		time.Sleep(time.Second)
		publish("a b c d e f g h")
		time.Sleep(10 * time.Second)
		if n := c.Stats().Applied; n != 0 {
			t.Fatalf("%d messages are handled while three may be on their way to the gate, which lets three through", n)
		}
		time.Sleep(time.Minute)
		if n := c.Stats().Applied; n != 8 || most.Load() > 3 {
			t.Errorf("%d of 8 messages of other keys are handled, %d at a time; want 3: %+v", n, most.Load(), c.Stats())
		}
	})
}
