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

// releasedKind is that of the documents of holds that are released. Active ones are of store.KindLegalHold.
const releasedKind = "released legal hold"

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

// Place places a hold. When it returns, no transaction begins any more that removes what the hold keeps; one that is in progress may still
// commit.
func (s Store) Place(ctx context.Context, by, reason string) (h Hold, err error) {
	err = s.records.Change(ctx, store.Operation{Method: "PlaceHold", Doing: "place a legal hold"}, func(w store.Writer) error {
		now, err := w.Now(ctx)
		if err != nil {
			return err
		}
		h = Hold{ID: postrider.NewID(), By: stored.Text(by), Reason: stored.Text(reason), PlacedAt: now}
		return h.add(ctx, w, store.KindLegalHold)
	})
	return h, err
}

// Release releases a hold, which stays on record, even if it cannot be read. Errors: ErrNoHold, ErrReleased.
func (s Store) Release(ctx context.Context, id, by, reason string) (h Hold, err error) {
	err = s.records.Change(ctx, store.Operation{Method: "ReleaseHold", Doing: "release a legal hold"}, func(w store.Writer) error {
		d, err := w.LockRecord(ctx, store.WorkRecords, store.KindLegalHold, id)
		if errors.Is(err, store.ErrNoRecord) {
			return notActive(ctx, w, id)
		}
		if err != nil {
			return err
		}
		if h, err = parse(d); err != nil {
			h = Hold{ID: id, By: "(unreadable)", PlacedAt: d.At}
		}
		if h.ReleasedAt, err = w.Now(ctx); err != nil {
			return err
		}
		h.ReleasedBy, h.ReleaseReason = stored.Text(by), stored.Text(reason)
		if err := w.RemoveRecord(ctx, store.WorkRecords, store.KindLegalHold, id); err != nil {
			return err
		}
		return h.add(ctx, w, releasedKind)
	})
	return h, err
}

// notActive says why a hold cannot be released.
func notActive(ctx context.Context, r store.Reader, id string) error {
	d, err := stored.FindRecord(ctx, r, releasedKind, id)
	if errors.Is(err, store.ErrNoRecord) {
		return fmt.Errorf("%w: %s", ErrNoHold, id)
	}
	if err != nil {
		return err
	}
	h, err := parse(d)
	return errors.Join(fmt.Errorf("%w: %s, by %s", ErrReleased, id, h.ReleasedBy), err)
}

// List yields the active holds, newest first, and then those that are released. One that cannot be read comes as its ID and an error, and the
// others follow it.
func (s Store) List(ctx context.Context) iter.Seq2[Hold, error] {
	return func(yield func(Hold, error) bool) {
		op := store.Operation{Method: "ListHolds", Doing: "list legal holds"}
		for _, kind := range []string{store.KindLegalHold, releasedKind} {
			for d, err := range stored.ListRecords(ctx, s.records, op, kind) {
				if err != nil {
					yield(Hold{}, err)
					return
				}
				h, err := parse(d)
				if h.ID = d.ID; !yield(h, err) {
					return
				}
			}
		}
	}
}

// Check fails if a hold is active, even if it cannot be read. Errors: ErrHeld.
func Check(ctx context.Context, r store.Reader) error {
	active, err := r.ListRecords(ctx, store.RecordQuery{Table: store.WorkRecords, Kind: store.KindLegalHold, Limit: 1})
	if err != nil || len(active) == 0 {
		return err
	}
	h, err := parse(active[0])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHeld, err)
	}
	return fmt.Errorf("%w: %s, placed by %s: %s", ErrHeld, h.ID, h.By, h.Reason)
}

func (h *Hold) add(ctx context.Context, w store.Writer, kind string) error {
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return w.PutRecord(ctx, store.Record{Table: store.WorkRecords, Kind: kind, ID: h.ID, Body: body})
}

func parse(d store.Record) (h Hold, err error) {
	if err = json.Unmarshal(d.Body, &h); err != nil {
		err = fmt.Errorf("the stored legal hold %s: %w", d.ID, err)
	}
	return h, err
}
