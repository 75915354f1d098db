// Package logreader reads the log of an outbox next to its relays: without a lease, with cursors only in memory, and
// without writing to the database.
//
// It needs only Fetch. A cursor says that everything up to a position that was visible in a snapshot has been seen; a
// fetch from the beginning that requests a single record returns the current snapshot in its Next. The sequence of any
// record read before, with that snapshot, is a cursor again: for the records after it in the log, and for everything that
// commits from now on, including transactions that have already published and are still open.
package logreader

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Store is what a reader needs of a store.
type Store interface {
	Partitions(ctx context.Context) (int, error)
	Fetch(ctx context.Context, relay string, req store.FetchRequest) ([]store.Batch, error)
}

// Placer is implemented by stores whose cursors record for each sequence up to their position whether it was seen, so
// that a cursor for the beginning is not valid at another position.
type Placer interface {
	// CursorAt returns a cursor at a position. It is followed by all messages with a higher sequence, and those with a
	// lower one that are not committed yet.
	CursorAt(ctx context.Context, position int64) (store.Cursor, error)
}

// wrapper is a store around another one, whose further methods it hides.
type wrapper interface {
	Unwrap() any
}

// placerOf returns the Placer of a store, or of what it wraps.
func placerOf(s any) (Placer, bool) {
	for {
		if p, ok := s.(Placer); ok {
			return p, true
		}
		w, ok := s.(wrapper)
		if !ok {
			return nil, false
		}
		s = w.Unwrap()
	}
}

const (
	// readLimit and readBytes limit what one call of Next holds in memory.
	readLimit, readBytes = 500, 4 << 20
	// probeLimit is how many records a probe reads in each partition: enough that records committed meanwhile leave space
	// for others.
	probeLimit = 32
	// maxPosition is above every sequence. A search for a position begins at firstProbe, and multiplies it until it is far enough: most
	// logs are short.
	maxPosition             = int64(1) << 62
	firstProbe, probeFactor = 1 << 10, 1 << 5
)

// Reader reads a log.
type Reader struct {
	store   Store
	cursors []store.Cursor
}

// FromOldest returns a reader positioned before the oldest message in the log.
func FromOldest(ctx context.Context, s Store) (*Reader, error) {
	n, err := s.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	return &Reader{store: s, cursors: make([]store.Cursor, n)}, nil
}

// FromSequence returns a reader positioned before the message with a sequence, or before the next one; at the end of the
// log if there is none yet.
func FromSequence(ctx context.Context, s Store, sequence int64) (*Reader, error) {
	return from(ctx, s, func(first store.Entry) bool { return first.Message.Sequence >= sequence })
}

// FromNow returns a reader positioned at the end of the log.
func FromNow(ctx context.Context, s Store) (*Reader, error) {
	return from(ctx, s, func(store.Entry) bool { return false })
}

// clockMargin is how far sequences and creation times of neighboring messages may disagree.
const clockMargin = time.Second

// FromTime returns a reader positioned before the messages written at or after a time on the database's clock; it also
// returns a few older ones.
func FromTime(ctx context.Context, s Store, moment time.Time) (*Reader, error) {
	moment = moment.Add(-clockMargin)
	return from(ctx, s, func(first store.Entry) bool { return !first.Message.CreatedAt.Before(moment) })
}

// from returns a reader at the lowest position for which reached is true of the next record in every partition; a
// partition without records counts as reached. The position is the sequence of the record before, or 0.
func from(ctx context.Context, store Store, reached func(first store.Entry) bool) (*Reader, error) {
	r, err := FromOldest(ctx, store)
	if err != nil {
		return nil, err
	}
	p := prober{Reader: r, reached: reached}
	low, high, wide := int64(0), int64(firstProbe), true
	for low < high {
		position := low + (high-low)/2
		if wide { // until it is reached somewhere
			position = high
		}
		ok, err := p.at(ctx, position)
		switch {
		case err != nil:
			return nil, err
		case ok:
			high, wide = position, false
		case wide:
			low, high = high+1, min(high*probeFactor, maxPosition)
		default:
			low = position + 1
		}
	}
	return r.place(ctx, low)
}

// After returns a reader positioned after the message with a sequence, which must have been read from the log. It needs no search.
func After(ctx context.Context, s Store, sequence int64) (*Reader, error) {
	r, err := FromOldest(ctx, s)
	if err != nil {
		return nil, err
	}
	return r.place(ctx, sequence)
}

// place moves the reader behind a position that was taken.
func (r *Reader) place(ctx context.Context, position int64) (*Reader, error) {
	if p, ok := placerOf(r.store); ok {
		c, err := p.CursorAt(ctx, position)
		for i := range r.cursors {
			r.cursors[i] = c
		}
		return r, err
	}
	// The snapshot is taken last: every sequence up to the position was then taken before it, as in a relay's cursor.
	cursors, err := r.present(ctx)
	if err != nil {
		return nil, err
	}
	r.cursors = at(cursors, position)
	return r, nil
}

// present returns a cursor with the current snapshot for each partition; an empty partition keeps the cursor of the
// beginning, since everything it will have is new.
func (r *Reader) present(ctx context.Context) ([]store.Cursor, error) {
	out := make([]store.Cursor, len(r.cursors))
	batches, err := r.fetch(ctx, out, 1)
	for _, b := range batches {
		out[b.Partition] = b.Next
	}
	return out, err
}

// at moves cursors from present to a position.
func at(cursors []store.Cursor, position int64) []store.Cursor {
	out := slices.Clone(cursors)
	for i := range out {
		if out[i] != (store.Cursor{}) {
			out[i].Position = position
		}
	}
	return out
}

// prober looks for the position of a reader.
type prober struct {
	*Reader
	reached func(first store.Entry) bool
	now     []store.Cursor // with the snapshot of the last call of present
}

// at reads records after a position. Messages may be committed before the position meanwhile; if a partition has so many of them that
// nothing else fits, or its first ones, it takes another snapshot and repeats.
func (p *prober) at(ctx context.Context, position int64) (bool, error) {
	_, places := placerOf(p.store)
	for {
		var err error
		cursors := make([]store.Cursor, len(p.cursors))
		if places { // without what is missing before the position, nothing is late
			for i := range cursors {
				cursors[i].Position = position
			}
		} else {
			if p.now == nil {
				if p.now, err = p.present(ctx); err != nil {
					return false, err
				}
			}
			cursors = at(p.now, position)
		}
		batches, err := p.fetch(ctx, cursors, probeLimit)
		if err != nil {
			return false, err
		}
		old := false
		for _, b := range batches {
			fresh := b.Entries[b.Late:]
			switch {
			case len(fresh) == 0:
				old = old || b.More
			case cursors[b.Partition] == store.Cursor{} && position > 0:
				old = true
			case !p.reached(fresh[0]):
				return false, nil
			}
		}
		if !old {
			return true, nil
		}
		p.now = nil
	}
}

func (r *Reader) fetch(ctx context.Context, cursors []store.Cursor, limit int) ([]store.Batch, error) {
	req := store.FetchRequest{Limit: limit, MaxBytes: readBytes}
	for i, c := range cursors {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: store.LeaseRef{Partition: i}, After: c})
	}
	return r.store.Fetch(ctx, "", req)
}

// Next returns the next records of all partitions in the order of their sequence, and whether more can be read at once.
// Within a partition it skips nothing and repeats nothing; a record of a transaction that committed late is returned when
// it is visible, after records with a higher sequence.
func (r *Reader) Next(ctx context.Context) (records []store.Entry, more bool, err error) {
	batches, err := r.fetch(ctx, r.cursors, readLimit)
	if err != nil {
		return nil, false, err
	}
	for _, b := range batches {
		r.cursors[b.Partition] = b.Next
		records = append(records, b.Entries...)
		more = more || b.More
	}
	slices.SortStableFunc(records, func(a, b store.Entry) int { return cmp.Compare(a.Message.Sequence, b.Message.Sequence) })
	return records, more, nil
}

// Oldest returns the oldest message of the log, nil if it has none.
func Oldest(ctx context.Context, s Store) (*postrider.Message, error) {
	r, err := FromOldest(ctx, s)
	if err != nil {
		return nil, err
	}
	batches, err := r.fetch(ctx, r.cursors, 1)
	var oldest *postrider.Message
	for _, b := range batches {
		for _, e := range b.Entries {
			if m := e.Message; oldest == nil || m.Sequence < oldest.Sequence {
				oldest = m
			}
		}
	}
	return oldest, err
}
