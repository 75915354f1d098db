package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

func TestTimeOfID(t *testing.T) {
	t.Parallel()
	at, ok := timeOf("0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a")
	if want := time.UnixMilli(0x0199f3a47e1c); !ok || !at.Equal(want) {
		t.Errorf("%v, %t, want %v", at, ok, want)
	}
	for _, id := range []string{"", "x", "0199f3a4-7e1c-4a52-9b61-3f0c2d1e4b5a", strings.Repeat("7", 37), strings.Repeat("z", 14) + "7" + strings.Repeat("z", 21)} {
		if _, ok := timeOf(id); ok {
			t.Errorf("%q is taken for a UUIDv7", id)
		}
	}
}

// counted counts the messages that are read from a log.
type counted struct {
	*memory.Store
	read int
}

func (c *counted) Fetch(ctx context.Context, relay string, req store.FetchRequest) ([]store.Batch, error) {
	batches, err := c.Store.Fetch(ctx, relay, req)
	for _, b := range batches {
		c.read += len(b.Entries)
	}
	return batches, err
}

// TestMessageIsReadAtItsTime: the messages of the minutes before it are not read, unless the clock of the publisher was wrong.
func TestMessageIsReadAtItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &counted{Store: memory.New(memory.Config{Partitions: 4})}
		publish := func(id string, n int) {
			tx, err := s.Begin(t.Context())
			for i := range n {
				m := &postrider.Message{ID: cmp.Or(id, fmt.Sprint(time.Now().Unix(), "-", i)), Type: "t", Topic: "t", Source: "s", Time: time.Now(), Payload: []byte("{}")}
				err = errors.Join(err, s.Insert(t.Context(), tx, []*postrider.Message{m}))
			}
			if err := errors.Join(err, s.Commit(t.Context(), tx)); err != nil {
				t.Fatal(err)
			}
		}
		early := uuid(time.Now().Add(8 * time.Minute)) // of a clock that was ahead
		publish(early, 1)
		for range 9 {
			publish("", 1_000)
			time.Sleep(time.Minute)
		}
		usual := uuid(time.Now())
		publish(usual, 1)
		publish("", 1_000)
		for id, most := range map[string]int{usual: 4_000, early: 20_000} {
			s.read = 0
			m, err := findInLog(t.Context(), s, id, math.MaxInt)
			if err != nil || m == nil || m.ID != id || s.read > most {
				t.Errorf("%d messages were read: %+v, %v", s.read, m, err)
			}
		}
		if m, err := findInLog(t.Context(), s, uuid(time.Now().Add(time.Second)), math.MaxInt); m != nil || err != nil {
			t.Errorf("an ID that is nowhere: %+v, %v", m, err)
		}
	})
}

// uuid is an ID with a time.
func uuid(at time.Time) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return ms[:8] + "-" + ms[8:] + "-7000-8000-000000000001"
}
