package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

const (
	// fresh is how long a reading of the status serves everybody who asks.
	fresh = time.Second
	// sampleEvery is the time between two samples of the history, samples how many are kept: an hour.
	sampleEvery = 5 * time.Second
	samples     = 720
	// rateOver is the time over which a rate is measured, failingOver that of failed attempts.
	rateOver    = time.Minute
	failingOver = 5 * time.Minute
)

// Reading is the status at one time. Number rises by one with each.
type Reading struct {
	Number int64
	At     time.Time
	store.Status
}

// sample is what the history keeps of a relay.
type sample struct {
	at                time.Time
	age               time.Duration
	delivered, failed int64
}

// history is the last reading, and samples of the ones before, by relay. It belongs to this process.
type history struct {
	last    Reading
	sampled time.Time
	began   time.Time
	relays  map[string][]sample
	// busy is closed when the reading that is under way has ended; nil without one.
	busy chan struct{}
	// stale: the last reading is older than a change that whoever made it wants to see.
	stale bool
}

// reading returns a status that is at most a second old. However many ask, one of them reads it.
func (s *Service) reading(ctx context.Context) (Reading, error) {
	for {
		s.mu.Lock()
		h := &s.history
		if time.Since(h.last.At) < fresh && !h.stale {
			defer s.mu.Unlock()
			return h.last, nil
		}
		if busy := h.busy; busy != nil {
			s.mu.Unlock()
			select {
			case <-busy:
				continue
			case <-ctx.Done():
				return Reading{}, ctx.Err()
			}
		}
		busy := make(chan struct{})
		h.busy, h.stale = busy, false
		s.mu.Unlock()
		status, err := s.store.Status(ctx)
		s.mu.Lock()
		h.busy = nil
		close(busy)
		if err == nil {
			h.add(status, time.Now())
		}
		last := h.last
		s.mu.Unlock()
		if err != nil {
			return Reading{}, fmt.Errorf("read the status: %w", err)
		}
		return last, nil
	}
}

// changed has the next reading show a change.
func (s *Service) changed() {
	s.changes.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.stale = true
}

// add makes a status the last reading, and samples it if the last sample is old enough.
func (h *history) add(status store.Status, at time.Time) {
	h.last = Reading{h.last.Number + 1, at, status}
	if at.Sub(h.sampled) < sampleEvery-sampleEvery/10 {
		return
	}
	if h.relays == nil {
		h.began, h.relays = at, make(map[string][]sample)
	}
	h.sampled = at
	for i := range status.Relays {
		r := &status.Relays[i]
		kept := append(h.relays[r.Name], sample{at, oldest(r), r.Delivered, r.Failed})
		h.relays[r.Name] = slices.Delete(kept, 0, max(0, len(kept)-samples))
	}
}

// oldest is the age of the oldest undelivered message. One whose delivery time has not come is not late.
func oldest(r *store.RelayStatus) time.Duration { return r.OldestUndelivered }

// over returns what was delivered and failed since the sample nearest to d ago, and how long that is; 0 if nothing was sampled yet.
func (h *history) over(r *store.RelayStatus, d time.Duration) (delivered, failed int64, took time.Duration) {
	now := h.last.At
	for _, s := range h.relays[r.Name] {
		if took = now.Sub(s.at); took <= d+sampleEvery {
			return max(0, r.Delivered-s.delivered), max(0, r.Failed-s.failed), took
		}
	}
	return 0, 0, 0
}

// Point is one point of a chart.
type Point struct {
	At    time.Time     `json:"at"`
	Value time.Duration `json:"-"`
}

// points returns the ages of a relay's samples, reduced to n points, each the maximum of its samples.
func (h *history) points(name string, n int) (out []Point) {
	all := h.relays[name]
	for i := range min(n, len(all)) {
		from, to := i*len(all)/min(n, len(all)), (i+1)*len(all)/min(n, len(all))
		p := Point{At: all[to-1].at}
		for _, s := range all[from:to] {
			p.Value = max(p.Value, s.age)
		}
		out = append(out, p)
	}
	return out
}
