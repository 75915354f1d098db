package relay_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// meter counts messages, and those of each second.
type meter struct {
	mu    sync.Mutex
	began time.Time
	total int
	most  map[int]int // by second
}

func newMeter() *meter { return &meter{began: time.Now(), most: make(map[int]int)} }

func (c *meter) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += n
	c.most[int(time.Since(c.began)/time.Second)] += n
}

func (c *meter) sum() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// wantRate checks the number of messages, and that no second had more than most.
func (c *meter) wantRate(t *testing.T, what string, least, total, most int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total < least || c.total > total {
		t.Errorf("%s: %d messages, want %d to %d", what, c.total, least, total)
	}
	for second, n := range c.most {
		if n > most {
			t.Errorf("%s: %d messages in second %d, want at most %d", what, n, second, most)
		}
	}
}

// TestMaxRate: in every way to deliver, a relay stays within its rate, and messages that wait for it are neither parked nor
// counted as attempts, however long that is.
func TestMaxRate(t *testing.T) {
	t.Parallel()
	for name, prepare := range everyWay {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				var ids []string
				for i := range 1000 {
					m := b.msg(fmt.Sprint("k", i%3))
					ids = append(ids, m.ID)
					b.publish(m)
				}
				c := newMeter()
				r := prepare(b, relay.Config{MaxRate: 10, Burst: 5, ParkAfter: time.Second}, func(ctx context.Context, m *postrider.Message) error {
					c.count(1)
					return j.take(ctx, m)
				})
				b.start(r)
				pass(50 * time.Second)
				c.wantRate(t, "after 50 s", 480, 520, 25)
				if st := b.status(); st.Parked.N+st.Held.N != 0 || st.Failed != 0 {
					t.Errorf("parked %d, held %d, failed %d; want nothing", st.Parked.N, st.Held.N, st.Failed)
				}
				pass(60 * time.Second)
				c.wantRate(t, "at the end", 1000, 1000, 25)
				for i := range 3 {
					var inOrder []string
					for n := i; n < len(ids); n += 3 {
						inOrder = append(inOrder, ids[n])
					}
					want(t, "key", j.of(fmt.Sprint("k", i)), inOrder)
				}
				b.wantNothingLeft(r)
			})
		})
	}
}

// TestMaxRateIsANumber: with an infinite rate, the budget of a relay becomes NaN after no time at all, and nothing is sent any more.
func TestMaxRateIsANumber(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, rate := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), -1} {
		if _, err := relay.New(b.store, relay.Config{Name: "r", MaxRate: rate}); err == nil || !strings.Contains(err.Error(), "MaxRate") {
			t.Errorf("a maximum rate of %v: %v, want that it is refused", rate, err)
		}
	}
	const large = 3 << 30 // more than an int has on some computers
	if _, err := relay.New(b.store, relay.Config{Name: "r", MaxLogBytes: large}); err != nil {
		t.Errorf("a log of at most 3 GiB: %v", err)
	}
	if _, err := relay.New(b.store, relay.Config{Name: "r", MaxLogBytes: -1}); err == nil || !strings.Contains(err.Error(), "MaxLogBytes must not") {
		t.Errorf("a log of at most -1 bytes: %v, want that it is refused", err)
	}
}

// TestMaxRateIsSharedByProcesses: four processes together stay within the rate of their relay, and one alone has all of it.
func TestMaxRateIsSharedByProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, c := setup(t), newMeter()
		for i := range 7000 {
			b.publish(b.msg(fmt.Sprint("k", i)))
		}
		process := func() *relay.Relay {
			r := b.relay(relay.Config{MaxRate: 100, Burst: 10})
			handle(t, r, func(context.Context, *postrider.Message) error { c.count(1); return nil })
			return r
		}
		b.start(process())
		var stops []func()
		for range 3 {
			stops = append(stops, b.start(process()))
		}
		pass(40 * time.Second)
		c.wantRate(t, "four processes", 3600, 4010, 110)
		for _, stop := range stops {
			stop()
		}
		before := c.sum()
		pass(20 * time.Second)
		if n := c.sum() - before; n < 1800 || n > 2010 {
			t.Errorf("%d messages by one process, want about 2,000", n)
		}
	})
}

// TestMaxRateIncludesRetries: failing messages and fresh ones share the rate, and neither starves.
func TestMaxRateIncludesRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, c, j := setup(t), newMeter(), &journal{}
		for i := range 300 {
			b.publish(b.msg(fmt.Sprint("bad", i)), b.msg(fmt.Sprint("good", i)))
		}
		r := b.relay(relay.Config{MaxRate: 10, Burst: 1, MaxAttempts: 1_000_000, BackoffMax: time.Second})
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			c.count(1)
			if m.Key[0] == 'b' {
				return errBoom
			}
			j.note(m)
			return nil
		})
		b.start(r)
		pass(3 * time.Minute)
		c.wantRate(t, "with retries", 1700, 1801, 11)
		if n := j.len(); n != 300 {
			t.Errorf("%d good messages were delivered, want 300", n)
		}
	})
}
