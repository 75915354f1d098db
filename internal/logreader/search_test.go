package logreader_test

import (
	"context"
	"slices"
	"testing"

	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// counting counts the calls of Fetch, and calls before each. As store/postgres does, it returns no batch for a partition that has nothing.
type counting struct {
	*memory.Store
	fetches int
	before  func(n int)
}

func (c *counting) Fetch(ctx context.Context, relay string, req store.FetchRequest) ([]store.Batch, error) {
	c.fetches++
	if c.before != nil {
		c.before(c.fetches)
	}
	batches, err := c.Store.Fetch(ctx, relay, req)
	return slices.DeleteFunc(batches, func(b store.Batch) bool { return len(b.Entries) == 0 }), err
}

// TestSearchOfAPositionIsShort: it takes one snapshot, and probes no more often than the length of the log needs.
func TestSearchOfAPositionIsShort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(t, 1, 1200)
	for _, sequence := range []int64{1, 700, 1200, 9999} {
		s := &counting{Store: b.store}
		r, err := logreader.FromSequence(t.Context(), s, sequence)
		if err != nil {
			t.Fatal(err)
		}
		if s.fetches > 20 {
			t.Errorf("sequence %d of 1,200 is found with %d fetches", sequence, s.fetches)
		}
		want(t, rest(t, r), int(sequence), 1200)
	}
}

// TestSearchWhileOthersPublish: what is committed during the search, even the first message of a partition, neither misleads nor is missed.
func TestSearchWhileOthersPublish(t *testing.T) {
	t.Parallel()
	for _, first := range []int{1, 100} { // messages before the search
		b := setup(t)
		b.publish(t, 1, first)
		last := first
		s := &counting{Store: b.store, before: func(n int) {
			if n > 1 && n < 8 {
				b.publish(t, last+1, last+150)
				last += 150
			}
		}}
		r, err := logreader.FromSequence(t.Context(), s, 50)
		if err != nil {
			t.Fatal(err)
		}
		b.publish(t, last+1, last+10)
		want(t, rest(t, r), 50, last+10)
	}
}

// placed is a store with cursors of its own.
type placed struct {
	*memory.Store
	asked *int64
}

func (p placed) CursorAt(ctx context.Context, position int64) (store.Cursor, error) {
	*p.asked = position
	batches, err := p.Fetch(ctx, "", store.FetchRequest{Limit: 1, MaxBytes: 1, Partitions: []store.FetchPartition{{}}})
	if err != nil {
		return store.Cursor{}, err
	}
	c := batches[0].Next
	c.Position = position
	return c, nil
}

// wrapped hides the methods of a store but for those that a reader needs.
type wrapped struct {
	logreader.Store
	inner any
}

func (w wrapped) Unwrap() any { return w.inner }

func TestReaderAsksAWrappedStoreForItsCursor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(t, 1, 50)
	asked := int64(0)
	s := placed{b.store, &asked}
	r, err := logreader.After(t.Context(), wrapped{s, wrapped{s, s}}, 20)
	if err != nil {
		t.Fatal(err)
	}
	if asked != 20 {
		t.Errorf("the store was asked for a cursor at %d, want 20", asked)
	}
	want(t, rest(t, r), 21, 50)
}
