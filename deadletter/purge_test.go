package deadletter_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestPurgeIsOnRecord: a purge that is cut off has a record of what it removed, and the next one removes the rest.
func TestPurgeIsOnRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Int64
		left.Store(1 << 40)
		s := withDead(t, memory.Config{Fault: func(op string, done bool) error {
			if op == "PurgeDead" && !done && left.Add(-1) < 0 {
				return errors.New("the database is away")
			}
			return nil
		}}, 2_500)
		dead := deadletter.New(s)
		_, err := dead.DiscardDead(t.Context(), store.DeadFilter{}, "olga", "no use", 2_400)
		must(t, err)
		plan := deadletter.PurgePlan{ResolvedFor: time.Hour, By: "eva", Reason: "kept for an hour"}
		if n, err := dead.CountPurge(t.Context(), plan); n != 0 || err != nil {
			t.Errorf("%d are old enough, %v; want none", n, err)
		}
		time.Sleep(time.Hour + time.Second)
		if n, err := dead.CountPurge(t.Context(), plan); n != 2_400 || err != nil {
			t.Errorf("%d are old enough, %v; want 2400", n, err)
		}
		left.Store(2)
		cut, err := dead.Purge(t.Context(), plan, nil)
		if err == nil || cut.Removed != 2_000 || !cut.EndedAt.IsZero() {
			t.Errorf("purge that is cut off: %+v, %v", cut, err)
		}
		left.Store(1 << 40)
		rest, err := dead.Purge(t.Context(), plan, nil)
		if err != nil || rest.Removed != 400 || rest.Kept != 0 || rest.EndedAt.IsZero() {
			t.Errorf("purge of the rest: %+v, %v", rest, err)
		}
		var removed []int64
		for p, err := range dead.ListPurges(t.Context()) {
			must(t, err)
			if removed = append(removed, p.Removed); p.By != "eva" || p.Reason != "kept for an hour" || p.StartedAt.Sub(p.ResolvedBefore) != time.Hour {
				t.Errorf("on record: %+v", p)
			}
		}
		if len(removed) != 2 || removed[0] != 400 || removed[1] != 2_000 {
			t.Errorf("removed, by the records: %v", removed)
		}
		if n, err := dead.CountDead(t.Context(), store.DeadFilter{State: store.DeadAny}); n != 100 || err != nil {
			t.Errorf("%d are left, %v; want the 100 open ones", n, err)
		}
	})
}
