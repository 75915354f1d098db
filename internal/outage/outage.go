// Package outage says when a broker cannot be reached.
package outage

import (
	"log/slog"
	"time"
)

// Start logs once that a broker cannot be reached at the start, after five seconds: a program that only waits looks as if it hung. The
// zero value is ready to use.
type Start struct {
	began  time.Time // of the first attempt that failed
	logged bool
}

// patience is how long a broker may be unavailable before this is logged.
const patience = 5 * time.Second

// Failed records that an attempt to connect failed.
func (s *Start) Failed(log *slog.Logger, broker string, err error) {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	if !s.logged && time.Since(s.began) >= patience {
		s.logged = true
		log.Warn("the broker does not answer; trying until it does", "broker", broker, "error", err)
	}
}
