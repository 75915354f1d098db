package held

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// listPage is how many held keys or parked messages are read at a time.
const listPage = 100

// Core implements what operators do with held keys and parked messages over the Records of a store. Stores embed it.
type Core struct{ records Records }

// New returns the core over a store's records.
func New(r Records) Core { return Core{r} }

// ListHeld implements store.HeldKeys.
func (c Core) ListHeld(ctx context.Context, name string) iter.Seq2[store.HeldInfo, error] {
	op := store.Operation{Method: "ListHeld", Doing: "list held keys"}
	return list(ctx, c.records, op, name, func(r store.HeldReader, name string, after *store.HeldInfo) ([]store.HeldInfo, error) {
		return r.HeldKeys(ctx, store.HeldQuery{Relay: name, After: after, Limit: listPage})
	})
}

// ListParked implements store.HeldKeys.
func (c Core) ListParked(ctx context.Context, name string) iter.Seq2[store.ParkedInfo, error] {
	op := store.Operation{Method: "ListParked", Doing: "list parked messages"}
	return list(ctx, c.records, op, name, func(r store.HeldReader, name string, after *store.ParkedInfo) ([]store.ParkedInfo, error) {
		return r.Parked(ctx, store.ParkedQuery{Relay: name, After: after, Limit: listPage})
	})
}

// list yields what read returns for a relay or, for "", for all relays in the order of names: page by page, because an index
// finds the next page of one relay.
func list[T any](ctx context.Context, records Records, op store.Operation, name string,
	read func(r store.HeldReader, name string, after *T) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		present, last := name, (*T)(nil)
		for {
			var next string
			var page []T
			err := records.View(ctx, op, func(r store.HeldReader) (err error) {
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
				if !yield(page[i], nil) {
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

// ShowHeld implements store.HeldKeys.
func (c Core) ShowHeld(ctx context.Context, name, key string, limit int) (h store.HeldInfo, queued []store.ParkedInfo, err error) {
	err = c.records.View(ctx, store.Operation{Method: "ShowHeld", Doing: "show a held key"}, func(r store.HeldReader) (err error) {
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
	return h, queued, nil
}

// FindParked implements store.HeldKeys.
func (c Core) FindParked(ctx context.Context, name, messageID string) (found []store.ParkedInfo, err error) {
	err = c.records.View(ctx, store.Operation{Method: "FindParked", Doing: "find a parked message"}, func(r store.HeldReader) (err error) {
		found, err = r.ParkedByID(ctx, name, messageID)
		return err
	})
	return found, err
}

// CountParked implements store.HeldKeys.
func (c Core) CountParked(ctx context.Context, name string) (counts []store.ParkedCount, err error) {
	err = c.records.View(ctx, store.Operation{Method: "CountParked", Doing: "count parked messages"}, func(r store.HeldReader) (err error) {
		counts, err = r.CountParked(ctx, name)
		return err
	})
	return counts, err
}

// ShowDecision implements store.HeldKeys.
func (c Core) ShowDecision(ctx context.Context, id string) (d store.Decision, err error) {
	err = c.records.View(ctx, store.Operation{Method: "ShowDecision", Doing: "show a decision"}, func(r store.HeldReader) (err error) {
		d, err = r.Decision(ctx, id)
		return err
	})
	return d, err
}

// RecordDecision implements store.HeldKeys.
func (c Core) RecordDecision(ctx context.Context, d store.Decision) error {
	d.By, d.Reason = stored.Text(d.By), stored.Text(d.Reason)
	op := store.Operation{Method: "RecordDecision", Doing: "record a decision"}
	err := c.records.Change(ctx, op, func(w store.HeldWriter) error {
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
		c.records.Wake()
	}
	return err
}

// locate fills in the partition of a decision, and the key and sequence if it is about a parked message.
func locate(ctx context.Context, r store.HeldReader, d store.Decision) (store.Decision, error) {
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
		return d, fmt.Errorf("%d messages with the ID %s are parked; choose one by its sequence", len(alone), d.MessageID)
	}
	m := alone[0]
	d.Partition, d.Key, d.Sequence = m.Partition, m.Message.Key, m.Message.Sequence
	return d, nil
}

// Decide implements store.Log.
func (c Core) Decide(ctx context.Context, name string, lease store.LeaseRef, id string) error {
	op := store.Operation{Method: "Decide", Doing: "apply a decision"}
	err := c.records.Change(ctx, op, func(w store.HeldWriter) error {
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
		c.records.Wake()
	}
	return err
}

// ForgetRelay implements store.Administrator.
func (c Core) ForgetRelay(ctx context.Context, name, by, reason string, discard bool) (discarded int, err error) {
	by, reason = stored.Text(by), stored.Text(reason)
	op := store.Operation{Method: "ForgetRelay", Doing: "forget relay " + name}
	err = c.records.Change(ctx, op, func(w store.HeldWriter) error {
		known, left, err := w.LockRelay(ctx, name)
		if err != nil {
			return err
		}
		if !known && !left { // dead letters may have been imported for a relay that never ran here
			return fmt.Errorf("%w: %q", store.ErrUnknownRelay, name)
		}
		if err := w.CheckStopped(ctx, name); err != nil {
			return err
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
			Reason: "relay forgotten", State: store.DeadDiscarded, By: by, Resolution: reason,
		})
		if err != nil {
			return err
		}
		discarded = open + parked
		return w.RemoveRelay(ctx, name)
	})
	if err != nil {
		return 0, err
	}
	return discarded, nil
}
