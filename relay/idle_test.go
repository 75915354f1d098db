package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// deaf is a store whose process nobody wakes.
type deaf struct{ *memory.Store }

func (deaf) Subscribe() (<-chan struct{}, func()) { return nil, func() {} }

// TestFirstMessageAfterAnIdleHour: with defaults, a relay that nobody wakes finds a message within 100 ms, by at most ten statements
// a second for new messages and one for parked ones.
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
		r, err := relay.New(deaf{b.store}, relay.Config{Name: "r"})
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
			pass(time.Hour)
			if fetches > 36_010 || polls > 3_610 {
				t.Errorf("in an idle hour, %d fetches and %d polls for parked messages", fetches, polls)
			}
			pass(time.Duration(i) * 7 * time.Millisecond)
			began := time.Now()
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
