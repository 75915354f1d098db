package inbox_test

import (
	"context"
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

// TestDisabledConsumerDoesNothing: a consumer that is switched off reads nothing, and another process of it gets everything.
func TestDisabledConsumerDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := newBroker(t), memory.New(memory.Config{})
		var handled atomic.Int64
		handle := func(context.Context, *memory.Tx, *postrider.Message) error { handled.Add(1); return nil }
		off, log := startedOn(t, s, b, memorybroker.SubscriberConfig{RedeliveryWindow: time.Hour}, inbox.ConsumerConfig{Disabled: true}, handle)
		publishTo(t, b, "m-1", "m-2")
		time.Sleep(time.Hour)
		synctest.Wait()
		if handled.Load() != 0 || off.Connected() || off.Stats() != (inbox.Stats{}) {
			t.Errorf("switched off: handled %d, %+v", handled.Load(), off.Stats())
		}
		if st, err := s.Status(t.Context()); err != nil || len(st.Relays) != 0 {
			t.Errorf("switched off, the database knows it: %+v, %v", st.Relays, err)
		}
		if !strings.Contains(log.String(), "switched off") {
			t.Errorf("the log does not say it: %s", log.String())
		}
		startedOn(t, s, b, memorybroker.SubscriberConfig{RedeliveryWindow: time.Hour}, inbox.ConsumerConfig{}, handle)
		time.Sleep(time.Minute)
		synctest.Wait()
		if handled.Load() != 2 {
			t.Errorf("switched on: handled %d, want 2", handled.Load())
		}
		if err := off.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// publishTo publishes messages to a broker.
func publishTo(t *testing.T, b *memorybroker.Broker, ids ...string) {
	t.Helper()
	for _, id := range ids {
		m := &postrider.Message{ID: id, Type: "t", Topic: "t"}
		m.FillDefaults("/test", time.Now())
		for _, err := range b.Publish(t.Context(), []*postrider.Message{m}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
