package inspect

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/logreader"
)

// The log is searched around the time at which a message was published.
const (
	// closeMargin is how far the clock of a publisher usually is from that of its database at most, searchMargin how far it may be.
	closeMargin  = time.Second
	searchMargin = 10 * time.Minute
	// publishedWithin is for how long a transaction is open, usually, after the ID of a message was made.
	publishedWithin = time.Minute
)

// findInLog searches for a message in the log, nil if it is not there: at the time that its ID holds, then in a wider range, for clocks that
// disagree. Without such an ID it reads from the oldest message. It reads about that many messages at most in each range.
func findInLog(ctx context.Context, s logreader.Store, id string, most int) (*postrider.Message, error) {
	made, holds := timeOf(id)
	if !holds {
		return between(ctx, s, id, time.Time{}, time.Time{}, most)
	}
	m, err := between(ctx, s, id, made.Add(-closeMargin), made.Add(publishedWithin), most)
	if m != nil || err != nil {
		return m, err
	}
	return between(ctx, s, id, made.Add(-searchMargin), made.Add(searchMargin), most)
}

// between searches for a message among those that were stored between two times; zero ones are no bounds.
func between(ctx context.Context, s logreader.Store, id string, from, until time.Time, most int) (*postrider.Message, error) {
	var r *logreader.Reader
	var err error
	if from.IsZero() {
		r, err = logreader.FromOldest(ctx, s)
	} else {
		r, err = logreader.FromTime(ctx, s, from)
	}
	if err != nil {
		return nil, err
	}
	for n := 0; n < most; {
		entries, more, err := r.Next(ctx)
		if err != nil {
			return nil, err
		}
		past := len(entries) > 0 // in all partitions
		for _, e := range entries {
			if e.Message.ID == id {
				return e.Message, nil
			}
			past = past && !until.IsZero() && e.Message.CreatedAt.After(until)
		}
		if past || !more {
			return nil, nil
		}
		n += len(entries)
	}
	return nil, nil
}

// timeOf returns the time in a UUIDv7.
func timeOf(id string) (made time.Time, ok bool) {
	if len(id) != 36 || id[14] != '7' {
		return made, false
	}
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 {
		return made, false
	}
	var ms int64
	for _, c := range b[:6] {
		ms = ms<<8 | int64(c)
	}
	return time.UnixMilli(ms), true
}
