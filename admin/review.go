package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Errors of reviews.
var (
	// ErrNoReview: there is no such review, or its time is over.
	ErrNoReview = errors.New("no such review; it may have expired. Review again")
	// ErrReviewChanged: what is to be carried out is not what was reviewed, or it was carried out before.
	ErrReviewChanged = errors.New("this review has been carried out already, or is not the one that was shown. Review again")
)

// ReviewAction is what a review is about.
type ReviewAction string

// The actions of reviews.
const (
	ReviewRedrive ReviewAction = "redrive"
	ReviewDiscard ReviewAction = "discard"
)

// Review is an action on many dead letters that is prepared and not carried out yet. It concerns those that match Filter, are open
// and have a number up to UpTo.
type Review struct {
	ID     string           `json:"id"`
	Action ReviewAction     `json:"action"`
	Filter store.DeadFilter `json:"filter"`
	UpTo   int64            `json:"up_to"`
	// By is who prepared it, Issuer, Subject and Via are those of the principal.
	By      string `json:"by"`
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	Via     string `json:"via,omitempty"`
	// AgentReason is the reason that an agent gave, if one prepared it. A person approves by carrying it out.
	AgentReason string    `json:"agent_reason,omitempty"`
	Expires     time.Time `json:"expires"`
	// Digest is that of what is carried out; carrying it out names it.
	Digest string `json:"digest"`
	// Included counts the dead letters concerned, LeftOut those that were redriven too often.
	Included int64 `json:"included"`
	LeftOut  int64 `json:"left_out"`
	// Keys counts the keys of the first 1,000 of them; LeftOut too counts among these.
	Keys int `json:"keys"`
	// Newer counts those of the keys of which a newer message has been delivered; NewerMore: there may be more, the log was not read to its
	// end.
	Newer     int  `json:"newer_delivered,omitempty"`
	NewerMore bool `json:"newer_delivered_at_least,omitempty"`
	// Newest is when the newest of them was dead-lettered, Now the time of the review.
	Newest time.Time `json:"newest,omitzero"`
	Now    time.Time `json:"now"`
	// Causes are the groups concerned, up to 20.
	Causes []store.CauseCount `json:"causes"`
	// Running are other redrives in progress.
	Running []int64 `json:"running,omitempty"`
	// Redrive is the redrive that carried it out, Done says that it was carried out.
	Redrive int64 `json:"redrive,omitempty"`
	Done    bool  `json:"done,omitempty"`

	// secret is part of what Digest is of, so that nobody finds a hidden key by trying digests. It is stored, and never shown.
	secret string
}

// storedReview is a review in its record.
type storedReview struct {
	Review
	Secret string `json:"secret,omitempty"`
}

func (r Review) record() ([]byte, error) {
	return json.Marshal(storedReview{r, r.secret}) //nolint:gosec // the store keeps the secret that digests are made with
}

func readReview(body []byte) (Review, error) {
	var v storedReview
	err := json.Unmarshal(body, &v)
	v.Review.secret = v.Secret
	return v.Review, err
}

const (
	reviewKind = "review"
	// reviewFor is how long a review can be carried out.
	reviewFor = 20 * time.Minute
	// reviewCauses is how many groups a review shows.
	reviewCauses = 20
	// maxDiscard is how many dead letters one review discards at most.
	maxDiscard = 10_000
)

// StillHappening reports whether another of these dead letters is likely to follow.
func (r Review) StillHappening() bool {
	return !r.Newest.IsZero() && r.Now.Sub(r.Newest) < stillHappening
}

// MaxRedrives is how many redrives a message must have had to be left out.
func (r Review) MaxRedrives() int { return cmp.Or(r.Filter.MaxRedrives, deadletter.DefaultMaxRedrives) }

// digest is that of what a review carries out, and of its secret.
func (r *Review) digest() (string, error) {
	text, err := json.Marshal(struct { //nolint:gosec // only its digest leaves this function
		Action ReviewAction
		Filter store.DeadFilter
		UpTo   int64
		Secret string
	}{r.Action, r.Filter, r.UpTo, r.secret})
	if err != nil {
		return "", fmt.Errorf("digest of a review: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// StartReview prepares an action on the open dead letters that match a filter. An agent uses Plan.
func (s *Service) StartReview(ctx context.Context, p Principal, action ReviewAction, f store.DeadFilter) (r Review, err error) {
	if err := s.allow(ctx, p, "StartReview", string(action)); err != nil {
		return r, err
	}
	r, err = s.startReview(ctx, p, action, f, "")
	return s.shownReview(p, r), err
}

// maxReason is how long a reason of an agent is at most, in bytes.
const maxReason = 1000

// Plan prepares a redrive for a person, who carries it out in the web UI or does not; the agent's reason is shown there. It is on record.
func (s *Service) Plan(ctx context.Context, p Principal, f store.DeadFilter, reason string) (r Review, err error) {
	if err := s.allow(ctx, p, "Plan", "redrive"); err != nil {
		return r, err
	}
	if err := required(&reason); err != nil {
		return r, err
	}
	if len(reason) > maxReason {
		return r, fmt.Errorf("%w: the reason has %d bytes, more than %d", ErrInput, len(reason), maxReason)
	}
	r, err = s.startReview(ctx, p, ReviewRedrive, f, reason)
	return s.shownReview(p, r), err
}

func (s *Service) startReview(ctx context.Context, p Principal, action ReviewAction, f store.DeadFilter, agentReason string) (r Review, err error) {
	if action != ReviewRedrive && action != ReviewDiscard {
		return r, fmt.Errorf("%w: a review is about %s or %s, not about %q", ErrInput, ReviewRedrive, ReviewDiscard, action)
	}
	if f, err = s.searchable(ctx, p, f); err != nil {
		return r, err
	}
	f.State = ""
	if err := (deadletter.Plan{Filter: f}).Validate(); err != nil {
		return r, fmt.Errorf("%w: %w", ErrInput, err)
	}
	r = Review{
		ID: postrider.NewID(), Action: action, Filter: f, By: clean(p.String()), Issuer: clean(p.Issuer), Subject: clean(p.Subject), Via: p.Via,
		AgentReason: clean(agentReason), secret: rand.Text(),
	}
	causes, err := s.dead().CountCauses(ctx, f, reviewCauses)
	if err != nil {
		return r, err
	}
	r.Causes = causes.Causes
	for i := range r.Causes {
		r.Causes[i].Cause = store.NormalizeCause(r.Causes[i].Cause)
	}
	if err := s.inspect(ctx, &r); err != nil {
		return r, err
	}
	for running, err := range s.dead().ListRedrives(ctx, store.RedriveRunning) {
		if err != nil {
			return r, err
		}
		r.Running = append(r.Running, running.ID)
	}
	op := store.Operation{Method: "StartReview", Doing: "prepare a review"}
	err = s.store.Change(ctx, op, func(w store.Writer) error {
		if err := r.count(ctx, w); err != nil {
			return err
		}
		if err := r.limited(); err != nil {
			return err
		}
		body, err := r.record()
		if err != nil {
			return err
		}
		if agentReason != "" {
			e := newEntry(p, "Plan", "redrive "+plural(r.Included, "dead letter", "dead letters"), "/reviews/"+r.ID, agentReason)
			if err := e.put(ctx, w); err != nil {
				return err
			}
		}
		return w.PutRecord(ctx, store.Record{Table: store.WorkRecords, Kind: reviewKind, ID: r.ID, Expires: r.Expires, Body: body})
	})
	return r, err
}

// count fixes what the review concerns.
func (r *Review) count(ctx context.Context, w store.Writer) (err error) {
	if r.Now, err = w.Now(ctx); err != nil {
		return err
	}
	r.Expires = r.Now.Add(reviewFor)
	if r.UpTo, err = stored.NewestDead(ctx, w); err != nil {
		return err
	}
	q := store.DeadQuery{DeadFilter: r.Filter, UpTo: max(r.UpTo, 1)}
	if r.Included, err = w.CountDead(ctx, q); err != nil {
		return err
	}
	for _, c := range r.Causes {
		if r.Newest.Before(c.Newest) {
			r.Newest = c.Newest
		}
	}
	r.Digest, err = r.digest()
	return err
}

// limited returns an error unless the set of the review has a limit: an UpTo of 0 means none to the store.
func (r *Review) limited() error {
	switch {
	case r.Included <= 0 || r.UpTo <= 0:
		return fmt.Errorf("%w: no open dead letters match", ErrNotFound)
	case r.Action == ReviewDiscard && r.Included > maxDiscard:
		return fmt.Errorf("%w: %d dead letters match, and one review discards up to %d; narrow the filter", ErrInput, r.Included, maxDiscard)
	}
	return nil
}

// ShowReview returns a review. Errors: ErrNoReview.
func (s *Service) ShowReview(ctx context.Context, p Principal, id string) (r Review, err error) {
	if err := s.allow(ctx, p, "ShowReview", ""); err != nil {
		return r, err
	}
	err = s.store.View(ctx, store.Operation{Method: "ShowReview", Doing: "show a review"}, func(read store.Reader) error {
		r, _, err = findReview(ctx, read, id)
		return err
	})
	return s.shownReview(p, r), err
}

// shownReview hides the secret of a review, and what its filter names. Its digest stays that of what is carried out.
func (s *Service) shownReview(p Principal, r Review) Review {
	r.Filter, r.secret = s.filtered(p, r.Filter), ""
	return r
}

func findReview(ctx context.Context, r store.Reader, id string) (v Review, rec store.Record, err error) {
	if id == "" {
		return v, rec, ErrNoReview
	}
	found, err := r.ListRecords(ctx, store.RecordQuery{Table: store.WorkRecords, Kind: reviewKind, ID: id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = ErrNoReview
	}
	if err != nil {
		return v, rec, err
	}
	rec = found[0]
	v, err = readReview(rec.Body)
	return v, rec, err
}

// Execution says how a review is carried out.
type Execution struct {
	// Digest is that of the review as it was shown.
	Digest string `json:"digest"`
	Reason string `json:"reason"`
	// Rate is the maximum number of messages that a redrive sends per second; 0 means no limit.
	Rate float64 `json:"rate,omitempty"`
	// First sends one message, and the others when it was delivered; StopAt is the share of first attempts, of 20 or more, above which
	// the redrive stops: 0.05 is 5%, 0 never. A stopped redrive waits for ContinueRedrive or CancelRedrive.
	First  bool    `json:"first,omitempty"`
	StopAt float64 `json:"stop_at,omitempty"`
}

// ExecuteReview carries out a review, once. It returns the review with the redrive that was started, and how many dead letters were
// discarded. Errors: ErrReason, ErrInput, ErrNoReview, ErrReviewChanged.
func (s *Service) ExecuteReview(ctx context.Context, p Principal, id string, x Execution) (r Review, discarded int, err error) {
	if err := s.allow(ctx, p, "ExecuteReview", "review "+id); err != nil {
		return r, 0, err
	}
	if err := required(&x.Reason); err != nil {
		return r, 0, err
	}
	if err := (deadletter.Plan{Rate: x.Rate, StopAt: x.StopAt}).Validate(); err != nil {
		return r, 0, fmt.Errorf("%w: %w", ErrInput, err)
	}
	err = s.store.View(ctx, store.Operation{Method: "ShowReview", Doing: "show a review"}, func(read store.Reader) error {
		r, _, err = findReview(ctx, read, id)
		return err
	})
	if err != nil {
		return r, 0, err
	}
	rec := s.reviewed(p, &r, x)
	err = s.act(ctx, rec, func(records store.Records) error {
		dead := deadletter.New(records)
		if r.Action == ReviewRedrive {
			_, err := dead.StartRedrive(ctx, deadletter.Plan{
				Filter: r.Filter, Rate: x.Rate, First: x.First, StopAt: x.StopAt, By: p.String(), UpTo: r.UpTo,
			})
			return err
		}
		discarded, err = dead.DiscardUpTo(ctx, r.Filter, r.UpTo, p.String(), x.Reason, maxDiscard)
		return err
	})
	return s.shownReview(p, r), discarded, err
}

// approvable returns an error unless the principal may carry out what was prepared: what an agent asked for, somebody else who is
// signed in to the web UI.
func (r *Review) approvable(p Principal) error {
	if r.Via == ViaAgent && (p.Via != ViaBrowser || p.Issuer == r.Issuer && p.Subject == r.Subject) {
		return fmt.Errorf("%w: an agent asked for it", ErrAgent)
	}
	return nil
}

// reviewed returns records that check the review, and mark it as carried out, in the transaction of the first change.
func (s *Service) reviewed(p Principal, r *Review, x Execution) *recorded {
	on := plural(r.Included, "dead letter", "dead letters")
	if len(r.Causes) == 1 {
		on += " of " + r.Causes[0].Relay
	}
	action, path := Action("ExecuteReview"), ""
	if r.Action == ReviewDiscard {
		on, path = "discard "+on, "/dead?state=discarded"
	}
	rec := &recorded{entry: newEntry(p, action, on, path, x.Reason)}
	var current Review
	var stored store.Record
	rec.check = func(ctx context.Context, w store.Writer) (err error) {
		if current, stored, err = findReview(ctx, w, r.ID); err != nil {
			return err
		}
		if err := current.approvable(p); err != nil {
			return err
		}
		for _, v := range []*Review{r, &current} { // what is carried out, and what is on record
			digest, err := v.digest()
			if err != nil {
				return err
			}
			if v.Done || x.Digest != digest {
				return ErrReviewChanged
			}
		}
		return current.limited()
	}
	rec.complete = func(ctx context.Context, w store.Writer, n *noted) (err error) {
		current.Done, current.Redrive = true, n.redrive.ID
		if stored.Body, err = current.record(); err != nil {
			return err
		}
		err = w.PutRecord(ctx, stored)
		if errors.Is(err, store.ErrRecordChanged) {
			err = ErrReviewChanged
		}
		if err == nil {
			*r = current
		}
		return err
	}
	return rec
}
