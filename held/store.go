package held

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/legalhold"
	"github.com/postrider/postrider/store"
)

// listPage is how many held keys or parked messages are read at a time.
const listPage = 100

// Store is the held keys and parked messages of a store, and operators' decisions about them.
//
// A parked message either is queued in a held key, and a decision about the key concerns it, or waits by itself, with a due time of
// its own.
type Store struct{ records store.Records }

// New returns the held keys and parked messages of a store: of store/postgres, store/mysql, store/sqlite or store/memory.
func New(r store.Records) Store { return Store{r} }

// ListHeld yields the held keys of a relay ("" for all, by name), longest held first.
func (s Store) ListHeld(ctx context.Context, name string) iter.Seq2[store.HeldInfo, error] {
	op := store.Operation{Method: "ListHeld", Doing: "list held keys"}
	return list(ctx, s.records, op, name, func(r store.Reader, name string, after *store.HeldInfo) ([]store.HeldInfo, error) {
		return r.HeldKeys(ctx, store.HeldQuery{Relay: name, After: after, Limit: listPage})
	}, shownKey)
}

// ListParked yields the parked messages of a relay ("" for all, by name) that wait by themselves, first due first. A message
// that gets another due time meanwhile may be yielded twice, or left out.
func (s Store) ListParked(ctx context.Context, name string) iter.Seq2[store.ParkedInfo, error] {
	op := store.Operation{Method: "ListParked", Doing: "list parked messages"}
	return list(ctx, s.records, op, name, func(r store.Reader, name string, after *store.ParkedInfo) ([]store.ParkedInfo, error) {
		return r.Parked(ctx, store.ParkedQuery{Relay: name, After: after, Limit: listPage})
	}, shownParked)
}

// shownParked returns a parked message with times that have a JSON form, whatever somebody has written into its row.
func shownParked(p store.ParkedInfo) store.ParkedInfo {
	p.ParkedAt, p.DueAt = stored.NearestTime(p.ParkedAt), stored.NearestTime(p.DueAt)
	return p
}

func shownAll(parked []store.ParkedInfo) []store.ParkedInfo {
	for i, p := range parked {
		parked[i] = shownParked(p)
	}
	return parked
}

// shownKey is shownParked for a held key.
func shownKey(h store.HeldInfo) store.HeldInfo {
	h.Since, h.NextAttempt = stored.NearestTime(h.Since), stored.NearestTime(h.NextAttempt)
	return h
}

// list yields what read returns, as show makes it, for a relay or, for "", for all relays in the order of names: page by page, because an index
// finds the next page of one relay.
func list[T any](ctx context.Context, records store.Records, op store.Operation, name string,
	read func(r store.Reader, name string, after *T) ([]T, error), show func(T) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		present, last := name, (*T)(nil)
		for {
			var next string
			var page []T
			err := records.View(ctx, op, func(r store.Reader) (err error) {
				page = nil
				if next = present; name == "" && last == nil {
					if next, err = r.NextRelay(ctx, present); err != nil || next == "" {
						return err
					}
				}
				page, err = read(r, next, last)
				return err
			})
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for i := range page {
				if !yield(show(page[i]), nil) {
					return
				}
			}
			switch {
			case len(page) == listPage:
				last = &page[len(page)-1]
			case name != "" || next == "":
				return
			default:
				last = nil
			}
			present = next
		}
	}
}

// ShowHeld returns a held key with its parked messages in order, at most limit of them. Errors: store.ErrNotHeld.
func (s Store) ShowHeld(ctx context.Context, name, key string, limit int) (h store.HeldInfo, queued []store.ParkedInfo, err error) {
	err = s.records.View(ctx, store.Operation{Method: "ShowHeld", Doing: "show a held key"}, func(r store.Reader) (err error) {
		queued = nil
		if h, err = r.HeldKey(ctx, name, key); err != nil || limit <= 0 {
			return err
		}
		queued, err = r.Queued(ctx, name, key, limit)
		return err
	})
	if err != nil {
		return store.HeldInfo{}, nil, err
	}
	return shownKey(h), shownAll(queued), nil
}

// FindParked returns a relay's parked messages with this ID, queued or not: at most one, unless IDs were reused.
func (s Store) FindParked(ctx context.Context, name, messageID string) (found []store.ParkedInfo, err error) {
	err = s.records.View(ctx, store.Operation{Method: "FindParked", Doing: "find a parked message"}, func(r store.Reader) (err error) {
		found, err = r.ParkedByID(ctx, name, messageID)
		return err
	})
	return shownAll(found), err
}

// CountParked counts the parked messages of a relay ("" for all) that wait by themselves, by relay and reason. It reads an
// entry for each of them.
func (s Store) CountParked(ctx context.Context, name string) (counts []store.ParkedCount, err error) {
	err = s.records.View(ctx, store.Operation{Method: "CountParked", Doing: "count parked messages"}, func(r store.Reader) (err error) {
		counts, err = r.CountParked(ctx, name)
		return err
	})
	return counts, err
}

// ShowDecision returns a decision. Decisions that were applied or refused are kept for a day. Errors: store.ErrNoDecision.
func (s Store) ShowDecision(ctx context.Context, id string) (d store.Decision, err error) {
	err = s.records.View(ctx, store.Operation{Method: "ShowDecision", Doing: "show a decision"}, func(r store.Reader) (err error) {
		d, err = r.Decision(ctx, id)
		return err
	})
	return d, err
}

// RecordDecision records a decision durably, to be applied by the process that holds the lease of the partition (see
// Apply). The caller sets ID, Relay, Verb, By, Reason and what the decision is about: Key, and MessageID for the
// message that is expected to block the key; or, for a parked message that waits by itself, MessageID without Key, and
// Sequence if several have this ID. A decision with a known ID is not recorded again. Errors: store.ErrNotHeld, store.ErrNoParked,
// ErrSeveral.
func (s Store) RecordDecision(ctx context.Context, d store.Decision) error {
	d.By, d.Reason = stored.Text(d.By), stored.Text(d.Reason)
	op := store.Operation{Method: "RecordDecision", Doing: "record a decision"}
	err := s.records.Change(ctx, op, func(w store.Writer) error {
		if _, err := w.Decision(ctx, d.ID); !errors.Is(err, store.ErrNoDecision) {
			return err
		}
		located, err := locate(ctx, w, d)
		if err != nil {
			return err
		}
		return w.AddDecision(ctx, located)
	})
	if err == nil {
		s.records.Wake()
	}
	return err
}

// locate fills in the partition of a decision, and the key and sequence if it is about a parked message.
func locate(ctx context.Context, r store.Reader, d store.Decision) (store.Decision, error) {
	if !d.AboutMessage() {
		h, err := r.HeldKey(ctx, d.Relay, d.Key)
		d.Partition = h.Partition
		return d, err
	}
	if d.Verb == store.VerbDeadAll {
		return d, fmt.Errorf("%s is a decision about a held key", d.Verb)
	}
	found, err := r.ParkedByID(ctx, d.Relay, d.MessageID)
	if err != nil {
		return d, err
	}
	found = slices.DeleteFunc(found, func(p store.ParkedInfo) bool { return d.Sequence != 0 && p.Message.Sequence != d.Sequence })
	alone := slices.DeleteFunc(slices.Clone(found), func(p store.ParkedInfo) bool { return p.DueAt.IsZero() })
	switch {
	case len(found) == 0:
		return d, fmt.Errorf("%w: message %s of relay %q", store.ErrNoParked, d.MessageID, d.Relay)
	case len(alone) == 0:
		return d, fmt.Errorf("%w: message %s of relay %q is queued in the held key %q; decide about the key", store.ErrNoParked,
			d.MessageID, d.Relay, found[0].Message.Key)
	case len(alone) > 1:
		return d, fmt.Errorf("%w: %d with the ID %s; choose one by its sequence", ErrSeveral, len(alone), d.MessageID)
	}
	m := alone[0]
	d.Partition, d.Key, d.Sequence = m.Partition, m.Message.Key, m.Message.Sequence
	return d, nil
}

// Apply applies a recorded decision durably, under the caller's lease. Meanwhile the caller works on no message of the held key, or
// not on the parked message. A decision that has been applied is not applied again. Errors: store.ErrLeaseLost.
func (s Store) Apply(ctx context.Context, name string, lease store.LeaseRef, id string) error {
	op := store.Operation{Method: "Apply", Doing: "apply a decision"}
	err := s.records.Change(ctx, op, func(w store.Writer) error {
		if err := w.CheckLease(ctx, name, lease); err != nil {
			return err
		}
		d, err := w.LockDecision(ctx, id)
		if err != nil || d.State != store.DecisionOpen {
			return err
		}
		if d.Relay != name || d.Partition != lease.Partition {
			return fmt.Errorf("decision %s is about partition %d of relay %q, not about partition %d of relay %q", id, d.Partition,
				d.Relay, lease.Partition, name)
		}
		apply := applyToKey
		if d.AboutMessage() {
			apply = applyToMessage
		}
		if d.Outcome, err = apply(ctx, w, &d); err != nil {
			return err
		}
		d.State = store.DecisionApplied
		if d.Outcome != "" {
			d.State = store.DecisionRefused
		}
		return w.EndDecision(ctx, d)
	})
	if err == nil {
		s.records.Wake()
	}
	return err
}

// RemoveRelay removes a relay that no longer runs, so that its cursor no longer keeps delivered messages in the log. It will never
// deliver what it has not delivered yet. With discard, its open dead letters and its parked messages are recorded as dead letters
// discarded by the operator, with the reason, and its held keys end; without, it must not have any. A pause of it and the limit of its redrives' rate end. A relay
// that has never run, but for which dead letters were imported, can be removed too. RemoveRelay returns how many were discarded. If
// a relay of this name returns, it starts over where its Start says, except for messages that have a dead letter. Errors:
// store.ErrUnknownRelay, store.ErrAlive, store.ErrParked, store.ErrInUse (on SQLite sqlite.ErrBusy).
func (s Store) RemoveRelay(ctx context.Context, name, by, reason string, discard bool) (discarded int, err error) {
	by, reason = stored.Text(by), stored.Text(reason)
	op := store.Operation{Method: "RemoveRelay", Doing: "remove relay " + name}
	err = s.records.Change(ctx, op, func(w store.Writer) error {
		known, left, err := w.LockRelay(ctx, name)
		if err != nil {
			return err
		}
		if !known && !left { // dead letters may have been imported for a relay that never ran here
			return fmt.Errorf("%w: %q", store.ErrUnknownRelay, name)
		}
		if left && !discard {
			return fmt.Errorf("%w: decide about its held keys and dead letters first, or discard them with it", store.ErrParked)
		}
		everything := store.ParkedChoice{Relay: name, All: true}
		open, err := w.DiscardOpen(ctx, everything, by, reason)
		if err != nil {
			return err
		}
		parked, err := w.DeadLetterParked(ctx, everything, store.MovedToDead{
			Reason: "relay removed", State: store.DeadDiscarded, By: by, Resolution: reason,
		})
		if err != nil {
			return err
		}
		discarded = open + parked
		if _, err := stored.EndPause(ctx, w, name); err != nil { // a successor of this name is not paused
			return err
		}
		if err := stored.EndRedriveRate(ctx, w, name); err != nil { // redrives of all relays keep to the lowest limit
			return err
		}
		return w.RemoveRelay(ctx, name)
	})
	if err != nil {
		return 0, err
	}
	return discarded, nil
}

// keptAtOnce is how many rows of a table one transaction of RemoveKept removes.
const keptAtOnce = 1_000

// CountKept counts what RemoveRelay leaves of a relay or consumer.
func (s Store) CountKept(ctx context.Context, name string) (k store.KeptRecords, err error) {
	op := store.Operation{Method: "CountKept", Doing: "count what is kept about " + name}
	err = s.records.View(ctx, op, func(r store.Reader) error {
		k, err = r.CountKept(ctx, name)
		return err
	})
	return k, err
}

// RemoveKept removes everything that RemoveRelay leaves of a relay or consumer: dead letters, attempts on record, and for a
// consumer which messages it has processed. One that returns under this name processes whatever it receives, and delivers messages
// that were dead-lettered. It works in transactions of up to 1,000 rows of each table; if it is interrupted, call it again. Errors:
// store.ErrRegistered, legalhold.ErrHeld.
func (s Store) RemoveKept(ctx context.Context, name string) error {
	op := store.Operation{Method: "RemoveKept", Doing: "remove what is kept about " + name}
	for {
		n := 0
		err := s.records.Change(ctx, op, func(w store.Writer) (err error) {
			if err := legalhold.Check(ctx, w); err != nil {
				return err
			}
			n, err = w.RemoveKept(ctx, name, keptAtOnce)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
	}
}
