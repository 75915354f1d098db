package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// Result is how an action ended.
type Result string

// The results of actions.
const (
	Done    Result = "done"
	Refused Result = "refused"
	Failed  Result = "failed"
)

// Entry is the record of one action.
type Entry struct {
	// ID orders entries by time; At is on the database's clock.
	ID string    `json:"id"`
	At time.Time `json:"at"`
	// By is who acted, By.Via through what.
	By      string `json:"by"`
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	Via     string `json:"via,omitempty"`
	Action  Action `json:"action"`
	// On is what the action was about, e.g. "dead letter 17"; Path is its page.
	On   string `json:"on"`
	Path string `json:"path,omitempty"`
	// Key is the key, or the ID of a saga, that On names, if it names one.
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Role is the saga role in which a question was answered.
	Role string `json:"role,omitempty"`
	// Count is how many dead letters or messages were concerned.
	Count  int64  `json:"count,omitempty"`
	Result Result `json:"result"`
	// Error says why it was refused or failed.
	Error string `json:"error,omitempty"`
}

// auditKind is the kind of the records of entries.
const auditKind = "action"

func newEntry(p Principal, a Action, on, path, reason string) Entry {
	return Entry{
		ID: postrider.NewID(), By: clean(p.String()), Issuer: clean(p.Issuer), Subject: clean(p.Subject), Via: p.Via,
		Action: a, On: clean(on), Path: path, Reason: clean(strings.TrimSpace(reason)), Result: Done,
	}
}

// put adds the entry to the audit.
func (e Entry) put(ctx context.Context, w store.Writer) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("entry of the audit: %w", err)
	}
	if err := w.PutRecord(ctx, store.Record{Table: store.AuditRecords, Kind: auditKind, ID: e.ID, Body: body}); err != nil {
		return &auditError{err}
	}
	return nil
}

// auditError says that an entry of the audit could not be written.
type auditError struct{ error }

func (e *auditError) Error() string { return "the audit cannot be written: " + e.error.Error() }

// Unwrap returns the error of the store.
func (e *auditError) Unwrap() error { return e.error }

// audited is a store whose changes that fail for want of their entry are reported.
type audited struct {
	Store
	failed func(error)
}

// Unwrap returns the store itself, for those who read its log.
func (a audited) Unwrap() any { return a.Store }

// Change implements store.Records.
func (a audited) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	err := a.Store.Change(ctx, op, f)
	if _, is := errors.AsType[*auditError](err); is && ctx.Err() == nil {
		a.failed(err)
	}
	return err
}

// allow returns an error, and records it, if the principal may not do something.
func (s *Service) allow(ctx context.Context, p Principal, a Action, on string) error {
	return s.allowChange(ctx, p, Change{Action: a, On: on})
}

// allowChange is allow for what can name a key.
func (s *Service) allowChange(ctx context.Context, p Principal, c Change) error {
	var err error
	a := c.Action
	switch {
	case p.Subject == "" || !p.Role.May(a):
		err = &ForbiddenError{Action: a, Role: permissions[a].role}
	case p.Via == ViaAgent && !a.agentMay():
		err = ErrAgent
	default:
		return nil
	}
	s.refuse(ctx, p, c, err)
	return err
}

// refuse records that something is refused.
func (s *Service) refuse(ctx context.Context, p Principal, c Change, why error) {
	e := newEntry(p, c.Action, c.On, "", "")
	e.Key = clean(c.Key)
	e.Result, e.Error = Refused, clean(why.Error())
	s.record(ctx, e)
}

// record adds the entry of an action that changed nothing. The action is refused or has failed anyway, so an error is only logged.
func (s *Service) record(ctx context.Context, e Entry) {
	if err := s.write(ctx, e); err != nil {
		s.cfg.Logger.Warn("an action that was refused, or failed, is not on record", "action", e.Action, "by", e.By, "error", err)
	}
}

func (s *Service) write(ctx context.Context, e Entry) error {
	return s.store.Change(ctx, store.Operation{Method: "Audit", Doing: "record an action"}, func(w store.Writer) error {
		return e.put(ctx, w)
	})
}

// recordWithin is how long recording a failure may take.
const recordWithin = 5 * time.Second

// act carries out a change of the store, which do makes with the records that it is given: the entry is written in the transaction
// of its first change. A failure before that is recorded too, and so is a decision that is refused later.
func (s *Service) act(ctx context.Context, r *recorded, do func(store.Records) error) error {
	defer s.changed()
	r.Records = s.store
	err := do(r)
	switch {
	case errors.Is(err, held.ErrRefused), errors.Is(err, ErrSagaRefused):
		r.entry.ID, r.entry.Result = postrider.NewID(), Refused
	case errors.Is(err, ErrNotAsked):
		r.entry.ID, r.entry.Result = postrider.NewID(), Failed
	case err != nil && !r.committed:
		r.entry.Result = Failed
	default:
		return err
	}
	r.entry.Error = clean(err.Error())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	s.record(ctx, r.entry)
	return err
}

// recorded are the records of a store, whose first change that commits includes an entry of the audit.
type recorded struct {
	store.Records
	entry Entry
	// check, unless nil, is called before the change, and complete after it, in its transaction.
	check     func(context.Context, store.Writer) error
	complete  func(context.Context, store.Writer, *noted) error
	committed bool
}

// noted is a store.Writer that notes what is done.
type noted struct {
	store.Writer
	redrive  store.Redrive
	resolved int64
}

// AddRedrive notes the redrive.
func (n *noted) AddRedrive(ctx context.Context, r store.Redrive) (id int64, err error) {
	r.ID, err = n.Writer.AddRedrive(ctx, r)
	n.redrive = r
	return r.ID, err
}

// Resolve counts the dead letters.
func (n *noted) Resolve(ctx context.Context, numbers []int64, r store.Resolution) error {
	n.resolved += int64(len(numbers))
	return n.Writer.Resolve(ctx, numbers, r)
}

// Change is that of the store, with the entry.
func (r *recorded) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	if r.committed {
		return r.Records.Change(ctx, op, f)
	}
	err := r.Records.Change(ctx, op, func(w store.Writer) error {
		if r.check != nil {
			if err := r.check(ctx, w); err != nil {
				return err
			}
		}
		n := &noted{Writer: w}
		if err := f(n); err != nil {
			return err
		}
		e := r.entry
		if e.Count == 0 {
			e.Count = n.resolved
		}
		if n.redrive.ID != 0 {
			e.On = fmt.Sprintf("redrive %d: %s", n.redrive.ID, e.On)
			e.Path, e.Count = fmt.Sprintf("/redrives/%d", n.redrive.ID), n.redrive.Selected
		}
		if r.complete != nil {
			if err := r.complete(ctx, w, n); err != nil {
				return err
			}
		}
		return e.put(ctx, w)
	})
	r.committed = r.committed || err == nil
	return err
}

// Activity returns up to limit entries with IDs below before ("" for the newest), newest first: an admin's view has those of
// everybody, an operator's the operator's own. It looks at 2,000 entries at most. next is the ID to continue before, "" at the end.
func (s *Service) Activity(ctx context.Context, p Principal, before string, limit int) (out []Entry, next string, err error) {
	if err := s.allow(ctx, p, "Activity", ""); err != nil {
		return nil, "", err
	}
	for range auditPages {
		var found []store.Record
		err := s.store.View(ctx, store.Operation{Method: "Audit", Doing: "read the audit"}, func(r store.Reader) (err error) {
			found, err = r.ListRecords(ctx, store.RecordQuery{Table: store.AuditRecords, Kind: auditKind, Before: before, Limit: auditPage})
			return err
		})
		if err != nil {
			return nil, "", err
		}
		for _, r := range found {
			if len(out) == limit {
				return out, before, nil
			}
			var e Entry
			if err := json.Unmarshal(r.Body, &e); err != nil {
				return nil, "", fmt.Errorf("entry %s of the audit: %w", r.ID, err)
			}
			if e.At = r.At; p.Role.Includes(Admin) || e.Subject == p.Subject && e.Issuer == p.Issuer {
				out = append(out, s.shownEntry(ctx, p, e))
			}
			before = r.ID
		}
		if len(found) < auditPage {
			return out, "", nil
		}
	}
	return out, before, nil
}

const (
	// auditPage is how many entries are read at a time, auditPages how many times one call reads.
	auditPage  = 200
	auditPages = 10
)
