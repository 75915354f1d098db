// Package replay delivers messages again that a relay has delivered, e.g. because a broker has lost them, or because a consumer
// rebuilds its data:
//
//	r, err := replay.New(store).Start(ctx, replay.Plan{Relay: "to-nats", Filter: replay.Filter{Topic: "order.*", From: since}, By: "ann"})
//
// A replay is kept in the store and goes on step by step, in any process that calls Run, until it has reached the end of the log as it
// was when the replay began. It reads the log, so it reaches back as far as retention does; while it runs, retention keeps what it has
// still to read.
//
// # Order
//
// A step parks messages for the relay, in the order of the log. Within a key:
//
//   - Replayed messages are delivered in their order, and queued messages never overtake them: the key is held while replayed messages
//     of it are parked, and other messages of the key are queued after them.
//   - Between two steps, a relay delivers messages that were published meanwhile. A replayed message may then follow a newer message
//     of its key. A consumer that must not see this applies the replay to data of its own, or compares versions.
//   - A replay of one key is a single step: from its first message to its last, no other message of the key is delivered.
//
// # What receivers see
//
// A replayed message has the same ID, and the ID of the replay in a header (postrider.Message.Replay). An inbox handles it again only
// when told to; see inbox.ConsumerConfig.Replays.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/internal/drive"
	"github.com/postrider/postrider/store"
)

// Errors of replays.
var (
	// ErrNoReplay: no replay has this ID.
	ErrNoReplay = errors.New("no such replay")
	// ErrEnded: the replay has finished, failed or been cancelled.
	ErrEnded = errors.New("replay has ended")
	// ErrState: the replay is not in the state that the call needs: only a running one can be paused, only a paused one resumed.
	ErrState = errors.New("replay is in another state")
	// ErrNoRelay: the outbox knows no relay of this name, or it is a consumer's.
	ErrNoRelay = errors.New("no such relay")
	// ErrTooMany: the key has more messages than one step parks.
	ErrTooMany = errors.New("the key has too many messages for one step; narrow the times")
)

const (
	// MaxOfKey is how many messages a replay of one key may have.
	MaxOfKey = 10_000
	// MaxParked is how many parked messages a relay may have before its replays wait.
	MaxParked = 5_000
)

// Filter selects delivered messages; zero fields match all.
type Filter struct {
	Key    string `json:"key,omitempty"`
	Type   string `json:"type,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	// MessageID is the ID of one message.
	MessageID string `json:"message_id,omitempty"`
	// Topic is a pattern in which * stands for any text.
	Topic string `json:"topic,omitempty"`
	// From (inclusive) and To (exclusive) bound when messages were written, on the database's clock.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
}

// matches reports whether a replay to a relay that takes topics has a message.
func (f *Filter) matches(m *store.LoggedMessage, topics []string) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return m.Type != store.ErasedType && is(f.Key, m.Key) && is(f.Type, m.Type) && is(f.Tenant, m.Tenant) && is(f.MessageID, m.ID) &&
		(f.Topic == "" || store.MatchTopic(f.Topic, m.Topic)) && store.MatchTopics(topics, m.Topic) &&
		(f.From.IsZero() || !m.CreatedAt.Before(f.From)) && (f.To.IsZero() || m.CreatedAt.Before(f.To))
}

// Plan describes a replay to start.
type Plan struct {
	// Relay is the relay that delivers the messages again. Required.
	Relay string `json:"relay"`
	// Consumer is the only consumer that is to handle the messages again. Default: each consumer decides by its configuration.
	Consumer string `json:"consumer,omitempty"`
	Filter   Filter `json:"filter"`
	// Rate is the maximum number of messages per second, by all processes together; 0: as fast as the relay delivers them. A replay
	// of one key has none.
	Rate float64 `json:"rate,omitzero"`
	// By is who decided it and Reason why, for the record.
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// Validate reports the errors in a plan.
func (p *Plan) Validate() error {
	var errs []error
	if p.Relay == "" {
		errs = append(errs, errors.New("a replay needs the name of the relay that delivers the messages again"))
	}
	if p.Rate < 0 || math.IsNaN(p.Rate) || math.IsInf(p.Rate, 0) {
		errs = append(errs, fmt.Errorf("the rate is %v messages per second; give a number above 0, or 0 for no bound", p.Rate))
	}
	if p.Rate > 0 && p.Filter.Key != "" {
		errs = append(errs, errors.New("a replay of one key is a single step, so that no other message comes in between; leave out the rate"))
	}
	if !p.Filter.From.IsZero() && !p.Filter.To.IsZero() && !p.Filter.From.Before(p.Filter.To) {
		errs = append(errs, errors.New("the times select nothing: from must be before to"))
	}
	return errors.Join(errs...)
}

// State is the state of a replay.
type State string

// The states of a replay.
const (
	Running   State = "running"
	Paused    State = "paused"
	Finished  State = "finished"
	Cancelled State = "cancelled"
	Failed    State = "failed" // its steps failed drive.MaxFailures times in a row
	// Unreadable: what is stored is not a replay, or that of a newer version. Cause says why. It can only be cancelled.
	Unreadable State = "unreadable"
)

// Replay is a replay and its progress.
type Replay struct {
	// ID is a UUID. It is also the ID in the messages' header.
	ID string `json:"id"`
	Plan
	State     State     `json:"state"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// ChangedBy is who paused, resumed or cancelled it last.
	ChangedBy string `json:"changed_by,omitempty"`

	// Selected counts the messages that it found when it began, and Done those that it has parked for delivery. Skipped counts those that
	// the relay has not delivered yet, or has dead-lettered; Missing, once it has finished, those that were no longer in the log.
	Selected int64 `json:"selected"`
	Done     int64 `json:"done"`
	Skipped  int64 `json:"skipped"`
	Missing  int64 `json:"missing"`
	// Waiting: the replay waits until the relay has delivered parked messages: it has MaxParked of them, or the next message is parked by
	// a replay for another consumer.
	Waiting bool `json:"waiting,omitempty"`

	// Failures counts steps that failed in a row; Cause is the cause of the last failure.
	Failures int    `json:"failures,omitzero"`
	Cause    string `json:"cause,omitempty"`

	// Topics are those that the relay took when the replay began. Position is the sequence up to which the log was searched, UpTo the last to
	// search. NextAt is when the next step may be taken.
	Topics   []string  `json:"topics"`
	Position int64     `json:"position,string"`
	UpTo     int64     `json:"up_to,string"`
	NextAt   time.Time `json:"next_at,omitzero"`
}

// Ended reports whether the replay will take no more steps.
func (r *Replay) Ended() bool {
	return r.State == Finished || r.State == Cancelled || r.State == Failed
}

const (
	// stepLimit is how many messages one step parks, and scanLimit how many it reads to find them, in pages.
	stepLimit = 500
	scanLimit = 10_000
	pageLimit = 1_000
	// stepsPerSecond is how many steps per second a rate is spread over.
	stepsPerSecond = 4
	// fullWait is the wait while a relay has too many parked messages.
	fullWait = time.Second
	// longestWait limits the wait for an extremely low rate.
	longestWait = 100 * 365 * 24 * time.Hour
)

// limits returns how many messages the next step parks and reads.
func (r *Replay) limits() (park, scan int) {
	switch {
	case r.Filter.Key != "":
		return math.MaxInt, math.MaxInt
	case r.Rate == 0:
		return stepLimit, scanLimit
	}
	return max(1, int(min(stepLimit, r.Rate/stepsPerSecond))), scanLimit
}

// took records a step at now that parked n messages and skipped others.
func (r *Replay) took(n, skipped int, now time.Time) {
	r.Failures, r.Cause, r.NextAt, r.Waiting = 0, "", time.Time{}, false
	r.Done, r.Skipped = r.Done+int64(n), r.Skipped+int64(skipped)
	r.Selected = max(r.Selected, r.Done)
	if r.Rate > 0 {
		r.NextAt = now.Add(time.Duration(min(float64(n)/r.Rate*float64(time.Second), float64(longestWait))))
	}
	if r.Position >= r.UpTo {
		r.end(Finished, now)
		r.Missing = max(0, r.Selected-r.Done-r.Skipped)
	}
}

func (r *Replay) end(s State, now time.Time) {
	r.State, r.EndedAt, r.NextAt, r.Waiting = s, now, time.Time{}, false
}

// failed records that a step has failed, seen failures after the last one that did not. It reports whether anything has changed.
func (r *Replay) failed(seen int, cause string, now time.Time) bool {
	if r.State != Running || r.Failures != seen {
		return false
	}
	r.Failures++
	if r.Cause = cause; r.Failures >= drive.MaxFailures {
		r.end(Failed, now)
	} else {
		r.NextAt = now.Add(drive.Backoff(r.Failures))
	}
	return true
}

// change moves the replay to another state. Errors: ErrEnded, ErrState.
func (r *Replay) change(to State, by string, now time.Time) error {
	from := Running
	if to == Running {
		from = Paused
	}
	switch {
	case r.Ended():
		return fmt.Errorf("replay %s is %s: %w", r.ID, r.State, ErrEnded)
	case to == Cancelled:
		r.end(Cancelled, now)
	case r.State != from:
		return fmt.Errorf("replay %s is %s: %w", r.ID, r.State, ErrState)
	default:
		r.State = to
	}
	r.ChangedBy = cmp.Or(by, r.ChangedBy)
	return nil
}
