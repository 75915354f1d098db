package replay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// A relay parks a message once. What another replay has parked for another consumer does not reach the consumer of this one, so a replay
// waits until that is delivered, and then parks it again.

// errOvertaken: a message was no longer delivered when it was to be parked, e.g. because another replay has parked it.
var errOvertaken = errors.New("a message was parked, or dead-lettered, since the step has read the log")

// overtakenTries is how often a step is tried again because of errOvertaken.
const overtakenTries = 5

// others are the replays for other consumers of a relay, as far as a step has asked for them.
type others struct {
	found []Replay
	read  bool
}

// parked reports whether a message that the relay has not delivered is parked, and may be so by a replay for another consumer.
func (o *others) parked(ctx context.Context, w store.Writer, r *Replay, m *store.LoggedMessage) (bool, error) {
	if !o.read {
		if err := o.find(ctx, w, r); err != nil {
			return false, err
		}
	}
	if !slices.ContainsFunc(o.found, func(other Replay) bool {
		return m.Sequence <= other.Position && other.Filter.matches(m, other.Topics)
	}) {
		return false, nil
	}
	parked, err := w.ParkedByID(ctx, r.Relay, m.ID)
	return slices.ContainsFunc(parked, func(p store.ParkedInfo) bool { return p.Message.Sequence == m.Sequence }), err
}

// find finds them, those that have ended included: what they have parked may still be there.
func (o *others) find(ctx context.Context, w store.Writer, r *Replay) error {
	for d, err := range stored.AllRecords(ctx, w, kind) {
		if err != nil {
			return err
		}
		other, err := parse(d, nil)
		if err == nil && other.Relay == r.Relay && other.Consumer != r.Consumer {
			o.found = append(o.found, other)
		}
	}
	o.read = true
	return nil
}

// wait lets a replay wait for parked messages of its relay.
func (r *Replay) wait(now time.Time) { r.Waiting, r.NextAt = true, now.Add(fullWait) }
