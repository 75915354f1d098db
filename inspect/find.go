package inspect

import (
	"context"
	"math"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/store"
)

// Known reports whether there is a message with an ID. It searches the log for so long at most; complete says whether that was enough.
func Known(ctx context.Context, s Store, id string, within time.Duration) (known, complete bool, err error) {
	m, complete, err := inTime(ctx, within, func(ctx context.Context) (*postrider.Message, error) {
		return findInLog(ctx, s, id, math.MaxInt)
	})
	if m != nil || err != nil {
		return m != nil, true, err
	}
	status, err := s.Status(ctx)
	if err != nil {
		return false, complete, err
	}
	for _, r := range status.Relays {
		if parked, err := held.New(s).FindParked(ctx, r.Name, id); len(parked) > 0 || err != nil {
			return err == nil, complete, err
		}
	}
	for _, err := range deadletter.New(s).ListDead(ctx, store.DeadFilter{MessageID: id, State: store.DeadAny}, 0, 1) {
		return err == nil, complete, err
	}
	return false, complete, nil
}

// Recently is how far back Correlated reads for an ID that does not hold its time.
const Recently = 15 * time.Minute

// Correlated returns up to limit messages of the log with a correlation ID, which no index has: of those that were published since the time
// that the ID holds, or recently. It searches for so long at most; complete says whether it read all of these.
func Correlated(ctx context.Context, s Store, id string, limit int, within time.Duration) (found []*postrider.Message, complete bool, err error) {
	from, holds := timeOf(id)
	if from = from.Add(-closeMargin); !holds {
		from = time.Now().Add(-Recently)
	}
	_, complete, err = inTime(ctx, within, func(ctx context.Context) (bool, error) {
		r, err := logreader.FromTime(ctx, s, from)
		for more := true; more && err == nil && len(found) < limit; {
			var entries []store.Entry
			entries, more, err = r.Next(ctx)
			for _, e := range entries {
				if e.Message.CorrelationID == id && len(found) < limit {
					found = append(found, e.Message)
				}
			}
		}
		return true, err
	})
	return found, complete && len(found) < limit, err
}

// inTime calls f, and returns its answer unless it takes longer.
func inTime[T any](ctx context.Context, within time.Duration, f func(context.Context) (T, error)) (out T, complete bool, err error) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out, err = f(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return out, false, nil
	}
	return out, err == nil, err
}
