package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestReviewOfNothing: a review of an empty set is refused. Its limit would be 0, which means none.
func TestReviewOfNothing(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 0)
	for _, action := range []admin.ReviewAction{admin.ReviewRedrive, admin.ReviewDiscard} {
		if r, err := service.StartReview(t.Context(), operator, action, store.DeadFilter{}); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("%s: %+v, %v", action, r, err)
		}
	}
	addDead(t, s, 2)
	if _, err := service.StartReview(t.Context(), operator, admin.ReviewDiscard, store.DeadFilter{Relay: "other"}); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("of a relay without dead letters: %v", err)
	}
	// A record of an unlimited review, however it came about, is not carried out.
	r, err := service.StartReview(t.Context(), operator, admin.ReviewDiscard, store.DeadFilter{})
	must(t, err)
	r = rewrite(t, s, r.ID, true, func(r *admin.Review) { r.UpTo, r.Included = 0, 0 })
	if _, n, err := service.ExecuteReview(t.Context(), operator, r.ID, admin.Execution{Digest: r.Digest, Reason: "x"}); !errors.Is(err, admin.ErrNotFound) || n != 0 {
		t.Errorf("an unlimited review discards %d: %v", n, err)
	}
	left, err := deadletter.New(s).CountDead(t.Context(), store.DeadFilter{})
	if must(t, err); left != 2 {
		t.Errorf("%d are open, want 2", left)
	}
}

// TestDigestIsOfTheRecord: a record whose filter was changed is not carried out, although the digest in it was not.
func TestDigestIsOfTheRecord(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 2)
	r, err := service.StartReview(t.Context(), operator, admin.ReviewDiscard, store.DeadFilter{Numbers: []int64{1}})
	must(t, err)
	rewrite(t, s, r.ID, false, func(r *admin.Review) { r.Filter.Numbers = nil })
	x := admin.Execution{Digest: r.Digest, Reason: "x"}
	if _, n, err := service.ExecuteReview(t.Context(), operator, r.ID, x); !errors.Is(err, admin.ErrReviewChanged) || n != 0 {
		t.Errorf("%d discarded, %v", n, err)
	}
}

// TestDiscardIsOneTransaction: what a review discards is all in the entry of the audit, and more than one review may discard is
// refused beforehand.
func TestDiscardIsOneTransaction(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 2500)
	r, err := service.StartReview(t.Context(), operator, admin.ReviewDiscard, store.DeadFilter{})
	must(t, err)
	done, n, err := service.ExecuteReview(t.Context(), operator, r.ID, admin.Execution{Digest: r.Digest, Reason: "test data"})
	if must(t, err); n != 2500 || !done.Done {
		t.Errorf("%d were discarded: %+v", n, done)
	}
	if e := audit(t, s)[0]; e.Action != "ExecuteReview" || e.Count != 2500 {
		t.Errorf("on record: %+v", e)
	}
	addDead(t, s, admin.MaxDiscard+1)
	if _, err := service.StartReview(t.Context(), operator, admin.ReviewDiscard, store.DeadFilter{}); !errors.Is(err, admin.ErrInput) {
		t.Errorf("a discard of too many: %v", err)
	}
	if _, err := service.StartReview(t.Context(), operator, admin.ReviewRedrive, store.DeadFilter{}); err != nil {
		t.Errorf("a redrive of as many: %v", err)
	}
}

// TestDigestConfirmsNoKey: who gets a review by a hidden key gets all that its digest is of, except the key and a secret, so that guesses at
// the key are not confirmed.
func TestDigestConfirmsNoKey(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 1, admin.Rule{Type: "*", Keys: admin.Admin})
	var m *postrider.Message
	for l, err := range deadletter.New(s).ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
		must(t, err)
		m = l.Message
	}
	f := store.DeadFilter{Key: admin.HiddenKey(m.ID)}
	r, err := service.StartReview(t.Context(), operator, admin.ReviewDiscard, f)
	must(t, err)
	again, err := service.StartReview(t.Context(), operator, admin.ReviewDiscard, f)
	must(t, err)
	shown, err := service.ShowReview(t.Context(), operator, r.ID)
	if must(t, err); r.Digest == "" || again.Digest == r.Digest || shown.Digest != r.Digest {
		t.Errorf("digests: %q, %q when shown, %q of another review", r.Digest, shown.Digest, again.Digest)
	}
	done, n, err := service.ExecuteReview(t.Context(), operator, r.ID, admin.Execution{Digest: r.Digest, Reason: "test data"})
	if must(t, err); n != 1 || !done.Done {
		t.Errorf("%d discarded: %+v", n, done)
	}
	for _, r := range []admin.Review{r, shown, done} {
		guess := r
		if guess.Filter.Key = m.Key; admin.Digest(guess) == r.Digest {
			t.Error("a digest confirms the key")
		}
		if text, err := json.Marshal(r); err != nil || strings.Contains(string(text), "secret") {
			t.Errorf("shown: %s, %v", text, err)
		}
	}
}

// rewrite replaces the record of a review, with or without a new digest.
func rewrite(t *testing.T, s *memory.Store, id string, digest bool, change func(*admin.Review)) (r admin.Review) {
	t.Helper()
	must(t, s.Change(t.Context(), store.Operation{Method: "Test"}, func(w store.Writer) error {
		found, err := w.ListRecords(t.Context(), store.RecordQuery{Table: store.WorkRecords, Kind: "review", ID: id, Limit: 1})
		if err != nil || len(found) == 0 {
			return fmt.Errorf("%d reviews, %w", len(found), err)
		}
		if found[0].Body, err = admin.Rewritten(found[0].Body, change, digest); err != nil {
			return err
		}
		if err := json.Unmarshal(found[0].Body, &r); err != nil {
			return err
		}
		return w.PutRecord(t.Context(), found[0])
	}))
	return r
}

// TestTwoOperatorsRedriveTheSame: two people redrive the same 1,000 dead letters at the same moment. Each is sent once, both redrives are on
// record, and the overview shows both.
func TestTwoOperatorsRedriveTheSame(t *testing.T) {
	t.Parallel()
	const n = 1_000
	s, service := withDead(t, n)
	ctx := t.Context()
	people, ids := []admin.Principal{operator, boss}, make([]int64, 2)
	var both sync.WaitGroup
	for i, p := range people {
		both.Go(func() {
			r, err := service.StartReview(ctx, p, admin.ReviewRedrive, store.DeadFilter{})
			if err == nil {
				r, _, err = service.ExecuteReview(ctx, p, r.ID, admin.Execution{Digest: r.Digest, Reason: "fixed", Rate: 1_000_000})
			}
			if ids[i] = r.Redrive; err != nil || r.Included != n {
				t.Errorf("%s redrives %d: %v", p, r.Included, err)
			}
		})
	}
	both.Wait()
	o, err := service.Overview(ctx, viewer)
	if must(t, err); len(o.Running) != 2 {
		t.Errorf("the overview shows %d redrives", len(o.Running))
	}
	done := make([]store.Redrive, 2)
	for i, id := range ids {
		both.Go(func() {
			var err error
			if done[i], err = deadletter.New(s).Drive(ctx, id, nil); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	status, err := s.Status(ctx)
	if must(t, err); status.Relays[0].Parked.N != n || status.Relays[0].Dead.N != 0 || done[0].Done+done[1].Done != n {
		t.Errorf("%d are sent, and %d are dead letters; the redrives are %+v", status.Relays[0].Parked.N, status.Relays[0].Dead.N, done)
	}
	by := make(map[string]int)
	for _, e := range audit(t, s) {
		if e.Action == "ExecuteReview" && e.Result == admin.Done {
			by[e.By]++
		}
	}
	if by[operator.String()] != 1 || by[boss.String()] != 1 {
		t.Errorf("on record: %v", by)
	}
}

// TestReviewCountsWhatARedriveRefuses: a review leaves out what its execution does, by the limit of its own filter.
func TestReviewCountsWhatARedriveRefuses(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int64{0: 1, 1: 3, 2: 2, deadletter.DefaultMaxRedrives: 1, 4: 0, deadletter.Unbounded: 0} {
		s, service := withDead(t, 0)
		importRedriven(t, s, 0, 1, 2, 3)
		r, err := service.StartReview(t.Context(), operator, admin.ReviewRedrive, store.DeadFilter{MaxRedrives: limit})
		must(t, err)
		if r.Included != 4 || r.LeftOut != want {
			t.Errorf("limit %d: %d of %d are left out, want %d of 4", limit, r.LeftOut, r.Included, want)
		}
		r, _, err = service.ExecuteReview(t.Context(), operator, r.ID, admin.Execution{Digest: r.Digest, Reason: "receiver fixed"})
		must(t, err)
		done, _, err := deadletter.New(s).StepRedrive(t.Context(), r.Redrive, 0)
		if must(t, err); done.Refused != want || done.Done != 4-want {
			t.Errorf("limit %d: the redrive refuses %d and sends %d, want %d refused", limit, done.Refused, done.Done, want)
		}
	}
}

// importRedriven imports dead letters of messages that have been redriven as often as given.
func importRedriven(t *testing.T, s *memory.Store, redrives ...int) {
	t.Helper()
	var list []store.ArchivedDead
	for _, n := range redrives {
		id := postrider.NewID()
		list = append(list, store.ArchivedDead{DeadLetter: store.DeadLetter{
			Relay: "view", Reason: "rejected", State: store.DeadOpen, DiedAt: time.Now(), Redrives: n,
			Message: &postrider.Message{ID: id, Type: "order.placed", Topic: "orders", Source: "test", Time: time.Now(), Key: id, Payload: []byte("{}")},
		}})
	}
	_, err := deadletter.New(s).ImportDead(t.Context(), list)
	must(t, err)
}
