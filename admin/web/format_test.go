package web

import (
	"testing"

	"github.com/postrider/postrider/store"
)

// TestParkReasons: each reason has a text of its own; another one, of a newer release, is shown as it is.
func TestParkReasons(t *testing.T) {
	t.Parallel()
	for _, r := range []store.ParkReason{
		store.ParkRetry, store.ParkSnoozed, store.ParkHeld, store.ParkDelayed, store.ParkSlow, store.ParkUnhandled, store.ParkRedriven,
		store.ParkReturned, store.ParkAlone, store.ParkReplayed, store.ParkDead,
	} {
		if text := parkReason(r); text == string(r) {
			t.Errorf("%s has no text", r)
		}
	}
	if text := parkReason("newer"); text != "newer" {
		t.Errorf("an unknown reason is shown as %q", text)
	}
}
