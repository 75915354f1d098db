package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// paceRetry is the wait after another redrive of the same relay has made a step at the same time.
const paceRetry = 100 * time.Millisecond

// pace says how fast all redrives of a relay together may be.
type pace struct {
	Rate float64 `json:"rate"`
	// NextAt is when the next dead letter may be sent back.
	NextAt time.Time `json:"next_at,omitzero"`

	rec store.Record
}

// LimitRate sets how many dead letters per second all redrives of a relay or consumer together send back at most, in whichever processes
// they are driven; 0 removes the limit. A redrive that names no relay keeps to the lowest limit of all relays.
func (s Store) LimitRate(ctx context.Context, relay string, perSecond float64) error {
	if perSecond < 0 || math.IsNaN(perSecond) || math.IsInf(perSecond, 0) {
		return fmt.Errorf("the rate of redrives of %s is %v per second; give a number above 0, or 0 for no limit", relay, perSecond)
	}
	op := store.Operation{Method: "LimitRate", Doing: "limit the rate of redrives of " + relay}
	for {
		err := s.change(ctx, op, store.DeadFilter{}, func(w store.Writer) error {
			found, err := findPaces(ctx, w, relay)
			if err != nil {
				return err
			}
			p := &pace{rec: store.Record{Table: stored.RedriveRates.Table, Kind: stored.RedriveRates.Kind, ID: relay}}
			if len(found) > 0 {
				p = found[0]
			}
			if p.Rate == perSecond {
				return nil
			}
			p.Rate = perSecond
			return p.put(ctx, w)
		})
		if !errors.Is(err, store.ErrRecordChanged) { // by another process that starts
			return err
		}
	}
}

// findPaces reads the limit of a relay, or for "" those of all relays.
func findPaces(ctx context.Context, r store.Reader, relay string) (out []*pace, err error) {
	q := stored.RedriveRates
	q.ID = relay
	found, err := r.ListRecords(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, rec := range found {
		p := &pace{rec: rec}
		if err := json.Unmarshal(rec.Body, p); err != nil {
			return nil, fmt.Errorf("rate of redrives of %s: %w", rec.ID, err)
		}
		out = append(out, p)
	}
	return out, nil
}

func (p *pace) put(ctx context.Context, w store.Writer) (err error) {
	if p.rec.Body, err = json.Marshal(p); err != nil {
		return err
	}
	return w.PutRecord(ctx, p.rec)
}

// paces are the limits that a redrive observes.
type paces []*pace

// next is when they allow a step.
func (all paces) next() (at time.Time) {
	for _, p := range all {
		if p.Rate > 0 && p.NextAt.After(at) {
			at = p.NextAt
		}
	}
	return at
}

// batch is how many dead letters the next step may send back, at most limit.
func (all paces) batch(limit int) int {
	for _, p := range all {
		limit = batch(store.Redrive{Rate: p.Rate}, limit)
	}
	return limit
}

// spend records that dead letters were sent back.
func (all paces) spend(ctx context.Context, w store.Writer, sent int64, now time.Time) error {
	for _, p := range all {
		if p.Rate == 0 || sent == 0 {
			continue
		}
		p.NextAt = now.Add(time.Duration(min(float64(sent)/p.Rate*float64(time.Second), float64(longestWait))))
		if err := p.put(ctx, w); err != nil {
			return err
		}
	}
	return nil
}
