package admin_test

import (
	"context"
	"errors"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// unwritable is a store whose audit cannot be written.
type unwritable struct{ *memory.Store }

func (s unwritable) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	return s.Store.Change(ctx, op, func(w store.Writer) error { return f(unwritableWriter{w}) })
}

type unwritableWriter struct{ store.Writer }

var errDenied = errors.New("permission denied")

func (w unwritableWriter) PutRecord(ctx context.Context, r store.Record) error {
	if r.Table == store.AuditRecords {
		return errDenied
	}
	return w.Writer.PutRecord(ctx, r)
}

// TestAuditFailed: an entry that cannot be written is reported, and its action refused. What is refused for another reason, or given up by
// its caller, is not reported.
func TestAuditFailed(t *testing.T) {
	t.Parallel()
	s, _ := withDead(t, 1)
	var failed []error
	service := admin.New(unwritable{s}, admin.Config{AuditFailed: func(err error) { failed = append(failed, err) }})
	if _, err := service.Reveal(t.Context(), boss, 1, "to see"); !errors.Is(err, errDenied) {
		t.Errorf("revealed without an entry: %v", err)
	}
	if len(failed) != 1 || !errors.Is(failed[0], errDenied) {
		t.Errorf("reported: %v", failed)
	}
	if _, err := service.Reveal(t.Context(), boss, 1, ""); err == nil || len(failed) != 1 {
		t.Errorf("without a reason: %v, reported: %v", err, failed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := service.Reveal(ctx, boss, 1, "to see"); err == nil || len(failed) != 1 {
		t.Errorf("given up: %v, reported: %v", err, failed)
	}
	if _, err := service.Reveal(t.Context(), viewer, 1, "to see"); err == nil || len(failed) != 2 {
		t.Errorf("what is not allowed is not on record: %v, reported: %v", err, failed)
	}
}
