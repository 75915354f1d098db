package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// guardKind is the kind of the records of guards, whose ID is that of the redrive.
	guardKind = "redrive"
	// guardLife is how long the guard of a redrive that has ended is kept.
	guardLife = 30 * 24 * time.Hour
	// attemptWithin is how long a redrive waits for an attempt of what it has sent before it stops.
	attemptWithin = 5 * time.Minute
	// stopFrom is how many first attempts Plan.StopAt needs to stop a redrive.
	stopFrom = 20
	// maxUntried is how many messages of a guarded redrive wait for their first attempt at most.
	maxUntried = 200
	// guardEvery is how often a guarded redrive reads the outcomes of its messages, stoppedEvery how often while it is stopped.
	guardEvery, stoppedEvery = time.Second, 5 * time.Second
)

// checkGuard returns an error unless a redrive can be stopped at this share.
func checkGuard(stopAt float64) error {
	if stopAt < 0 || stopAt >= 1 || stopAt != stopAt {
		return fmt.Errorf("a redrive stops at a share of failed attempts from 0 to 1, e.g. 0.05, not at %v", stopAt)
	}
	return nil
}

// guarded is a guard and its record.
type guarded struct {
	store.RedriveGuard
	rec store.Record
}

// newGuard returns the guard that a plan asks for, nil for none. A single message needs none: it is the first and the last.
func newGuard(p Plan, r store.Redrive) *guarded {
	g := store.RedriveGuard{First: p.First && r.Selected > 1, StopAt: p.StopAt}
	if !g.First && g.StopAt == 0 {
		return nil
	}
	return &guarded{g, store.Record{Table: store.WorkRecords, Kind: guardKind, ID: strconv.FormatInt(r.ID, 10)}}
}

// findGuard reads the guard of a redrive, nil if it has none.
func findGuard(ctx context.Context, r store.Reader, id int64) (*guarded, error) {
	found, err := r.ListRecords(ctx, store.RecordQuery{Table: store.WorkRecords, Kind: guardKind, ID: strconv.FormatInt(id, 10), Limit: 1})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	g := &guarded{rec: found[0]}
	return g, json.Unmarshal(found[0].Body, &g.RedriveGuard)
}

// endGuard lets the guard of a redrive that has ended expire.
func endGuard(ctx context.Context, w store.Writer, id int64, now time.Time) error {
	g, err := findGuard(ctx, w, id)
	if err != nil || g == nil {
		return err
	}
	g.rec.Expires = now.Add(guardLife)
	return g.put(ctx, w)
}

func (g *guarded) put(ctx context.Context, w store.Writer) (err error) {
	if g.rec.Body, err = json.Marshal(g.RedriveGuard); err != nil {
		return err
	}
	return w.PutRecord(ctx, g.rec)
}

// allow says how many messages the next step may send; 0 means that it waits, or that the guard has stopped the redrive.
func (g *guarded) allow(r *store.Redrive, n store.Redriven, now time.Time) int {
	untried, blocked := n.Parked-n.Failing, now.Sub(g.SentAt) >= attemptWithin
	if g.First && !g.Passed {
		switch {
		case r.Done == 0:
			return 1
		case n.Failing+n.Dead > 0:
			g.Stopped = store.StoppedFirst
		case n.Delivered() > 0:
			g.Passed = true
		case blocked:
			g.Stopped = store.StoppedWaiting
		}
		if !g.Passed {
			return 0
		}
	}
	if g.Made, g.Failed = max(0, n.Found-untried), n.Failing+n.Dead; g.StopAt > 0 && g.Made >= stopFrom && float64(g.Failed) > g.StopAt*float64(g.Made) {
		g.Stopped = store.StoppedLimit
		return 0
	}
	if g.Stopped = ""; untried >= maxUntried && blocked {
		g.Stopped = store.StoppedBlocked
	}
	return int(max(0, maxUntried-untried))
}

// guardedStep is a step of a redrive with a guard.
func guardedStep(ctx context.Context, w store.Writer, r *store.Redrive, g *guarded, limit int, now time.Time) error {
	if g.Stopped != "" && g.Stopped != store.StoppedBlocked {
		r.NextAt = now.Add(stoppedEvery)
		return nil
	}
	n, err := w.Redriven(ctx, r.ID, g.After)
	if err != nil {
		return err
	}
	may, before := g.allow(r, n, now), r.Done
	switch {
	case may == 0:
		r.NextAt = now.Add(guardEvery)
	default:
		if err := step(ctx, w, r, min(batch(*r, limit), may), now); err != nil {
			return err
		}
	}
	if r.Done > before {
		g.SentAt = now
		if g.First && !g.Passed && r.State == store.RedriveRunning {
			r.NextAt = now.Add(guardEvery)
		}
	}
	return g.put(ctx, w)
}

// WhyStopped says why a redrive has stopped, "" if it has not.
func WhyStopped(r store.Redrive) string {
	switch r.Stopped() {
	case "":
		return ""
	case store.StoppedFirst:
		return "the first message failed"
	case store.StoppedWaiting:
		return "the first message was neither delivered nor failed in 5 minutes; its key may be held by another one"
	case store.StoppedBlocked:
		return "none of its messages was attempted in 5 minutes; their keys may be held, or the relay paused. It goes on when one is"
	}
	return fmt.Sprintf("%d of %d first attempts failed, more than %s%%", r.Guard.Failed, r.Guard.Made, strconv.FormatFloat(r.Guard.StopAt*100, 'f', -1, 64))
}

// ErrStopped: a redrive sends nothing until an operator continues or cancels it.
var ErrStopped = errors.New("the redrive has stopped")

// ErrNotStopped: a redrive that its guard has not stopped cannot be continued.
var ErrNotStopped = errors.New("the redrive is not stopped")

// ContinueRedrive lets a redrive go on that its guard has stopped: without waiting for the first message, and with the share of failed
// attempts counted from now. Errors: store.ErrNoRedrive, ErrRedriveEnded, ErrNotStopped.
func (s Store) ContinueRedrive(ctx context.Context, id int64, by string) (store.Redrive, error) {
	op := store.Operation{Method: "ContinueRedrive", Doing: "continue a redrive"}
	r, err := s.changeRedrive(ctx, op, store.DeadFilter{}, id, func(w store.Writer, r *store.Redrive, now time.Time) (bool, error) {
		if r.State != store.RedriveRunning {
			return false, fmt.Errorf("redrive %d is %s: %w", r.ID, r.State, ErrRedriveEnded)
		}
		g, err := findGuard(ctx, w, id)
		if err == nil && (g == nil || g.Stopped == "") {
			err = fmt.Errorf("redrive %d: %w", id, ErrNotStopped)
		}
		if err != nil {
			return false, err
		}
		g.After, g.SentAt = r.Position, now
		g.Passed, g.Stopped, g.Made, g.Failed, g.ContinuedBy = true, "", 0, 0, stored.Text(by)
		r.NextAt, r.Guard = now, &g.RedriveGuard
		return true, g.put(ctx, w)
	})
	if err == nil {
		s.records.Wake()
	}
	return r, err
}
