package inspect

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/logreader"
)

// searchMargin is how far the clock that generated an ID may be from the database's.
const searchMargin = 10 * time.Minute

// findInLog searches for a message in the log; nil if it is not there.
func findInLog(ctx context.Context, store logreader.Store, id string) (*postrider.Message, error) {
	r, until, err := openLog(ctx, store, id)
	if err != nil {
		return nil, err
	}
	for {
		records, more, err := r.Next(ctx)
		if err != nil {
			return nil, err
		}
		past := len(records) > 0
		for _, rec := range records {
			if rec.Message.ID == id {
				return rec.Message, nil
			}
			past = past && !until.IsZero() && rec.Message.CreatedAt.After(until)
		}
		if past || !more {
			return nil, nil
		}
	}
}

// openLog opens the log where a message can be, and returns when it was published at the latest, zero if its ID does not say
// so.
func openLog(ctx context.Context, store logreader.Store, id string) (r *logreader.Reader, until time.Time, err error) {
	made, ok := timeOf(id)
	if !ok {
		r, err = logreader.FromOldest(ctx, store)
		return r, until, err
	}
	r, err = logreader.FromTime(ctx, store, made.Add(-searchMargin))
	return r, made.Add(searchMargin), err
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
