package relay

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// TestUnfinishedFollowOneAnother: the schedule waits for one row of unfinished messages of a key, so no other is marked. Otherwise nobody
// would wait for it, and its key would be in work for ever.
func TestUnfinishedFollowOneAnother(t *testing.T) {
	t.Parallel()
	u := new(attempt.UnfinishedError)
	unfinished, done, failed := result{unfinished: u}, result{}, result{failed: true}
	for name, c := range map[string]struct {
		results []result
		bad     int // the index of a row that could not be decoded, if not 0
		want    []bool
	}{
		"after one that is done":             {[]result{done, unfinished, unfinished}, 0, []bool{false, true, true}},
		"after one that failed":              {[]result{failed, unfinished, unfinished}, 0, []bool{false, false, false}},
		"before and after one that failed":   {[]result{unfinished, failed, unfinished}, 0, []bool{true, false, false}},
		"before and after one that is done":  {[]result{unfinished, done, unfinished}, 0, []bool{true, false, false}},
		"before and after an unreadable row": {[]result{unfinished, failed, unfinished}, 1, []bool{true, false, false}},
		"after an unreadable row":            {[]result{done, failed, unfinished}, 1, []bool{false, false, true}},
	} {
		s := schedule.New[message](schedule.Config{MaxHeld: 10})
		p := s.Hold(&store.Lease{})
		items := make([]item, len(c.results))
		for i := range items {
			items[i].Key, items[i].Sequence, items[i].Message.Message = "k", int64(i+1), &postrider.Message{Key: "k"}
		}
		if c.bad > 0 {
			items[c.bad].Message.err = errors.New("it cannot be decoded")
		}
		p.AdmitRun("k", items, time.Now())
		var batch []*item
		for i := range items {
			batch = append(batch, &items[i])
		}
		if !schedule.SameQueue(batch[0], batch[1]) {
			t.Fatal("they are not of one queue")
		}
		markUnfinished(batch, c.results)
		var got []bool
		for i, it := range batch {
			got = append(got, it.Unfinished)
			if want := c.results[i].unfinished != nil && !it.Unfinished; c.results[i].cut != want {
				t.Errorf("%s: %d was cut off: %v", name, i, !want)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
