package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inspect"
)

func TestKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish("order/1", "in-log")
	b.lease("r", worker)
	b.settle("r", retryIn(time.Hour))
	b.enroll("view", message("parked", "order/2"))
	for id, want := range map[string]bool{"in-log": true, "parked": true, "nowhere": false} {
		known, complete, err := inspect.Known(t.Context(), b, id, time.Minute)
		if err != nil || known != want || !complete {
			t.Errorf("%s: known %v, complete %v, %v", id, known, complete, err)
		}
	}
}

func TestCorrelated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		publish := func(id, correlation string) {
			m := message(id, "order/1")
			m.CorrelationID = correlation
			b.insert(m)
		}
		publish("old", "c")
		time.Sleep(inspect.Recently + time.Minute)
		for n := range 5 {
			publish(fmt.Sprint(n), "c")
			publish(fmt.Sprint("other-", n), "d")
		}
		for _, tt := range []struct {
			limit    int
			found    string
			complete bool
		}{{10, "[0 1 2 3 4]", true}, {3, "[0 1 2]", false}} {
			found, complete, err := inspect.Correlated(t.Context(), b, "c", tt.limit, time.Minute)
			if got := fmt.Sprint(ids(found)); err != nil || got != tt.found || complete != tt.complete {
				t.Errorf("up to %d: %s, complete %v, %v", tt.limit, got, complete, err)
			}
		}
		ms := time.Now().UnixMilli()
		root := fmt.Sprintf("%08x-%04x-7000-8000-000000000001", ms>>16, ms&0xffff)
		publish(root, root)
		time.Sleep(time.Hour)
		publish("late", root)
		if found, _, err := inspect.Correlated(t.Context(), b, root, 10, time.Minute); err != nil || len(found) != 2 {
			t.Errorf("since the time of an ID: %v, %v", ids(found), err)
		}
	})
}

func ids(found []*postrider.Message) (out []string) {
	for _, m := range found {
		out = append(out, m.ID)
	}
	return out
}

// TestSearchOfALogThatDoesNotAnswer ends in time, and says that it is not complete.
func TestSearchOfALogThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.enroll("view", message("parked", "order/2"))
		s := silent{b.Store}
		begun := time.Now()
		for id, want := range map[string]bool{"parked": true, "nowhere": false} {
			if known, complete, err := inspect.Known(t.Context(), s, id, time.Second); err != nil || known != want || complete {
				t.Errorf("%s: known %v, complete %v, %v", id, known, complete, err)
			}
		}
		if found, complete, err := inspect.Correlated(t.Context(), s, "c", 1, time.Second); err != nil || len(found) > 0 || complete {
			t.Errorf("%v, complete %v, %v", found, complete, err)
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("three searches of a second took %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := inspect.Known(ctx, s, "nowhere", time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("nobody waits for the answer: %v", err)
		}
	})
}
