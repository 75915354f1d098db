package erasure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/legalhold"
	"github.com/postrider/postrider/store"
)

const (
	// kind is that of the documents that record erasures.
	kind = "erasure"
	// pageLimit is how many messages of the log are read at a time, and stepPages how often in one transaction.
	pageLimit = 1_000
	stepPages = 20
	// stepLimit is how many parked messages, and dead letters, one transaction erases.
	stepLimit = 500
)

// page reads on in the log after a sequence. It returns the messages to erase, and the sequence to read on after.
func page(ctx context.Context, r store.LogReader, f store.EraseFilter, after, upTo int64) (found []store.LoggedMessage, last int64, err error) {
	p, err := r.Logged(ctx, store.LogQuery{After: after, UpTo: upTo, Limit: pageLimit})
	if err != nil {
		return nil, after, err
	}
	for i := range p.Messages {
		if m := &p.Messages[i]; m.Type != store.ErasedType && f.Matches(m.Key, m.Tenant, m.ID) {
			found = append(found, *m)
		}
	}
	return found, p.Last, nil
}

// Erase erases messages, in transactions of up to 1,000, and records it. It calls progress, unless nil, after each. Interrupted, it leaves
// a record of what it has erased, and Resume erases the rest; so does another call for the same subject. It returns the erasure also with an
// error. Errors: those of Plan.Validate; legalhold.ErrHeld.
func (s Store) Erase(ctx context.Context, p Plan, progress func(Erasure)) (e Erasure, err error) {
	if err := p.Validate(); err != nil {
		return e, err
	}
	err = s.records.Change(ctx, operation, func(w store.Writer) (err error) {
		e = Erasure{ID: postrider.NewID(), By: stored.Text(p.By), Reason: stored.Text(p.Reason)}
		e.Subject, e.Value, e.Digest = p.subject()
		if err := legalhold.Check(ctx, w); err != nil {
			return err
		}
		if e.StartedAt, err = w.Now(ctx); err != nil {
			return err
		}
		if e.UpTo, err = w.LogEnd(ctx); err != nil {
			return err
		}
		return e.save(ctx, w, 0)
	})
	if err != nil {
		return Erasure{}, err
	}
	return s.drive(ctx, e, "", progress)
}

// Resume erases what is left of an erasure that was interrupted, as Erase does. Both may run at once. Errors: ErrNoErasure, ErrEnded,
// legalhold.ErrHeld.
func (s Store) Resume(ctx context.Context, id, by string, progress func(Erasure)) (e Erasure, err error) {
	err = s.records.View(ctx, operation, func(r store.Reader) error {
		d, err := stored.FindRecord(ctx, r, kind, id)
		if errors.Is(err, store.ErrNoRecord) {
			return fmt.Errorf("%w: %s", ErrNoErasure, id)
		}
		if err == nil {
			e, err = parse(d)
		}
		return err
	})
	switch {
	case err != nil:
		return e, err
	case e.Ended():
		return e, fmt.Errorf("%w: %s", ErrEnded, id)
	}
	return s.drive(ctx, e, stored.Text(by), progress)
}

// operation is what the transactions of an erasure are for.
var operation = store.Operation{Method: "Erase", Doing: "erase messages"}

// drive takes the steps of an erasure until it has ended.
func (s Store) drive(ctx context.Context, e Erasure, resumedBy string, progress func(Erasure)) (Erasure, error) {
	defer s.records.Wake() // for held keys that go on
	for !e.Ended() {
		next, err := s.step(ctx, e.ID, resumedBy)
		if err != nil {
			return e, err
		}
		if e = next; progress != nil {
			progress(e)
		}
	}
	return e, nil
}

// step takes the next step of an erasure in a transaction, which also records it.
func (s Store) step(ctx context.Context, id, resumedBy string) (e Erasure, err error) {
	err = s.records.Change(ctx, operation, func(w store.Writer) error {
		if err := legalhold.Check(ctx, w); err != nil {
			return err
		}
		d, err := w.LockRecord(ctx, store.WorkRecords, kind, id)
		if err != nil {
			return err
		}
		if e, err = parse(d); err != nil || e.Ended() {
			return err
		}
		if resumedBy != "" {
			e.ResumedBy = resumedBy
		}
		if e.Position < e.UpTo {
			err = e.eraseLog(ctx, w)
		} else {
			err = e.eraseOthers(ctx, w)
		}
		if err != nil {
			return err
		}
		return e.save(ctx, w, d.Rev)
	})
	return e, err
}

// save stores an erasure whose record has a revision, 0 for a new one.
func (e *Erasure) save(ctx context.Context, w store.Writer, rev int64) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return w.PutRecord(ctx, store.Record{Table: store.WorkRecords, Kind: kind, ID: e.ID, Rev: rev, Body: body})
}

func parse(d store.Record) (e Erasure, err error) {
	if err = json.Unmarshal(d.Body, &e); err != nil {
		err = fmt.Errorf("the stored erasure %s: %w", d.ID, err)
	}
	e.ChangedAt = d.At
	return e, err
}

// eraseLog reads on in the log until it finds messages, and erases them.
func (e *Erasure) eraseLog(ctx context.Context, w store.Writer) (err error) {
	var found []store.LoggedMessage
	for pages := 0; len(found) == 0 && e.Position < e.UpTo && pages < stepPages; pages++ {
		if found, e.Position, err = page(ctx, w, e.filter(), e.Position, e.UpTo); err != nil {
			return err
		}
	}
	if len(found) == 0 {
		return nil
	}
	n, err := w.EraseLogged(ctx, found)
	e.Logged += int64(n)
	return err
}

// eraseOthers erases parked messages and dead letters. A step that finds none ends the erasure. It looks for parked messages first: one
// that is dead-lettered meanwhile is found among the dead letters, and a dead letter that is redriven meanwhile is still one, to be erased.
//
// A message that is neither parked nor dead-lettered again counts as delivered for its redrive, unless its dead letter was erased. So no
// step removes parked messages while a dead letter is left that one of them was redriven from.
func (e *Erasure) eraseOthers(ctx context.Context, w store.Writer) error {
	f := e.filter()
	dead, err := w.EraseDead(ctx, f, stepLimit)
	if err != nil {
		return err
	}
	if e.DeadLetters += int64(dead); dead == stepLimit {
		return nil
	}
	parked, err := w.EraseParked(ctx, f, stepLimit)
	if err != nil {
		return err
	}
	open, err := e.discardOpen(ctx, w)
	if err != nil {
		return err
	}
	for more := stepLimit; more == stepLimit; { // those discarded now, and those of messages that were redriven meanwhile
		if more, err = w.EraseDead(ctx, f, stepLimit); err != nil {
			return err
		}
		dead += more
		e.DeadLetters += int64(more)
	}
	e.Parked += int64(len(parked))
	if len(parked)+open+dead > 0 {
		return resume(ctx, w, parked)
	}
	return e.end(ctx, w)
}

// discardOpen discards open dead letters, and returns how many.
func (e *Erasure) discardOpen(ctx context.Context, w store.Writer) (int, error) {
	f := e.filter()
	open := store.DeadFilter{Key: f.Key, Tenant: f.Tenant, MessageID: f.MessageID, State: store.DeadOpen}
	locked, err := w.LockDead(ctx, store.DeadQuery{DeadFilter: open, Limit: stepLimit}, -1)
	if err != nil || len(locked.Open) == 0 {
		return 0, err
	}
	var numbers []int64
	for _, l := range locked.Open {
		numbers = append(numbers, l.Number)
	}
	return len(numbers), w.Resolve(ctx, numbers, store.Resolution{State: store.DeadDiscarded, By: e.By, Reason: "erased"})
}

// end ends an erasure, and earlier ones of the same subject that were interrupted: nothing is left of what they cover.
func (e *Erasure) end(ctx context.Context, w store.Writer) (err error) {
	if e.EndedAt, err = w.Now(ctx); err != nil {
		return err
	}
	e.Value = ""
	for d, err := range stored.AllRecords(ctx, w, kind) {
		if err != nil {
			return err
		}
		earlier, err := parse(d)
		if earlier.ID = d.ID; err != nil || !earlier.covered(e) {
			continue
		}
		if err := earlier.endWith(ctx, w, e); err != nil {
			return err
		}
	}
	return nil
}

// endWith ends an erasure because a later one has erased what was left of it.
func (e *Erasure) endWith(ctx context.Context, w store.Writer, later *Erasure) error {
	d, err := w.LockRecord(ctx, store.WorkRecords, kind, e.ID)
	if err != nil {
		return err
	}
	if *e, err = parse(d); err != nil || e.Ended() {
		return err
	}
	e.EndedAt, e.EndedWith, e.Value = later.EndedAt, later.ID, ""
	return e.save(ctx, w, d.Rev)
}

// covered reports whether an erasure has not ended, and another one has erased what it was to erase.
func (e *Erasure) covered(by *Erasure) bool {
	return e.ID != by.ID && !e.Ended() && e.Subject == by.Subject && e.Digest == by.Digest && e.UpTo <= by.UpTo
}

// resume makes the held keys due whose parked messages were removed: the next queued message follows, or the key is released. A key that
// waits for the decision about a dead letter goes on waiting.
func resume(ctx context.Context, w store.Writer, parked []store.ErasedParked) error {
	seen := make(map[store.ErasedParked]bool)
	for _, p := range parked {
		if p.Key == "" || seen[p] {
			continue
		}
		seen[p] = true
		h, err := w.LockHeld(ctx, p.Relay, p.Key)
		if errors.Is(err, store.ErrNotHeld) {
			continue
		}
		if err == nil && !h.NextAttempt.IsZero() {
			err = w.ResumeHeld(ctx, h)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// List yields all erasures, newest first. One that cannot be read comes as its ID and an error, and the others follow it.
func (s Store) List(ctx context.Context) iter.Seq2[Erasure, error] {
	return func(yield func(Erasure, error) bool) {
		op := store.Operation{Method: "ListErasures", Doing: "list erasures"}
		for d, err := range stored.ListRecords(ctx, s.records, op, kind) {
			if err != nil {
				yield(Erasure{}, err)
				return
			}
			e, err := parse(d)
			if e.ID = d.ID; !yield(e, err) {
				return
			}
		}
	}
}

// Of reports whether an erasure is of the subject that a plan names.
func (e *Erasure) Of(p Plan) bool {
	what, _, digest := p.subject()
	return e.Subject == what && e.Digest == digest
}
