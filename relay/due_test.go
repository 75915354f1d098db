package relay_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// hiding is a store in which some messages become visible only after the place where a relay reads on.
type hiding struct {
	*memory.Store
	hidden map[string]bool // by ID

	mu        sync.Mutex
	all, some int // reads of everything, and of what is due from a place on
}

func (s *hiding) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	res, err := s.Store.Due(ctx, name, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.From.IsZero() {
		s.all++
		return res, err
	}
	s.some++
	var visible []store.ParkedRun
	for _, run := range res.Runs {
		if len(run.Entries) == 0 || !s.hidden[run.Entries[0].Message.ID] {
			visible = append(visible, run)
		}
	}
	res.Runs = visible
	return res, err
}

// TestDueBeforeTheLastRead: what became due before the place where reads go on, and was not visible then, is delivered within seconds,
// and reads of everything are rare.
func TestDueBeforeTheLastRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		alone, keyed, others := b.msg(""), b.msg("order/1"), b.many(300, "")
		s := &hiding{Store: b.store, hidden: map[string]bool{alone.ID: true, keyed.ID: true}}
		var j journal
		failed := make(map[string]bool)
		var mu sync.Mutex
		r := b.relayOn(s, relay.Config{})
		if err := r.HandleFunc("t", func(ctx context.Context, m *postrider.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if !failed[m.ID] {
				failed[m.ID] = true
				return postrider.Retry(time.Duration(30+len(failed)%10)*time.Second, errBoom)
			}
			return j.take(ctx, m)
		}); err != nil {
			t.Fatal(err)
		}
		b.start(r)
		b.publish(append(others, alone, keyed)...)
		pass(45 * time.Second) // 39 s, 2 s until everything is read, and PollMax
		if j.len() != 302 {
			t.Errorf("%d messages are delivered of 302; %v of the key", j.len(), j.of("order/1"))
		}
		b.wantNothingLeft(r)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.all > 25 || s.some < 20 { // every 2 s, and when a lease is granted; at rest, there is a read each second
			t.Errorf("%d reads of everything, and %d others", s.all, s.some)
		}
	})
}
