package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// passed explains when relay r passed a message.
func (b *bundle) passed(id string) inspect.Passed {
	b.t.Helper()
	e, err := inspect.Message(b.t.Context(), b.store, id)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(e.Places) != 1 || e.Places[0].State != inspect.DeliveredOrSkipped || e.Places[0].Passed == nil {
		b.t.Fatalf("message %s is at %+v", id, e.Places)
	}
	return *e.Places[0].Passed
}

// TestDeliveredTimeAndProcess: of a message that was delivered, it is known between which times, and by which process, also when others
// were delivered since, and when the process has ended.
func TestDeliveredTimeAndProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		begin := func() (owner string, stop func()) {
			r := b.relay(relay.Config{})
			handle(t, r, j.take)
			return r.Owner().ID, b.start(r)
		}
		// deliver publishes a message of the same partition, which is delivered at once.
		deliver := func() (id string, at time.Time) {
			m := b.msg("k")
			b.publish(m)
			synctest.Wait()
			pass(2 * time.Second)
			return m.ID, time.Now()
		}
		check := func(id, by string, at time.Time, within time.Duration) {
			t.Helper()
			p := b.passed(id)
			if p.By != by || p.After.After(at) || p.Before.Before(at.Add(-2*time.Second)) || p.Before.Sub(p.After) > within {
				t.Errorf("message %s, delivered before %v by %q: %+v", id, at, by, p)
			}
		}
		first, stop := begin()
		pass(time.Hour)
		early, earlyAt := deliver()
		check(early, "", earlyAt, 2*time.Minute) // the last settlement says when
		pass(10 * time.Minute)
		check(early, first, earlyAt, 2*time.Minute)
		late, lateAt := deliver()
		pass(3 * time.Minute)
		check(early, first, earlyAt, 2*time.Minute) // the partition was settled since; the note says when
		check(late, first, lateAt, 2*time.Minute)

		unnoted, unnotedAt := deliver()
		stop()
		second, _ := begin()
		pass(time.Minute)
		next, nextAt := deliver()
		pass(3 * time.Minute)
		check(unnoted, "", unnotedAt, 5*time.Minute)
		check(next, second, nextAt, 2*time.Minute)
		check(early, first, earlyAt, 2*time.Minute)
	})
}

// TestProgressIsBounded: what is noted goes with the messages, and nothing is noted if none are kept.
func TestProgressIsBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keep time.Duration
		want int
	}{
		"kept for an hour": {time.Hour, 62}, "kept for 30 days": {30 * 24 * time.Hour, 10}, "not kept": {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				r := b.relay(relay.Config{KeepDelivered: tt.keep, PollMax: 20 * time.Second})
				handle(t, r, j.take)
				b.start(r)
				for range 300 {
					b.publish(b.msg("k"))
					pass(time.Minute)
				}
				n := 0
				err := b.store.View(t.Context(), store.Operation{}, func(r store.Reader) error {
					found, err := r.ListRecords(context.Background(), store.RecordQuery{Table: store.WorkRecords, Kind: "progress", Limit: 1000})
					n = len(found)
					return err
				})
				if err != nil || n > tt.want || n == 0 && tt.want > 0 {
					t.Errorf("%d notes, %v; want up to %d", n, err, tt.want)
				}
			})
		})
	}
}
