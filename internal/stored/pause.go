package stored

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/postrider/postrider/store"
)

// Pauses selects the records of pauses. The ID of a record is the name of the relay or consumer, which is paused until the record
// expires.
var Pauses = store.RecordQuery{Table: store.WorkRecords, Kind: "pause", Limit: 1000}

// PauseBody is the body of the record of a pause.
type PauseBody struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// FindPause returns the record of a relay's pause, nil if it is not paused.
func FindPause(ctx context.Context, r store.Reader, relay string) (*store.Record, error) {
	q := Pauses
	q.ID, q.Limit = relay, 1
	found, err := r.ListRecords(ctx, q)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// EndPause ends a relay's pause now, and returns its record as it was; nil if the relay is not paused.
func EndPause(ctx context.Context, w store.Writer, relay string) (*store.Record, error) {
	rec, err := FindPause(ctx, w, relay)
	if err != nil || rec == nil {
		return nil, err
	}
	return rec, end(ctx, w, *rec)
}

// end makes a record expire now.
func end(ctx context.Context, w store.Writer, rec store.Record) (err error) {
	if rec.Expires, err = w.Now(ctx); err != nil {
		return err
	}
	return w.PutRecord(ctx, rec)
}

// PauseOf is a pause by its record. A relay is paused even if the rest of the record cannot be read.
func PauseOf(r store.Record) *store.Pause {
	var body PauseBody
	if err := json.Unmarshal(r.Body, &body); err != nil {
		body.Reason = fmt.Sprintf("unknown, because the record cannot be read: %v", err)
	}
	return &store.Pause{Relay: r.ID, By: body.By, Reason: body.Reason, At: r.At, Until: r.Expires}
}
