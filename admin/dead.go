package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// Dead is a dead letter as the principal may see it. Its Message has no payload and no headers.
type Dead struct {
	store.DeadLetter
	// Payload and Headers are what rules show; HiddenBy says why the whole payload is hidden, "" if it is not.
	Payload  []Segment `json:"payload,omitempty"`
	Shown    []Header  `json:"headers,omitempty"`
	HiddenBy string    `json:"hidden_by,omitempty"`
	Size     int       `json:"-"`
	// HoldsKey: its key is held until somebody decides about it.
	HoldsKey bool `json:"holds_key,omitempty"`
}

// Causes groups the open dead letters that match a filter by relay, type and normalized cause, most frequent first. It says if there are
// too many to count all of them.
func (s *Service) Causes(ctx context.Context, p Principal, f store.DeadFilter, limit int) (out store.FoundCauses, err error) {
	if err := s.allow(ctx, p, "Causes", ""); err != nil {
		return out, err
	}
	if f, err = s.searchable(ctx, p, f); err != nil {
		return out, err
	}
	out, err = s.dead().CountCauses(ctx, f, limit)
	for i := range out.Causes {
		out.Causes[i].Cause = store.NormalizeCause(out.Causes[i].Cause)
	}
	return out, err
}

// searchable removes from a filter what would let a principal guess hidden values. Errors: ErrKeyHidden.
func (s *Service) searchable(ctx context.Context, p Principal, f store.DeadFilter) (_ store.DeadFilter, err error) {
	if f.Cause != "" && !s.seesCauses(p, f.Type) {
		f.Fingerprint, f.Cause = store.Fingerprint(f.Cause), ""
	}
	f.Key, err = s.named(ctx, p, f.Type, f.Key)
	return f, err
}

// DeadPage is a page of dead letters, oldest first, and how many match in all.
type DeadPage struct {
	DeadLetters []Dead `json:"dead_letters"`
	store.FoundDead
}

// DeadLetters returns up to limit dead letters that match a filter and have numbers above after, without payloads. It says if there are
// too many to look at all of them.
func (s *Service) DeadLetters(ctx context.Context, p Principal, f store.DeadFilter, after int64, limit int) (out DeadPage, err error) {
	if err := s.allow(ctx, p, "DeadLetters", ""); err != nil {
		return out, err
	}
	if f, err = s.searchable(ctx, p, f); err != nil {
		return out, err
	}
	out.FoundDead, err = s.dead().FindDead(ctx, f, after, limit, func(l store.DeadLetter) {
		out.DeadLetters = append(out.DeadLetters, s.shownDead(p, l, false))
	})
	return out, err
}

// DeadLetter returns one dead letter, and its edits without their content. Errors: deadletter.ErrNotFound.
func (s *Service) DeadLetter(ctx context.Context, p Principal, number int64) (d Dead, edits []store.Edited, err error) {
	if err := s.allow(ctx, p, "DeadLetter", deadName(number)); err != nil {
		return d, nil, err
	}
	l, err := s.dead().ShowDead(ctx, number)
	if err != nil {
		return d, nil, err
	}
	if l.Edits > 0 {
		if edits, err = s.dead().ListEdits(ctx, number); err != nil {
			return d, nil, err
		}
		for i := range edits {
			edits[i].Payload, edits[i].Headers = nil, nil
		}
	}
	d = s.shownDead(p, l, p.Role.May("Content"))
	if l.Message.Key != "" && l.State == store.DeadOpen {
		h, _, err := s.held().ShowHeld(ctx, l.Relay, l.Message.Key, 0)
		if err != nil && !errors.Is(err, store.ErrNotHeld) {
			return d, nil, err
		}
		d.HoldsKey = err == nil && h.NextAttempt.IsZero() && h.Sequence == l.Message.Sequence
	}
	return d, edits, nil
}

func deadName(number int64) string { return fmt.Sprintf("dead letter %d", number) }

func deadPath(number int64) string { return fmt.Sprintf("/dead/%d", number) }

// shownDead redacts a dead letter.
func (s *Service) shownDead(p Principal, l store.DeadLetter, content bool) Dead {
	m := *l.Message
	d := Dead{DeadLetter: l, Size: len(m.Payload)}
	d.Cause, d.History = s.cause(p, m.Type, l.Cause), s.attempts(p, m.Type, l.History)
	if content {
		d.Payload, d.Shown, d.HiddenBy = s.content(l.Message)
	}
	m.Payload, m.Headers = nil, nil
	s.identified(p, &m)
	d.Message = &m
	return d
}

// content returns what rules show of a message.
func (s *Service) content(m *postrider.Message) (payload []Segment, headers []Header, hiddenBy string) {
	rule := s.ruleFor(m.Type)
	payload, headers = rule.payload(m.Payload), rule.headers(m.Headers)
	switch {
	case rule == nil:
		hiddenBy = "no rule shows this type"
	case len(payload) == 1 && payload[0].Hidden:
		hiddenBy = "the rule " + rule.Type + " shows nothing of it"
	}
	return payload, headers, hiddenBy
}

// Reveal returns the message of a dead letter as it is. It is recorded first.
func (s *Service) Reveal(ctx context.Context, p Principal, number int64, reason string) (*postrider.Message, error) {
	if err := s.allow(ctx, p, "Reveal", deadName(number)); err != nil {
		return nil, err
	}
	if err := required(&reason); err != nil {
		return nil, err
	}
	if err := s.write(ctx, newEntry(p, "Reveal", deadName(number), deadPath(number), reason)); err != nil {
		return nil, fmt.Errorf("hidden values are shown only on record: %w", err)
	}
	l, err := s.dead().ShowDead(ctx, number)
	if err != nil {
		return nil, err
	}
	return l.Message, nil
}

// RedriveDead sends one dead letter back: it starts a redrive, which a relay carries out. Errors: deadletter.ErrNotFound,
// deadletter.ErrResolved.
func (s *Service) RedriveDead(ctx context.Context, p Principal, number int64, reason string) (r store.Redrive, err error) {
	if err := s.allow(ctx, p, "RedriveDead", deadName(number)); err != nil {
		return r, err
	}
	rec := &recorded{entry: newEntry(p, "RedriveDead", deadName(number), deadPath(number), reason)}
	err = s.act(ctx, rec, func(records store.Records) error {
		r, err = deadletter.New(records).StartRedrive(ctx, deadletter.Plan{
			Filter: store.DeadFilter{Numbers: []int64{number}, MaxRedrives: deadletter.Unbounded}, By: p.String(),
		})
		return err
	})
	return r, err
}

// DiscardDead drops one dead letter; the reason stays on record. Errors: deadletter.ErrNotFound, deadletter.ErrResolved, ErrReason.
func (s *Service) DiscardDead(ctx context.Context, p Principal, number int64, reason string) error {
	if err := s.allow(ctx, p, "DiscardDead", deadName(number)); err != nil {
		return err
	}
	if err := required(&reason); err != nil {
		return err
	}
	rec := &recorded{entry: newEntry(p, "DiscardDead", deadName(number), deadPath(number), reason)}
	return s.act(ctx, rec, func(records store.Records) error {
		_, err := deadletter.New(records).DiscardDead(ctx, store.DeadFilter{Numbers: []int64{number}}, p.String(), reason, 1)
		return err
	})
}

// Content returns the payload of a dead letter for an editor: hidden values are markers. Errors: ErrNotShown.
func (s *Service) Content(ctx context.Context, p Principal, number int64) (text string, edits int, err error) {
	if err := s.allow(ctx, p, "Content", deadName(number)); err != nil {
		return "", 0, err
	}
	l, err := s.dead().ShowDead(ctx, number)
	if err != nil {
		return "", 0, err
	}
	text, err = s.ruleFor(l.Message.Type).forEditing(l.Message.Payload)
	return text, l.Edits, err
}

// EditDead replaces the payload of an open dead letter by an edited text of Content; seen is the number of edits that Content
// returned. Errors: ErrMarker, ErrNotShown, ErrReason, deadletter.ErrEdited and those of deadletter.Store.EditDead.
func (s *Service) EditDead(ctx context.Context, p Principal, number int64, text string, seen int, reason string) error {
	if err := s.allow(ctx, p, "EditDead", deadName(number)); err != nil {
		return err
	}
	if err := required(&reason); err != nil {
		return err
	}
	rec := &recorded{entry: newEntry(p, "EditDead", deadName(number), deadPath(number), reason)}
	return s.act(ctx, rec, func(records store.Records) error {
		l, err := s.dead().ShowDead(ctx, number)
		if err != nil {
			return err
		}
		payload, err := s.ruleFor(l.Message.Type).edited(l.Message.Payload, text)
		if err != nil {
			return err
		}
		_, err = deadletter.New(records).EditDead(ctx, number, store.Edit{Payload: payload, Seen: seen, By: p.String(), Why: reason})
		return err
	})
}

// Redrives returns up to limit redrives, newest first.
func (s *Service) Redrives(ctx context.Context, p Principal, limit int) (out []store.Redrive, err error) {
	if err := s.allow(ctx, p, "Redrives", ""); err != nil {
		return nil, err
	}
	for r, err := range s.dead().ListRedrives(ctx, "") {
		if err != nil || len(out) == limit {
			return out, err
		}
		r.Cause, r.Filter = s.anyCause(p, r.Cause), s.filtered(p, r.Filter)
		out = append(out, r)
	}
	return out, nil
}

// Redrive returns one redrive with its outcome. Errors: store.ErrNoRedrive.
func (s *Service) Redrive(ctx context.Context, p Principal, id int64) (store.Redrive, error) {
	if err := s.allow(ctx, p, "Redrive", ""); err != nil {
		return store.Redrive{}, err
	}
	r, err := s.dead().ShowRedrive(ctx, id)
	r.Cause, r.Filter = s.anyCause(p, r.Cause), s.filtered(p, r.Filter)
	return r, err
}

// CancelRedrive ends a running redrive; what it has sent stays sent. Errors: store.ErrNoRedrive, deadletter.ErrRedriveEnded.
func (s *Service) CancelRedrive(ctx context.Context, p Principal, id int64, reason string) error {
	on, path := fmt.Sprintf("redrive %d", id), fmt.Sprintf("/redrives/%d", id)
	if err := s.allow(ctx, p, "CancelRedrive", on); err != nil {
		return err
	}
	rec := &recorded{entry: newEntry(p, "CancelRedrive", on, path, reason)}
	return s.act(ctx, rec, func(records store.Records) error {
		_, err := deadletter.New(records).CancelRedrive(ctx, id, p.String())
		return err
	})
}

// ContinueRedrive lets a redrive go on that has stopped. Errors: store.ErrNoRedrive, deadletter.ErrRedriveEnded, deadletter.ErrNotStopped.
func (s *Service) ContinueRedrive(ctx context.Context, p Principal, id int64, reason string) error {
	c := Change{Action: "ContinueRedrive", On: fmt.Sprintf("redrive %d", id), Path: fmt.Sprintf("/redrives/%d", id), Reason: reason}
	return s.Act(ctx, p, c, func(db held.Database) error {
		_, err := deadletter.New(db).ContinueRedrive(ctx, id, p.String())
		return err
	})
}

// HeldKeys returns up to limit held keys of a relay ("" for all), longest held first.
func (s *Service) HeldKeys(ctx context.Context, p Principal, relay string, limit int) (out []store.HeldInfo, err error) {
	if err := s.allow(ctx, p, "HeldKeys", ""); err != nil {
		return nil, err
	}
	for h, err := range s.held().ListHeld(ctx, relay) {
		if err != nil || len(out) == limit {
			return out, err
		}
		h.Cause, h.Key = s.anyCause(p, h.Cause), s.key(p, "", h.Key, h.MessageID)
		out = append(out, h)
	}
	return out, nil
}

// anyCause is cause for a held key, whose message's type is not known, and for a saga, which has messages of several types.
func (s *Service) anyCause(p Principal, cause string) string { return s.cause(p, anyType, cause) }

// Queued is a message that is queued in a held key.
type Queued struct {
	store.ParkedInfo
}

// maxQueued is how many messages of a held key are shown at most.
const maxQueued = 100

// HeldKey returns a held key with up to limit of its first queued messages, 100 at most, without payloads. Errors: store.ErrNotHeld,
// ErrKeyHidden, inspect.ErrNotFound.
func (s *Service) HeldKey(ctx context.Context, p Principal, relay, key string, limit int) (h store.HeldInfo, queued []Queued, err error) {
	if err := s.allow(ctx, p, "HeldKey", ""); err != nil {
		return h, nil, err
	}
	asked := key
	if key, err = s.named(ctx, p, anyType, asked); err != nil {
		return h, nil, err
	}
	h, parked, err := s.held().ShowHeld(ctx, relay, key, min(limit, maxQueued))
	if err != nil && key != asked {
		err = unnamed{err, key}
	}
	if err != nil {
		return h, nil, err
	}
	kind := anyType
	for _, q := range parked {
		if q.Message.ID == h.MessageID {
			kind = q.Message.Type
		}
		m := *q.Message
		m.Payload, m.Headers = nil, nil
		s.identified(p, &m)
		q.Message, q.History = &m, s.attempts(p, m.Type, q.History)
		queued = append(queued, Queued{q})
	}
	h.Cause, h.Key = s.cause(p, kind, h.Cause), s.key(p, "", h.Key, h.MessageID)
	return h, queued, nil
}

// decideWithin is how long Decide waits for a decision to be applied.
const decideWithin = 3 * time.Second

// Decide records a decision about a held key or a parked message, and waits a moment until it is applied. All but retries need a
// reason and the ID of the message. Errors: ErrInput, held.ErrNotApplied when the process that holds the key has not applied it yet;
// held.ErrRefused, store.ErrNotHeld, store.ErrNoParked, ErrReason, ErrKeyHidden.
func (s *Service) Decide(ctx context.Context, p Principal, d store.Decision) (store.Decision, error) {
	if err := s.allowChange(ctx, p, Decided(d)); err != nil {
		return d, err
	}
	if d.Verb != store.VerbRetry {
		if err := required(&d.Reason); err != nil {
			return d, err
		}
		switch {
		case d.Verb == store.VerbDeadAll && d.Key == "":
			return d, fmt.Errorf("%w: %s is a decision about a held key", ErrInput, d.Verb)
		case d.MessageID == "":
			return d, fmt.Errorf("%w: name the blocking message (message_id), so that no other one is concerned", ErrInput)
		}
	}
	asked := d.Key
	key, err := s.named(ctx, p, anyType, asked)
	if err != nil {
		return d, err
	}
	d.Key = key
	d.By = p.String()
	err = s.Act(ctx, p, Decided(d), func(db held.Database) (err error) {
		ctx, cancel := context.WithTimeout(ctx, decideWithin)
		defer cancel()
		d, err = held.Decide(ctx, db, d)
		return err
	})
	if err != nil && d.Key != asked {
		err = unnamed{err, d.Key}
	}
	d.Key = asked
	return d, err
}

// Decided is a decision about a held key or a parked message, for the audit.
func Decided(d store.Decision) Change {
	words := map[store.Verb]string{
		store.VerbRetry: "Retry", store.VerbSkip: "Skip", store.VerbDead: "Dead-letter", store.VerbDeadAll: "Dead-letter all",
	}
	c := Change{Action: "Decide", On: words[d.Verb] + ": key " + d.Key + " of " + d.Relay, Path: HeldPath(d.Relay, d.Key), Reason: d.Reason, Key: d.Key}
	if d.Key == "" {
		c.On, c.Path = words[d.Verb]+": message "+d.MessageID+" of "+d.Relay, "/messages/"+escape(d.MessageID)
	}
	return c
}

// HeldPath is the path of the page of a held key.
func HeldPath(relay, key string) string { return "/held/" + escape(relay) + "/" + escape(key) }
