package outage

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStart: an outage at the start is logged once, after five seconds, with the last error.
func TestStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		var s Start
		log := slog.New(slog.NewTextHandler(&out, nil))
		s.Failed(log, "NATS", errors.New("first"))
		time.Sleep(4 * time.Second)
		s.Failed(log, "NATS", errors.New("second"))
		if out.Len() > 0 {
			t.Errorf("logged too early: %s", out.String())
		}
		time.Sleep(time.Second)
		s.Failed(log, "NATS", errors.New("third"))
		s.Failed(log, "NATS", errors.New("fourth"))
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "broker=NATS error=third") {
			t.Errorf("logged:\n%s", got)
		}
	})
}
