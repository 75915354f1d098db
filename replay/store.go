package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/drive"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// kind is that of the documents that hold replays.
const kind = "replay"

const purgeLimit = 100 // replays removed in one transaction

// Store is the replays of a store.
type Store struct{ records store.Records }

// New returns the replays of a store: of store/postgres, store/mysql, store/sqlite or store/memory.
func New(r store.Records) Store { return Store{r} }

// Found is what a plan selects.
type Found struct {
	// Messages counts those that were delivered, Undelivered those that the relay has not delivered yet or has dead-lettered: a replay
	// skips them.
	Messages    int64 `json:"messages"`
	Undelivered int64 `json:"undelivered"`
	// first and last are the sequences of the first and the last message, topics those that the relay takes.
	first, last int64
	topics      []string
}

// Count counts what a replay would deliver again. It reads the log, without payloads. Errors: those of Plan.Validate; ErrNoRelay.
func (s Store) Count(ctx context.Context, p Plan) (f Found, err error) {
	if err := p.Validate(); err != nil {
		return f, err
	}
	op := store.Operation{Method: "CountReplay", Doing: "count the messages of a replay"}
	var log store.RelayLog
	err = s.records.View(ctx, op, func(r store.Reader) (err error) {
		log, err = r.RelayLog(ctx, p.Relay)
		return err
	})
	if err != nil {
		return f, err
	}
	if f.topics = log.Topics; f.topics == nil {
		return f, fmt.Errorf("%w: %q has not run on this outbox, or is a consumer", ErrNoRelay, p.Relay)
	}
	for after := int64(0); after < log.Position; {
		var page store.LogPage
		err := s.records.View(ctx, op, func(r store.Reader) (err error) {
			page, err = r.Logged(ctx, store.LogQuery{Relay: p.Relay, After: after, UpTo: log.Position, Limit: pageLimit})
			return err
		})
		if err != nil {
			return f, err
		}
		after = page.Last
		f.add(&p, page.Messages)
	}
	return f, nil
}

func (f *Found) add(p *Plan, messages []store.LoggedMessage) {
	for i := range messages {
		m := &messages[i]
		switch {
		case !p.Filter.matches(m, f.topics):
			continue
		case !m.Delivered:
			f.Undelivered++
		default:
			f.Messages++
		}
		if f.first == 0 {
			f.first = m.Sequence
		}
		f.last = m.Sequence
	}
}

// Start records a replay of what the relay has delivered until now. It parks nothing yet. Errors: those of Count; ErrTooMany.
func (s Store) Start(ctx context.Context, p Plan) (Replay, error) {
	found, err := s.Count(ctx, p)
	if err != nil {
		return Replay{}, err
	}
	if p.Filter.Key != "" && found.Messages > MaxOfKey {
		return Replay{}, fmt.Errorf("%w: it has %d, and may have %d", ErrTooMany, found.Messages, MaxOfKey)
	}
	p.By, p.Reason = stored.Text(p.By), stored.Text(p.Reason)
	r := Replay{
		ID: postrider.NewID(), Plan: p, State: Running, Selected: found.Messages, Topics: found.topics,
		Position: max(0, found.first-1), UpTo: found.last,
	}
	op := store.Operation{Method: "StartReplay", Doing: "start a replay"}
	err = s.records.Change(ctx, op, func(w store.Writer) (err error) {
		if r.StartedAt, err = w.Now(ctx); err != nil {
			return err
		}
		return r.save(ctx, w, 0)
	})
	if err == nil {
		s.records.Wake()
	}
	return r, err
}

// save stores a replay whose record has a revision, 0 for a new one.
func (r *Replay) save(ctx context.Context, w store.Writer, rev int64) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return w.PutRecord(ctx, store.Record{Table: store.WorkRecords, Kind: kind, ID: r.ID, Rev: rev, Body: body})
}

func parse(d store.Record, err error) (Replay, error) {
	if errors.Is(err, store.ErrNoRecord) {
		return Replay{}, fmt.Errorf("replay %s: %w", d.ID, ErrNoReplay)
	}
	if err != nil {
		return Replay{}, err
	}
	var r Replay
	if err := json.Unmarshal(d.Body, &r); err != nil {
		return Replay{ID: d.ID, State: Unreadable, Cause: err.Error()}, nil
	}
	return r, nil
}

// update locks a replay, and stores it if change reports a change.
func (s Store) update(ctx context.Context, op store.Operation, id string, change func(w store.Writer, r *Replay, now time.Time) (bool, error)) (r Replay, err error) {
	err = s.records.Change(ctx, op, func(w store.Writer) error {
		d, err := w.LockRecord(ctx, store.WorkRecords, kind, id)
		d.ID = id
		if r, err = parse(d, err); err != nil {
			return err
		}
		now, err := w.Now(ctx)
		if err != nil {
			return err
		}
		changed, err := change(w, &r, now)
		if err != nil || !changed {
			return err
		}
		return r.save(ctx, w, d.Rev)
	})
	return r, err
}

// Step takes the next step of a running replay, in one transaction: it parks up to 500 messages, or all of a key, and stores the
// progress. It returns the replay and the time until its rate allows the next step; if that time has not come, it does nothing. Any
// number of processes may call it: each message is parked once. Errors: ErrNoReplay.
func (s Store) Step(ctx context.Context, id string) (r Replay, wait time.Duration, err error) {
	for try := 1; ; try++ {
		r, wait, err = s.stepOnce(ctx, id)
		if try == overtakenTries || !errors.Is(err, errOvertaken) {
			return r, wait, err
		}
	}
}

func (s Store) stepOnce(ctx context.Context, id string) (r Replay, wait time.Duration, err error) {
	before := int64(0)
	op := store.Operation{Method: "StepReplay", Doing: "step of a replay"}
	r, err = s.update(ctx, op, id, func(w store.Writer, r *Replay, now time.Time) (bool, error) {
		before = r.Done
		if wait = r.NextAt.Sub(now); r.State != Running || wait > 0 {
			return false, nil
		}
		if err := step(ctx, w, r, now); err != nil {
			return false, err
		}
		wait = r.NextAt.Sub(now)
		return true, nil
	})
	if err == nil && r.Done > before {
		s.records.Wake()
	}
	return r, max(wait, 0), err
}

func step(ctx context.Context, w store.Writer, r *Replay, now time.Time) error {
	full, err := w.CountAllParked(ctx, r.Relay, MaxParked)
	if err != nil {
		return err
	}
	if full >= MaxParked {
		r.wait(now)
		return nil
	}
	before := r.Position
	chosen, skipped, blocked, err := choose(ctx, w, r)
	if err != nil {
		return err
	}
	if blocked && (len(chosen) == 0 || r.Filter.Key != "") {
		r.Position = before
		r.wait(now)
		return nil
	}
	if len(chosen) > 0 {
		headers := map[string]string{postrider.HeaderReplay: r.ID}
		if r.Consumer != "" {
			headers[postrider.HeaderReplayFor] = r.Consumer
		}
		n, err := w.ParkReplayed(ctx, store.ReplayedMessages{
			Relay: r.Relay, Messages: chosen, Headers: headers, Entry: fmt.Sprintf("replayed by %s (replay %s)", r.By, r.ID),
		})
		if err == nil && n < len(chosen) {
			err = errOvertaken
		}
		if err != nil {
			return err
		}
	}
	r.took(len(chosen), skipped, now)
	return nil
}

// choose reads on in the log and returns the messages to park in this step, and how many it leaves out. It is blocked by a message that
// waits for a delivery to another consumer, and stops before it.
func choose(ctx context.Context, w store.Writer, r *Replay) (chosen []store.LoggedMessage, skipped int, blocked bool, err error) {
	var o others
	park, scan := r.limits()
	for read := 0; r.Position < r.UpTo && read < scan && len(chosen) < park; {
		page, err := w.Logged(ctx, store.LogQuery{Relay: r.Relay, After: r.Position, UpTo: r.UpTo, Limit: pageLimit})
		if err != nil {
			return nil, 0, false, err
		}
		r.Position, read = page.Last, read+pageLimit
		for i := range page.Messages {
			switch m := &page.Messages[i]; {
			case !r.Filter.matches(m, r.Topics):
			case !m.Delivered:
				if blocked, err = o.parked(ctx, w, r, m); blocked || err != nil {
					r.Position = m.Sequence - 1
					return chosen, skipped, blocked, err
				}
				skipped++
			default:
				chosen = append(chosen, *m)
			}
			if len(chosen) == park {
				r.Position = page.Messages[i].Sequence
				break
			}
		}
	}
	return chosen, skipped, false, nil
}

// Pause stops a running replay until Resume. What it has parked is delivered. Errors: ErrNoReplay, ErrEnded, ErrState.
func (s Store) Pause(ctx context.Context, id, by string) (Replay, error) {
	return s.changeTo(ctx, Paused, id, by)
}

// Resume lets a paused replay go on. Errors: ErrNoReplay, ErrEnded, ErrState.
func (s Store) Resume(ctx context.Context, id, by string) (Replay, error) {
	r, err := s.changeTo(ctx, Running, id, by)
	if err == nil {
		s.records.Wake()
	}
	return r, err
}

// Cancel ends a replay. What it has parked is delivered. Errors: ErrNoReplay, ErrEnded.
func (s Store) Cancel(ctx context.Context, id, by string) (Replay, error) {
	return s.changeTo(ctx, Cancelled, id, by)
}

func (s Store) changeTo(ctx context.Context, to State, id, by string) (Replay, error) {
	op := store.Operation{Method: "ChangeReplay", Doing: "change a replay"}
	return s.update(ctx, op, id, func(_ store.Writer, r *Replay, now time.Time) (bool, error) {
		return true, r.change(to, stored.Text(by), now)
	})
}

// fail records that a step has failed.
func (s Store) fail(ctx context.Context, o drive.Operation[string], cause string) (failures int, ended bool, err error) {
	op := store.Operation{Method: "FailReplay", Doing: "record the failure of a replay"}
	r, err := s.update(ctx, op, o.ID, func(_ store.Writer, r *Replay, now time.Time) (bool, error) {
		return r.failed(o.Failures, stored.Text(cause), now), nil
	})
	return r.Failures, r.State == Failed, err
}

// Show returns one replay. Errors: ErrNoReplay.
func (s Store) Show(ctx context.Context, id string) (r Replay, err error) {
	op := store.Operation{Method: "ShowReplay", Doing: "show a replay"}
	err = s.records.View(ctx, op, func(read store.Reader) error {
		d, err := stored.FindRecord(ctx, read, kind, id)
		d.ID = id
		r, err = parse(d, err)
		return err
	})
	return r, err
}

// List yields all replays, newest first.
func (s Store) List(ctx context.Context) iter.Seq2[Replay, error] {
	return func(yield func(Replay, error) bool) {
		op := store.Operation{Method: "ListReplays", Doing: "list replays"}
		for d, err := range stored.ListRecords(ctx, s.records, op, kind) {
			if r, err := parse(d, err); !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// Purge removes replays that ended at least this long ago, oldest first, up to 100, and returns how many; none for 0.
func (s Store) Purge(ctx context.Context, endedFor time.Duration) (n int, err error) {
	if endedFor <= 0 {
		return 0, nil
	}
	var ended []Replay
	for r, err := range s.List(ctx) {
		if err != nil {
			return 0, err
		}
		if r.Ended() {
			ended = append(ended, r)
		}
	}
	slices.Reverse(ended)
	ended = ended[:min(len(ended), purgeLimit)]
	if len(ended) == 0 {
		return 0, nil
	}
	op := store.Operation{Method: "PurgeReplays", Doing: "purge replays"}
	err = s.records.Change(ctx, op, func(w store.Writer) error {
		n = 0
		now, err := w.Now(ctx)
		for _, r := range ended {
			if err == nil && now.Sub(r.EndedAt) >= endedFor {
				n++
				err = w.RemoveRecord(ctx, store.WorkRecords, kind, r.ID)
			}
		}
		return err
	})
	return n, err
}

// KeepFrom returns the first sequence that a running or paused replay has still to read, 0 if there is none: retention keeps the log
// from there on (store.Retention.KeepFrom). For a replay that is unreadable, that is the whole log, until it is cancelled.
func (s Store) KeepFrom(ctx context.Context) (int64, error) {
	first := int64(math.MaxInt64)
	for r, err := range s.List(ctx) {
		if err != nil {
			return 0, err
		}
		if !r.Ended() {
			first = min(first, r.Position+1)
		}
	}
	if first == math.MaxInt64 {
		return 0, nil
	}
	return first, nil
}
