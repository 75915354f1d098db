package outage

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestStart: an outage at the start is logged at once, and once.
func TestStart(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	var s Start
	log := slog.New(slog.NewTextHandler(&out, nil))
	s.Failed(log, "NATS", errors.New("first"))
	s.Failed(log, "NATS", errors.New("second"))
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "broker=NATS error=first") {
		t.Errorf("logged:\n%s", got)
	}
}
