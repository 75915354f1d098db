package deadletter

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// EditDead edits an open dead letter and keeps the previous content. Errors: ErrNotFound, ErrResolved, ErrEdited;
// *postrider.ValidationError.
func (s Store) EditDead(ctx context.Context, number int64, e store.Edit) (l store.DeadLetter, err error) {
	e.By, e.Why = stored.Text(e.By), stored.Text(e.Why)
	named := []int64{number}
	err = s.records.Change(ctx, store.Operation{Method: "EditDead", Doing: "edit a dead letter"}, func(w store.Writer) error {
		if _, err := w.LockDead(ctx, store.DeadQuery{DeadFilter: store.DeadFilter{Numbers: named, State: store.DeadOpen}, Limit: 1}, Unbounded); err != nil {
			return err
		}
		if err := checkNamed(ctx, w, named, Unbounded); err != nil {
			return err
		}
		if l, err = find(ctx, w, number); err != nil {
			return err
		}
		if l.Edits != e.Seen {
			return refuseEdited(number, e.Seen, l.Edits)
		}
		if _, err := e.Apply(l.Message); err != nil {
			return fmt.Errorf("dead letter %d: %w", number, err)
		}
		if err := w.EditDead(ctx, number, e); err != nil {
			return err
		}
		l, err = find(ctx, w, number)
		return err
	})
	return l, err
}

// find returns a dead letter of any state.
func find(ctx context.Context, r store.Reader, number int64) (store.DeadLetter, error) {
	found, err := r.DeadLetters(ctx, store.DeadQuery{DeadFilter: store.DeadFilter{Numbers: []int64{number}, State: store.DeadAny}, Limit: 1})
	switch {
	case err != nil:
		return store.DeadLetter{}, err
	case len(found) == 0:
		return store.DeadLetter{}, fmt.Errorf("%w: %d", ErrNotFound, number)
	}
	return found[0], nil
}

// ListEdits returns the edits of a dead letter, oldest first. Errors: ErrNotFound.
func (s Store) ListEdits(ctx context.Context, number int64) (edits []store.Edited, err error) {
	err = s.view(ctx, store.Operation{Method: "ListEdits", Doing: "list edits"}, store.DeadFilter{}, func(r store.Reader) error {
		if _, err := find(ctx, r, number); err != nil {
			return err
		}
		edits, err = r.Edits(ctx, number)
		return err
	})
	return edits, err
}

// ImportDead adds dead letters from this or another outbox, in one transaction, and returns how many are new: one
// with the same relay, message ID and DiedAt already exists, and stays unchanged. New ones get new numbers and, since
// their sequences mean nothing here, the store.ImportedSequence of these. They belong to no redrive of this outbox,
// whatever store.DeadLetter.Redrive says. Concurrent calls do not import a dead letter twice.
func (s Store) ImportDead(ctx context.Context, archived []store.ArchivedDead) (n int, err error) {
	err = s.records.Change(ctx, store.Operation{Method: "ImportDead", Doing: "import dead letters"}, func(w store.Writer) error {
		n = 0
		for _, a := range archived {
			added, err := w.ImportDead(ctx, storable(a))
			if err != nil {
				return fmt.Errorf("dead letter %d: %w", a.Number, err)
			}
			if added {
				n++
			}
		}
		return nil
	})
	return n, err
}

// storable returns a copy with the texts that every store can store.
func storable(a store.ArchivedDead) store.ArchivedDead {
	m := *a.Message
	m.DeliverAfter = 0
	a.Message, a.History, a.Before = &m, slices.Clone(a.History), slices.Clone(a.Before)
	texts := []*string{&a.Reason, &a.Cause, &a.ResolvedBy, &a.Resolution}
	for i := range a.History {
		texts = append(texts, &a.History[i].Cause)
	}
	for i := range a.Before {
		texts = append(texts, &a.Before[i].By, &a.Before[i].Why)
	}
	for _, text := range texts {
		*text = stored.Text(*text)
	}
	return a
}
