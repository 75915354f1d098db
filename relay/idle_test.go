package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// deaf is a store whose process nobody wakes.
type deaf struct {
	*memory.Store
	last, probes *atomic.Int64
}

func (deaf) Subscribe() (<-chan struct{}, func()) { return nil, func() {} }

func (d deaf) LastSequence(context.Context) (int64, error) {
	d.probes.Add(1)
	return d.last.Load(), nil
}

// TestFirstMessageAfterAnIdleHour: with defaults, a relay that nobody wakes finds a message within 100 ms, by at most ten cheap
// looks, one fetch and one poll for parked messages in a second.
func TestFirstMessageAfterAnIdleHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fetches, polls := 0, 0
		b := faulty(t, func(op string, done bool) error {
			switch {
			case done:
			case op == "Fetch":
				fetches++
			case op == "Due":
				polls++
			}
			return nil
		})
		var arrived time.Time
		var last, probes atomic.Int64
		r, err := relay.New(deaf{b.store, &last, &probes}, relay.Config{Name: "r"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.HandleFunc("order.placed", func(context.Context, *postrider.Message) error { arrived = time.Now(); return nil }); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- r.Run(t.Context()) }()
		for i := range 20 {
			fetches, polls = 0, 0
			probes.Store(0)
			pass(time.Hour)
			if n := probes.Load(); n > 36_000 || fetches > 3_610 || polls > 3_610 {
				t.Errorf("in an idle hour, %d probes, %d fetches and %d polls for parked messages", n, fetches, polls)
			}
			pass(time.Duration(i) * 7 * time.Millisecond)
			began := time.Now()
			last.Add(1)
			b.publish(&postrider.Message{ID: postrider.NewID(), Type: "order.placed", Topic: "orders", Source: "test", Time: began, Payload: []byte("{}")})
			pass(time.Second)
			if took := arrived.Sub(began); took < 0 || took > 100*time.Millisecond {
				t.Errorf("the message arrived after %s", took)
			}
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
