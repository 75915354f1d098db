package stored

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// progressKind is the kind of the records of relays' progress. The ID is the name of the relay, the time, and the process: in
// descending order, the earliest comes first.
const progressKind = "progress"

const (
	// progressEvery is the least time between two notes of a process, progressNotes the number of notes that it has at most.
	progressEvery = time.Minute
	progressNotes = 24 * 60

	progressPage = 100
)

// Progress says which messages the cursors of a relay have passed in a time, in the partitions of one process.
type Progress struct {
	Relay string `json:"relay"`
	// By is the process (store.Owner.ID).
	By string `json:"by"`
	// Since is when the time began, on the database's clock; zero if the process began in it.
	Since time.Time `json:"since,omitzero"`
	// Partitions has the partitions whose cursor has moved.
	Partitions map[int]Passed `json:"partitions"`
}

// Passed are the sequences that a cursor has passed: those after After, up to UpTo.
type Passed struct {
	After int64 `json:"after"`
	UpTo  int64 `json:"up_to"`
}

// ProgressEvery is how often a process notes its progress, if the log keeps delivered messages for a time.
func ProgressEvery(keep time.Duration) time.Duration { return max(progressEvery, keep/progressNotes) }

// NoteProgress records the progress of a process, for as long as the log keeps the messages, and returns the database's time.
func NoteProgress(ctx context.Context, s store.Records, p Progress, keep time.Duration) (now time.Time, err error) {
	body, err := json.Marshal(p)
	if err != nil {
		return now, err
	}
	op := store.Operation{Method: "NoteProgress", Doing: "note the progress of relay " + p.Relay}
	err = s.Change(ctx, op, func(w store.Writer) error {
		if now, err = w.Now(ctx); err != nil {
			return err
		}
		return w.PutRecord(ctx, store.Record{
			Table: store.WorkRecords, Kind: progressKind, ID: progressID(p.Relay, now) + "/" + p.By, Expires: now.Add(keep + progressEvery), Body: body,
		})
	})
	return now, err
}

// progressID is the beginning of the IDs of the notes of a time: later ones have lower IDs.
func progressID(relay string, at time.Time) string {
	return fmt.Sprintf("%s/%016x", relay, math.MaxInt64-at.UnixMicro())
}

// FindPassed returns when, at the latest, a relay's cursor had passed a message that was written at a time, zero if no note says so. If the
// note covers the message, it is returned too: its process passed the message after Since.
func FindPassed(ctx context.Context, r store.Reader, relay string, partition int, sequence int64, written time.Time) (by time.Time, note *Progress, err error) {
	before := progressID(relay, written) + "0" // after the separator
	for {
		page, err := r.ListRecords(ctx, store.RecordQuery{Table: store.WorkRecords, Kind: progressKind, Before: before, Limit: progressPage})
		if err != nil {
			return by, nil, err
		}
		for _, rec := range page {
			if !strings.HasPrefix(rec.ID, relay+"/") {
				return by, nil, nil
			}
			var p Progress
			if err := json.Unmarshal(rec.Body, &p); err != nil || p.Relay != relay {
				continue
			}
			switch q, moved := p.Partitions[partition]; {
			case moved && sequence <= q.After: // by a process whose last note is missing
				return rec.At, nil, nil
			case moved && sequence <= q.UpTo:
				return rec.At, &p, nil
			}
		}
		if len(page) < progressPage {
			return by, nil, nil
		}
		before = page[len(page)-1].ID
	}
}
