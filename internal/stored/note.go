package stored

import (
	"context"
	"errors"

	"github.com/postrider/postrider/store"
)

// The kinds of notes: what a process says about itself for those who look after the outbox.
const (
	// NoteMaintained is written after maintenance of the log succeeded, NoteNotMaintained after it failed, with the error. The ID is the
	// name of the relay.
	NoteMaintained    = "maintained"
	NoteNotMaintained = "not maintained"
	// NoteWindow says what is wrong with the time for which a consumer keeps IDs; empty: nothing. The ID is the name of the consumer.
	NoteWindow = "window"
)

// Note writes a note, and replaces the one of the same kind and ID. If another process does so at the same time, one of them wins.
func Note(ctx context.Context, s store.Records, kind, id, text string) error {
	op := store.Operation{Method: "Note", Doing: "write a note"}
	err := s.Change(ctx, op, func(w store.Writer) error {
		found, err := w.ListRecords(ctx, store.RecordQuery{Table: store.WorkRecords, Kind: kind, ID: id, Limit: 1})
		if err != nil {
			return err
		}
		r := store.Record{Table: store.WorkRecords, Kind: kind, ID: id, Body: []byte(text)}
		if len(found) > 0 {
			r.Rev = found[0].Rev
		}
		return w.PutRecord(ctx, r)
	})
	if errors.Is(err, store.ErrRecordChanged) {
		return nil
	}
	return err
}

// Notes reads up to 1,000 notes of a kind.
func Notes(ctx context.Context, s store.Records, kind string) (notes []store.Record, err error) {
	op := store.Operation{Method: "Notes", Doing: "read notes"}
	err = s.View(ctx, op, func(r store.Reader) error {
		notes, err = r.ListRecords(ctx, store.RecordQuery{Table: store.WorkRecords, Kind: kind, Limit: 1000})
		return err
	})
	return notes, err
}
