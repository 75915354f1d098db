// Package pause stops a relay or consumer for a while, without stopping its processes:
//
//	p, err := pause.New(store).Pause(ctx, pause.Request{Relay: "to-nats", By: "ann", Reason: "maintenance of the broker", For: time.Hour})
//	…
//	_, err = pause.New(store).Resume(ctx, "to-nats")
//
// A pause is kept in the database. Each process of the relay sees it with its next heartbeat, and keeps its leases: it starts nothing
// more, and finishes what is in progress. Messages stay in the log, or parked, in order. A process that starts while the relay is paused
// starts nothing either. The status of the store shows the pause.
package pause

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Errors of pauses.
var (
	// ErrPaused: the relay is paused already; the error says by whom.
	ErrPaused = errors.New("already paused")
	// ErrNotPaused: the relay is not paused.
	ErrNotPaused = errors.New("not paused")
	// ErrInvalid: For is negative, or more than Longest.
	ErrInvalid = errors.New("invalid length of a pause")
)

// Longest is the longest pause that has an end.
const Longest = 366 * 24 * time.Hour

// Records is what Store needs of a store. All stores implement it.
type Records interface {
	store.Records
	store.StatusReader
}

// Store is the pauses of a store.
type Store struct{ records Records }

// New returns the pauses of a store.
func New(r Records) Store { return Store{r} }

// Request says what to pause.
type Request struct {
	// Relay is the name of the relay or consumer.
	Relay string
	// By is who pauses it, and Reason why.
	By, Reason string
	// For is how long the pause lasts, up to 366 days; 0 means until it is resumed.
	For time.Duration
}

// Pause pauses a relay or consumer. Errors: store.ErrUnknownRelay, ErrPaused, ErrInvalid.
func (s Store) Pause(ctx context.Context, q Request) (store.Pause, error) {
	if q.For < 0 || q.For > Longest {
		return store.Pause{}, fmt.Errorf("%w: %s", ErrInvalid, q.For)
	}
	status, err := s.records.Status(ctx)
	if err != nil {
		return store.Pause{}, err
	}
	if !slices.ContainsFunc(status.Relays, func(r store.RelayStatus) bool { return r.Name == q.Relay }) {
		return store.Pause{}, fmt.Errorf("%w: %q", store.ErrUnknownRelay, q.Relay)
	}
	body, err := json.Marshal(stored.PauseBody{By: stored.Text(q.By), Reason: stored.Text(q.Reason)})
	if err != nil {
		return store.Pause{}, fmt.Errorf("pause relay %q: %w", q.Relay, err)
	}
	var put *store.Record
	rec := store.Record{Table: stored.Pauses.Table, Kind: stored.Pauses.Kind, ID: q.Relay, Body: body}
	err = s.records.Change(ctx, store.Operation{Method: "Pause", Doing: "pause relay " + q.Relay}, func(w store.Writer) error {
		if old, err := stored.FindPause(ctx, w, q.Relay); err != nil {
			return err
		} else if old != nil {
			by := stored.PauseOf(*old)
			return fmt.Errorf("relay %q is %w, by %s: %s", q.Relay, ErrPaused, by.By, by.Reason)
		}
		if q.For > 0 {
			now, err := w.Now(ctx)
			if err != nil {
				return err
			}
			rec.Expires = now.Add(q.For)
		}
		if err := w.PutRecord(ctx, rec); err != nil {
			return err
		}
		put, err = stored.FindPause(ctx, w, q.Relay)
		return err
	})
	switch {
	case err != nil:
		return store.Pause{}, err
	case put == nil: // it is over already
		put = &rec
	}
	return *stored.PauseOf(*put), nil
}

// Resume ends a pause and returns it. Errors: ErrNotPaused.
func (s Store) Resume(ctx context.Context, relay string) (ended store.Pause, err error) {
	err = s.records.Change(ctx, store.Operation{Method: "Resume", Doing: "resume relay " + relay}, func(w store.Writer) error {
		rec, err := stored.EndPause(ctx, w, relay)
		if err == nil && rec == nil {
			err = fmt.Errorf("relay %q is %w", relay, ErrNotPaused)
		}
		if err == nil {
			ended = *stored.PauseOf(*rec)
		}
		return err
	})
	return ended, err
}
