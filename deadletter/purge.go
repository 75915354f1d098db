package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/legalhold"
	"github.com/postrider/postrider/store"
)

// purgeKind is that of the documents that record purges.
const purgeKind = "purge of dead letters"

// purgeLimit is how many dead letters one transaction of a purge considers.
const purgeLimit = 1_000

// PurgePlan says which resolved dead letters to remove for good. Open ones are always kept.
type PurgePlan struct {
	// Relay is the name of a relay or consumer; "" for all.
	Relay string `json:"relay,omitempty"`
	// ResolvedFor is how long ago they must have been redriven or discarded; at least MinResolvedFor.
	ResolvedFor time.Duration `json:"-"`
	// By is who decided it and Reason why, for the record.
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// MinResolvedFor is the least PurgePlan.ResolvedFor: so that a dead letter can still be looked at after it was resolved.
const MinResolvedFor = time.Minute

// Purge is a purge on record.
type Purge struct {
	ID string `json:"id"`
	PurgePlan
	// ResolvedBefore is when the dead letters were resolved at the latest.
	ResolvedBefore time.Time `json:"resolved_before"`
	StartedAt      time.Time `json:"started_at"`
	// EndedAt is zero if it was interrupted; a further purge removes what is left.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// Removed counts the dead letters that are gone. Kept counts those whose messages the log still has, or a redrive on record has sent back.
	Removed int64 `json:"removed"`
	Kept    int64 `json:"kept"`
}

func (p *PurgePlan) query(now time.Time) store.ResolvedQuery {
	return store.ResolvedQuery{Relay: p.Relay, Before: now.Add(-p.ResolvedFor), Limit: purgeLimit}
}

func (p *PurgePlan) validate() error {
	if p.ResolvedFor < MinResolvedFor {
		return fmt.Errorf("purge: dead letters must have been resolved for %s or longer; the plan says %s", MinResolvedFor, p.ResolvedFor)
	}
	return nil
}

// CountPurge counts the dead letters that a purge would consider.
func (s Store) CountPurge(ctx context.Context, p PurgePlan) (n int64, err error) {
	if err := p.validate(); err != nil {
		return 0, err
	}
	err = s.records.Change(ctx, store.Operation{Method: "CountPurge", Doing: "count resolved dead letters"}, func(w store.Writer) error {
		now, err := w.Now(ctx) // the database's time
		if err == nil {
			n, err = w.CountResolved(ctx, p.query(now))
		}
		return err
	})
	return n, err
}

// Purge removes resolved dead letters with their edits, in transactions of up to 1,000, and records it. It calls progress, unless
// nil, after each. Dead letters of relays whose messages the log still has are kept: they say that the messages are not to be
// delivered from there. So are those of messages that a redrive on record has sent back: it counts by them. With an error it returns the purge too: what was removed is on record. Errors: legalhold.ErrHeld.
func (s Store) Purge(ctx context.Context, plan PurgePlan, progress func(Purge)) (p Purge, err error) {
	if err := plan.validate(); err != nil {
		return p, err
	}
	plan.By, plan.Reason = stored.Text(plan.By), stored.Text(plan.Reason)
	id, q, done := postrider.NewID(), store.ResolvedQuery{}, false
	for rev := int64(0); !done; rev++ {
		next, last := p, int64(0)
		err := s.records.Change(ctx, store.Operation{Method: "PurgeDead", Doing: "purge dead letters"}, func(w store.Writer) error {
			next = p
			if err := legalhold.Check(ctx, w); err != nil {
				return err
			}
			now, err := w.Now(ctx)
			if err != nil {
				return err
			}
			if rev == 0 {
				q = plan.query(now)
				next = Purge{ID: id, PurgePlan: plan, ResolvedBefore: q.Before, StartedAt: now}
			}
			last, done, err = purgeStep(ctx, w, q, &next)
			if err != nil {
				return err
			}
			if done {
				next.EndedAt = now
			}
			return savePurge(ctx, w, &next, rev)
		})
		if err != nil {
			return p, err
		}
		if p, q.After = next, last; progress != nil {
			progress(p)
		}
	}
	return p, nil
}

// purgeStep removes the next dead letters of a purge. It returns the last number that it considered, and whether there are no more.
func purgeStep(ctx context.Context, w store.Writer, q store.ResolvedQuery, p *Purge) (last int64, done bool, err error) {
	considered, err := w.CountResolved(ctx, store.ResolvedQuery{Relay: q.Relay, Before: q.Before, After: q.After})
	if err != nil || considered == 0 {
		return q.After, true, err
	}
	removed, last, err := w.RemoveResolved(ctx, q)
	p.Removed += int64(removed)
	p.Kept += min(considered, int64(q.Limit)) - int64(removed)
	return last, considered <= int64(q.Limit), err
}

// savePurge stores a purge whose record has a revision, 0 for a new one.
func savePurge(ctx context.Context, w store.Writer, p *Purge, rev int64) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return w.PutRecord(ctx, store.Record{Table: store.WorkRecords, Kind: purgeKind, ID: p.ID, Rev: rev, Body: body})
}

// ListPurges yields all purges, newest first.
func (s Store) ListPurges(ctx context.Context) iter.Seq2[Purge, error] {
	return func(yield func(Purge, error) bool) {
		op := store.Operation{Method: "ListPurges", Doing: "list purges"}
		for d, err := range stored.ListRecords(ctx, s.records, op, purgeKind) {
			var p Purge
			if err == nil {
				err = json.Unmarshal(d.Body, &p)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}
