package stored

import (
	"context"
	"fmt"
	"iter"

	"github.com/postrider/postrider/store"
)

// recordPage is how many records are read at a time.
const recordPage = 100

// FindRecord returns one of store.WorkRecords. Errors: store.ErrNoRecord.
func FindRecord(ctx context.Context, r store.Reader, kind, id string) (store.Record, error) {
	found, err := r.ListRecords(ctx, store.RecordQuery{Table: store.WorkRecords, Kind: kind, ID: id, Limit: 1})
	return OneRecord(kind, id, found, err)
}

// OneRecord returns the record that was found under an ID; an empty one selects all, but is that of none. Errors: store.ErrNoRecord; err.
func OneRecord(kind, id string, found []store.Record, err error) (store.Record, error) {
	if err == nil && (len(found) == 0 || found[0].ID != id) {
		err = fmt.Errorf("%s %s: %w", kind, id, store.ErrNoRecord)
	}
	if err != nil {
		return store.Record{}, err
	}
	return found[0], nil
}

// ListRecords yields those of store.WorkRecords that are of a kind, by descending ID, each page as committed when it is read.
func ListRecords(ctx context.Context, records store.Records, op store.Operation, kind string) iter.Seq2[store.Record, error] {
	return listed(kind, func(q store.RecordQuery) (page []store.Record, err error) {
		err = records.View(ctx, op, func(r store.Reader) (err error) {
			page, err = r.ListRecords(ctx, q)
			return err
		})
		return page, err
	})
}

// AllRecords is ListRecords in a transaction.
func AllRecords(ctx context.Context, r store.Reader, kind string) iter.Seq2[store.Record, error] {
	return listed(kind, func(q store.RecordQuery) ([]store.Record, error) { return r.ListRecords(ctx, q) })
}

func listed(kind string, read func(store.RecordQuery) ([]store.Record, error)) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for q := (store.RecordQuery{Table: store.WorkRecords, Kind: kind, Limit: recordPage}); ; {
			page, err := read(q)
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				q.Before = r.ID
			}
			if len(page) < recordPage {
				return
			}
		}
	}
}

// NewestDead returns the highest number of a dead letter in any state, 0 if there is none.
func NewestDead(ctx context.Context, r store.Reader) (int64, error) {
	found, err := r.SpanDead(ctx, store.DeadQuery{DeadFilter: store.DeadFilter{State: store.DeadAny}, Limit: 1}, true)
	return found.Last, err
}
