package inbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/store"
)

// slowLog returns the messages at some offsets, the first after a wait. At one offset, it says that there is nothing up to there.
type slowLog struct {
	postrider.Log
	wait    time.Duration
	offsets []int64
	nothing int64
	lost    error
}

func (l *slowLog) ReadLog(_ context.Context, _ postrider.LogPartition, after int64) (postrider.LogReader, error) {
	return &slowReader{log: l, after: after}, nil
}

type slowReader struct {
	log   *slowLog
	after int64
}

func (r *slowReader) Read(ctx context.Context, _, _ int) ([]*postrider.Delivery, error) {
	if r.log.lost != nil {
		return nil, r.log.lost
	}
	for _, offset := range r.log.offsets {
		if offset <= r.after {
			continue
		}
		if !attempt.Sleep(ctx, r.log.wait) {
			return nil, ctx.Err()
		}
		r.after, r.log.wait = offset, 0
		d := &postrider.Delivery{Position: postrider.Position{Offset: offset}}
		if offset != r.log.nothing {
			d.Message = &postrider.Message{}
		}
		return []*postrider.Delivery{d}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (r *slowReader) Close(context.Context) error { return nil }

// TestCatchUpWaitsForASlowBroker: no answer within a second does not mean that there is no message. A saga would decide without it.
func TestCatchUpWaitsForASlowBroker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		log  slowLog
		want bool
		took time.Duration
	}{
		"a message follows":                     {slowLog{wait: 3 * time.Second, offsets: []int64{5, 6}}, true, 3 * time.Second},
		"a message follows what was removed":    {slowLog{wait: 3 * time.Second, offsets: []int64{7}}, true, 3 * time.Second},
		"messages for others follow":            {slowLog{wait: 3 * time.Second, offsets: []int64{5}}, false, 3*time.Second + catchUpLook},
		"the log says that there is nothing":    {slowLog{offsets: []int64{5, 10}, nothing: 10}, false, 0},
		"others, then a message":                {slowLog{offsets: []int64{5, 8, 9}, nothing: 8}, true, 0},
		"a message was published in between":    {slowLog{offsets: []int64{5, 11}}, false, 0},
		"nothing is left that it could compare": {slowLog{}, false, verifyTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, began := &Consumer[any]{log: &logSource[any]{log: &test.log}}, time.Now()
				more, err := c.hasMore(t.Context(), postrider.LogPartition{First: 1, End: 10}, 5)
				if took := time.Since(began); more != test.want || err != nil || took != test.took {
					t.Errorf("more: %t, %v, after %s; want %t after %s", more, err, took, test.want, test.took)
				}
			})
		})
	}
}

// TestCatchUpFailsWithItsReader: a reader whose own request to the broker took too long does not say that there is no message.
func TestCatchUpFailsWithItsReader(t *testing.T) {
	t.Parallel()
	lost := postrider.Unavailable(context.DeadlineExceeded)
	c := &Consumer[any]{log: &logSource[any]{log: &slowLog{lost: lost}}}
	if more, err := c.hasMore(t.Context(), postrider.LogPartition{First: 1, End: 10}, 5); !errors.Is(err, lost) {
		t.Errorf("more: %t, %v; want the reader's error", more, err)
	}
}

// changedLog is another log each time that it is listed, until the last time.
type changedLog struct {
	slowLog
	lists [][]postrider.LogPartition
}

func (l *changedLog) Partitions(context.Context, ...string) ([]postrider.LogPartition, error) {
	now := l.lists[0]
	if len(l.lists) > 1 {
		l.lists = l.lists[1:]
	}
	return now, nil
}

// TestCatchUpWithADividedLog: a log is divided, or made whole, after its end was found. Nobody reads the partitions that it had.
func TestCatchUpWithADividedLog(t *testing.T) {
	t.Parallel()
	whole := []postrider.LogPartition{{Name: "log", First: 1, End: 10}}
	parts := []postrider.LogPartition{{Name: "log/0", Whole: "log", First: 1, End: 10}, {Name: "log/1", Whole: "log", First: 1, End: 10}}
	for name, test := range map[string]struct {
		lists     [][]postrider.LogPartition
		positions []store.LogPosition
	}{
		"divided": {[][]postrider.LogPartition{whole, parts}, []store.LogPosition{
			{Partition: "log", Number: 3, Offset: 4, Divided: true},
			{Partition: "log/0", Offset: 10, Whole: "log", From: 3}, {Partition: "log/1", Offset: 10, Whole: "log", From: 3},
		}},
		"whole again": {[][]postrider.LogPartition{parts, whole}, []store.LogPosition{
			{Partition: "log", Number: 4, Offset: 10},
			{Partition: "log/0", Offset: 4, Whole: "log", From: 3}, {Partition: "log/1", Offset: 4, Whole: "log", From: 3},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log := &changedLog{slowLog{offsets: []int64{1, 5, 6, 10}}, test.lists}
				c := &Consumer[any]{log: &logSource[any]{log: log, parts: test.lists[1]}, store: positionStore{positions: test.positions}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := c.CatchUp(ctx); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
