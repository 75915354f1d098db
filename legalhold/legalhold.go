// Package legalhold keeps everything while something must not be removed, e.g. for an investigation:
//
//	h, err := legalhold.New(store).Place(ctx, "ann", "case 17")
//
// While a hold is active, retention drops no message of the log, no dead letter is purged, and erasures are refused. A hold is on the whole
// outbox: messages are dropped from the log in ranges, not one by one, so a hold on some of them would keep the others too. The log
// then grows as fast as messages are published.
//
// A hold does not keep what is removed without retention: parked messages that are delivered, attempts on record, the records of consumers
// and the data of sagas.
package legalhold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Errors of holds.
var (
	// ErrHeld: a hold is active, so nothing may be removed.
	ErrHeld = errors.New("a legal hold is active")
	// ErrNoHold: no hold has this ID.
	ErrNoHold = errors.New("no such legal hold")
	// ErrReleased: the hold is not active any more.
	ErrReleased = errors.New("the legal hold is released")
)

const (
	// kind is that of the documents that hold holds.
	kind     = "legal hold"
	listPage = 100
)

// Hold is a legal hold. It is active until it is released.
type Hold struct {
	ID       string    `json:"id"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	PlacedAt time.Time `json:"placed_at"`
	// ReleasedAt is zero while the hold is active.
	ReleasedAt    time.Time `json:"released_at,omitzero"`
	ReleasedBy    string    `json:"released_by,omitempty"`
	ReleaseReason string    `json:"release_reason,omitempty"`
}

// Store is the holds of a store.
type Store struct{ records store.Records }

// New returns the holds of a store: of store/postgres, store/mysql, store/sqlite or store/memory.
func New(r store.Records) Store { return Store{r} }

// Place places a hold. What a call that is in progress removes, it does not keep.
func (s Store) Place(ctx context.Context, by, reason string) (h Hold, err error) {
	err = s.records.Change(ctx, store.Operation{Method: "PlaceHold", Doing: "place a legal hold"}, func(w store.Writer) error {
		now, err := w.Now(ctx)
		if err != nil {
			return err
		}
		h = Hold{ID: postrider.NewID(), By: stored.Text(by), Reason: stored.Text(reason), PlacedAt: now}
		d, err := document(&h)
		if err != nil {
			return err
		}
		return w.AddDocument(ctx, d)
	})
	return h, err
}

// Release releases a hold, which stays on record. Errors: ErrNoHold, ErrReleased.
func (s Store) Release(ctx context.Context, id, by, reason string) (h Hold, err error) {
	err = s.records.Change(ctx, store.Operation{Method: "ReleaseHold", Doing: "release a legal hold"}, func(w store.Writer) error {
		d, err := w.LockDocument(ctx, kind, id)
		if errors.Is(err, store.ErrNoDocument) {
			return fmt.Errorf("%w: %s", ErrNoHold, id)
		}
		if err == nil {
			h, err = parse(d)
		}
		if err == nil && !h.ReleasedAt.IsZero() {
			err = fmt.Errorf("%w: %s, by %s", ErrReleased, id, h.ReleasedBy)
		}
		if err != nil {
			return err
		}
		if h.ReleasedAt, err = w.Now(ctx); err != nil {
			return err
		}
		h.ReleasedBy, h.ReleaseReason = stored.Text(by), stored.Text(reason)
		if d, err = document(&h); err != nil {
			return err
		}
		return w.SaveDocument(ctx, d)
	})
	return h, err
}

// List yields all holds, newest first.
func (s Store) List(ctx context.Context) iter.Seq2[Hold, error] {
	return func(yield func(Hold, error) bool) {
		for before := ""; ; {
			var page []store.Document
			err := s.records.View(ctx, store.Operation{Method: "ListHolds", Doing: "list legal holds"}, func(r store.Reader) (err error) {
				page, err = r.Documents(ctx, kind, before, listPage)
				return err
			})
			if err != nil {
				yield(Hold{}, err)
				return
			}
			for _, d := range page {
				if h, err := parse(d); !yield(h, err) || err != nil {
					return
				}
				before = d.ID
			}
			if len(page) < listPage {
				return
			}
		}
	}
}

// Check fails if a hold is active, or may be, because it cannot be read. Errors: ErrHeld.
func Check(ctx context.Context, r store.DocumentReader) error {
	for before := ""; ; {
		page, err := r.Documents(ctx, kind, before, listPage)
		if err != nil {
			return err
		}
		for _, d := range page {
			h, err := parse(d)
			switch {
			case err != nil:
				return fmt.Errorf("%w: %w", ErrHeld, err)
			case h.ReleasedAt.IsZero():
				return fmt.Errorf("%w: %s, placed by %s: %s", ErrHeld, h.ID, h.By, h.Reason)
			}
			before = d.ID
		}
		if len(page) < listPage {
			return nil
		}
	}
}

func document(h *Hold) (store.Document, error) {
	body, err := json.Marshal(h)
	return store.Document{Kind: kind, ID: h.ID, Body: body}, err
}

func parse(d store.Document) (h Hold, err error) {
	if err = json.Unmarshal(d.Body, &h); err != nil {
		err = fmt.Errorf("the stored legal hold %s: %w", d.ID, err)
	}
	return h, err
}
