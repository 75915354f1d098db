package erasure

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"time"

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
	listPage  = 100
)

// page reads on in the log after a sequence. It returns the messages to erase, the sequence to read on after, and whether that is the end:
// the end of the log, or where all messages were written after a time.
func page(ctx context.Context, r store.LogReader, f store.EraseFilter, after int64, began time.Time) (found []store.LoggedMessage, last int64, end bool, err error) {
	p, err := r.Logged(ctx, store.LogQuery{After: after, UpTo: math.MaxInt64, Limit: pageLimit})
	if err != nil {
		return nil, after, false, err
	}
	later := len(p.Messages) > 0
	for i := range p.Messages {
		m := &p.Messages[i]
		later = later && m.CreatedAt.After(began)
		if m.Type != store.ErasedType && f.Matches(m.Key, m.Tenant, m.ID) {
			found = append(found, *m)
		}
	}
	return found, p.Last, later || p.Last == math.MaxInt64, nil
}

// Erase erases messages, in transactions of up to 1,000, and records it. It calls progress, unless nil, after each. Interrupted, it leaves
// a record of what it has erased; another call for the same subject erases the rest. It returns the erasure also with an error. Errors:
// those of Plan.Validate; legalhold.ErrHeld.
func (s Store) Erase(ctx context.Context, p Plan, progress func(Erasure)) (e Erasure, err error) {
	if err := p.Validate(); err != nil {
		return e, err
	}
	run := &run{store: s, filter: p.filter(), progress: progress}
	run.done.Subject, run.done.Digest = p.subject()
	run.done.By, run.done.Reason = stored.Text(p.By), stored.Text(p.Reason)
	err = run.erase(ctx)
	s.records.Wake() // for held keys that go on
	return run.done, err
}

// run is an erasure in progress.
type run struct {
	store    Store
	filter   store.EraseFilter
	progress func(Erasure)
	done     Erasure // what is recorded
	after    int64   // the log is erased up to here
}

func (r *run) erase(ctx context.Context) error {
	err := r.step(ctx, func(context.Context, store.Writer, *Erasure) (bool, error) { return true, nil }) // put it on record first
	for _, part := range []func(context.Context, store.Writer, *Erasure) (bool, error){r.eraseLog, r.eraseOthers} {
		for end := false; err == nil && !end; {
			err = r.step(ctx, func(ctx context.Context, w store.Writer, e *Erasure) (_ bool, err error) {
				end, err = part(ctx, w, e)
				return end, err
			})
		}
	}
	if err != nil {
		return err
	}
	return r.step(ctx, func(ctx context.Context, w store.Writer, e *Erasure) (_ bool, err error) {
		e.EndedAt, err = w.Now(ctx)
		return true, err
	})
}

// step runs a part of the erasure in a transaction, which also records it.
func (r *run) step(ctx context.Context, part func(context.Context, store.Writer, *Erasure) (bool, error)) error {
	var next Erasure
	after := r.after
	err := r.store.records.Change(ctx, store.Operation{Method: "Erase", Doing: "erase messages"}, func(w store.Writer) (err error) {
		next, r.after = r.done, after // again, after a conflict
		if err := legalhold.Check(ctx, w); err != nil {
			return err
		}
		first := next.ID == ""
		if first {
			next.ID = postrider.NewID()
			if next.StartedAt, err = w.Now(ctx); err != nil {
				return err
			}
		}
		if _, err = part(ctx, w, &next); err != nil {
			return err
		}
		return save(ctx, w, &next, first)
	})
	if err != nil {
		return err
	}
	if r.done = next; r.progress != nil {
		r.progress(r.done)
	}
	return nil
}

func save(ctx context.Context, w store.Writer, e *Erasure, first bool) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	d := store.Document{Kind: kind, ID: e.ID, Body: body}
	if first {
		return w.AddDocument(ctx, d)
	}
	return w.SaveDocument(ctx, d)
}

// eraseLog reads on in the log until it finds messages, and erases them.
func (r *run) eraseLog(ctx context.Context, w store.Writer, e *Erasure) (end bool, err error) {
	var found []store.LoggedMessage
	for pages := 0; len(found) == 0 && !end && pages < stepPages; pages++ {
		if found, r.after, end, err = page(ctx, w, r.filter, r.after, e.StartedAt); err != nil {
			return false, err
		}
	}
	if len(found) == 0 {
		return end, nil
	}
	n, err := w.EraseLogged(ctx, found)
	e.Logged += int64(n)
	return end, err
}

// eraseOthers erases parked messages and dead letters. It ends with a transaction that finds none: a message can be dead-lettered, or redriven,
// between two of them.
func (r *run) eraseOthers(ctx context.Context, w store.Writer, e *Erasure) (end bool, err error) {
	open := store.DeadFilter{Key: r.filter.Key, Tenant: r.filter.Tenant, MessageID: r.filter.MessageID, State: store.DeadOpen}
	locked, err := w.LockDead(ctx, store.DeadQuery{DeadFilter: open, Limit: stepLimit}, -1)
	if err != nil {
		return false, err
	}
	if len(locked.Open) > 0 {
		var numbers []int64
		for _, l := range locked.Open {
			numbers = append(numbers, l.Number)
		}
		if err := w.Resolve(ctx, numbers, store.Resolution{State: store.DeadDiscarded, By: e.By, Reason: "erased"}); err != nil {
			return false, err
		}
	}
	dead, err := w.EraseDead(ctx, r.filter, stepLimit)
	if err != nil {
		return false, err
	}
	parked, err := w.EraseParked(ctx, r.filter, stepLimit)
	if err != nil {
		return false, err
	}
	e.DeadLetters, e.Parked = e.DeadLetters+int64(dead), e.Parked+int64(len(parked))
	return len(locked.Open)+dead+len(parked) == 0, resume(ctx, w, parked)
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

// List yields all erasures, newest first.
func (s Store) List(ctx context.Context) iter.Seq2[Erasure, error] {
	return func(yield func(Erasure, error) bool) {
		for before := ""; ; {
			var page []store.Document
			err := s.records.View(ctx, store.Operation{Method: "ListErasures", Doing: "list erasures"}, func(r store.Reader) (err error) {
				page, err = r.Documents(ctx, kind, before, listPage)
				return err
			})
			if err != nil {
				yield(Erasure{}, err)
				return
			}
			for _, d := range page {
				var e Erasure
				err := json.Unmarshal(d.Body, &e)
				if !yield(e, err) || err != nil {
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

// Of reports whether an erasure is of the subject that a plan names.
func (e *Erasure) Of(p Plan) bool {
	what, digest := p.subject()
	return e.Subject == what && e.Digest == digest
}
