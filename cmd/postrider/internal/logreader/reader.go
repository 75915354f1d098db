// Package logreader reads the log of an outbox beside its relays: without a lease, with cursors that live in memory, and
// without a trace in the database.
//
// It needs nothing but Fetch. A cursor says that everything up to a position was seen that was visible in a snapshot; a
// fetch from the beginning that asks for a single record answers with the present snapshot in its Next. The sequence of any
// record that was read before, with that snapshot, is a cursor again: of what the log has behind the record, and of what
// commits from now on, also of transactions that have published already and are still open.
package logreader

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/relay"
)

// Store is what a reader needs of a store.
type Store interface {
	Partitions(ctx context.Context) (int, error)
	Fetch(ctx context.Context, relay string, req relay.FetchRequest) ([]relay.Batch, error)
}

// Placer is implemented by stores whose cursors say of each sequence up to their position whether it was seen, so that
// those of the beginning do not hold elsewhere.
type Placer interface {
	// CursorAt returns a cursor at a position, behind which come all messages with a higher sequence, and those with a lower
	// one that are not committed yet.
	CursorAt(ctx context.Context, position int64) (relay.Cursor, error)
}

const (
	// readLimit and readBytes bound what one call of Next holds in memory.
	readLimit, readBytes = 500, 4 << 20
	// probeLimit is how many records a probe reads in each partition: enough that records committed while it looks
	// leave room for others.
	probeLimit = 32
	// maxPosition is above every sequence.
	maxPosition = int64(1) << 62
)

// Reader reads a log.
type Reader struct {
	store   Store
	cursors []relay.Cursor
}

// FromOldest returns a reader that stands before the oldest message that the log still has.
func FromOldest(ctx context.Context, store Store) (*Reader, error) {
	n, err := store.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	return &Reader{store: store, cursors: make([]relay.Cursor, n)}, nil
}

// FromSequence returns a reader that stands before the message with a sequence, or the next one behind it; at the end of
// the log when there is none yet.
func FromSequence(ctx context.Context, store Store, sequence int64) (*Reader, error) {
	return from(ctx, store, func(first relay.Record) bool { return first.Message.Sequence >= sequence })
}

// FromNow returns a reader that stands at the end of the log.
func FromNow(ctx context.Context, store Store) (*Reader, error) {
	return from(ctx, store, func(relay.Record) bool { return false })
}

// clockMargin is how far sequences and creation times of neighbouring messages may disagree.
const clockMargin = time.Second

// FromTime returns a reader that stands before the messages written at or after a moment on the database's clock, and a
// few that are older.
func FromTime(ctx context.Context, store Store, moment time.Time) (*Reader, error) {
	moment = moment.Add(-clockMargin)
	return from(ctx, store, func(first relay.Record) bool { return !first.Message.CreatedAt.Before(moment) })
}

// from returns a reader at the smallest position behind which the first record of every partition has been reached; a
// partition without records has. That position is the sequence of the last record before the place, or 0.
func from(ctx context.Context, store Store, reached func(first relay.Record) bool) (*Reader, error) {
	r, err := FromOldest(ctx, store)
	if err != nil {
		return nil, err
	}
	low, high := int64(0), maxPosition
	for low < high {
		middle := low + (high-low)/2
		ok, err := r.probe(ctx, middle, reached)
		if err != nil {
			return nil, err
		}
		if ok {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if p, ok := r.store.(Placer); ok {
		c, err := p.CursorAt(ctx, low)
		for i := range r.cursors {
			r.cursors[i] = c
		}
		return r, err
	}
	// The snapshot comes last: then every sequence up to the position had been taken before it, as in a relay's cursor.
	cursors, err := r.present(ctx)
	if err != nil {
		return nil, err
	}
	r.cursors = at(cursors, low)
	return r, nil
}

// present returns a cursor with the present snapshot for each partition; a partition that has nothing keeps the cursor of
// the beginning, since all that it will have is new.
func (r *Reader) present(ctx context.Context) ([]relay.Cursor, error) {
	out := make([]relay.Cursor, len(r.cursors))
	batches, err := r.fetch(ctx, out, 1)
	for _, b := range batches {
		out[b.Partition] = b.Next
	}
	return out, err
}

// at moves cursors of present to a position.
func at(cursors []relay.Cursor, position int64) []relay.Cursor {
	out := slices.Clone(cursors)
	for i := range out {
		if out[i] != (relay.Cursor{}) {
			out[i].Position = position
		}
	}
	return out
}

// probe looks behind a position. While it looks messages may be committed before the position; a partition that has so
// many of them that nothing else fits is asked again.
func (r *Reader) probe(ctx context.Context, position int64, reached func(relay.Record) bool) (bool, error) {
	for {
		cursors, err := r.present(ctx)
		if err != nil {
			return false, err
		}
		batches, err := r.fetch(ctx, at(cursors, position), probeLimit)
		if err != nil {
			return false, err
		}
		crowded := false
		for _, b := range batches {
			if fresh := b.Records[b.Late:]; len(fresh) > 0 {
				if !reached(fresh[0]) {
					return false, nil
				}
			} else if b.More {
				crowded = true
			}
		}
		if !crowded {
			return true, nil
		}
	}
}

func (r *Reader) fetch(ctx context.Context, cursors []relay.Cursor, limit int) ([]relay.Batch, error) {
	req := relay.FetchRequest{Limit: limit, MaxBytes: readBytes}
	for i, c := range cursors {
		req.Partitions = append(req.Partitions, relay.FetchPartition{LeaseRef: relay.LeaseRef{Partition: i}, After: c})
	}
	return r.store.Fetch(ctx, "", req)
}

// Next reads on: records of all partitions in the order of their sequence, and whether there is more to read right away.
// Within a partition nothing is skipped and nothing comes twice; a record of a transaction that committed late comes when
// it is visible, behind others with a higher sequence.
func (r *Reader) Next(ctx context.Context) (records []relay.Record, more bool, err error) {
	batches, err := r.fetch(ctx, r.cursors, readLimit)
	if err != nil {
		return nil, false, err
	}
	for _, b := range batches {
		r.cursors[b.Partition] = b.Next
		records = append(records, b.Records...)
		more = more || b.More
	}
	slices.SortStableFunc(records, func(a, b relay.Record) int { return cmp.Compare(a.Message.Sequence, b.Message.Sequence) })
	return records, more, nil
}
