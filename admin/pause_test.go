package admin_test

import (
	"errors"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/store"
)

// TestPauseIsOnRecord: a pause needs a reason, is seen at once by whoever made it, and is in the audit with its end.
func TestPauseIsOnRecord(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 1)
	ctx := t.Context()
	status := func() admin.RelayPage {
		t.Helper()
		r, err := service.Relay(ctx, viewer, "view")
		must(t, err)
		return r
	}
	if before := status(); before.Status != admin.Idle {
		t.Fatalf("before: %s", before.Status)
	}
	if _, err := service.PauseRelay(ctx, operator, "view", " ", 0); !errors.Is(err, admin.ErrReason) {
		t.Errorf("without a reason: %v", err)
	}
	if _, err := service.PauseRelay(ctx, operator, "no", "r", 0); !errors.Is(err, store.ErrUnknownRelay) {
		t.Errorf("an unknown relay: %v", err)
	}
	p, err := service.PauseRelay(ctx, operator, "view", "maintenance", time.Hour)
	must(t, err)
	if now := status(); now.Status != admin.Paused || now.Status.Tone() != admin.Info || now.Paused == nil || now.Paused.By != "olga" || p.Until.Sub(p.At).Round(time.Minute) != time.Hour || now.Problem != nil {
		t.Errorf("paused: %+v, %+v", now.Status, now.Paused)
	}
	if _, err := service.PauseRelay(ctx, boss, "view", "again", 0); !errors.Is(err, pause.ErrPaused) {
		t.Errorf("a second pause: %v", err)
	}
	_, err = service.ResumeRelay(ctx, boss, "view", "done")
	must(t, err)
	if now := status(); now.Status != admin.Idle {
		t.Errorf("after the resumption: %s", now.Status)
	}
	if _, err := service.ResumeRelay(ctx, boss, "view", ""); !errors.Is(err, pause.ErrNotPaused) {
		t.Errorf("a second resumption: %v", err)
	}
	var got []string
	for _, e := range audit(t, s) {
		got = append(got, e.By+" "+string(e.Action)+" "+e.On+" "+string(e.Result))
	}
	want := []string{
		"ada ResumeRelay view failed", "ada ResumeRelay view done", "ada PauseRelay view failed", "olga PauseRelay view for 1\u00a0h done",
		"olga PauseRelay no failed",
	}
	if len(got) != len(want) {
		t.Fatalf("audit: %q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("entry %d: %q, want %q", i, got[i], want[i])
		}
	}
	if _, err := admin.New(failing{s}, admin.Config{}).PauseRelay(ctx, operator, "view", "r", 0); !errors.Is(err, errAudit) {
		t.Errorf("a pause whose entry cannot be written: %v", err)
	}
}
