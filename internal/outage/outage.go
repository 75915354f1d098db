// Package outage says when a broker cannot be reached.
package outage

import "log/slog"

// Start logs once that a broker cannot be reached at the start: a program that only waits looks as if it hung. The zero value is ready to
// use.
type Start struct{ logged bool }

// Failed records that an attempt to connect failed.
func (s *Start) Failed(log *slog.Logger, broker string, err error) {
	if !s.logged {
		s.logged = true
		log.Warn("the broker does not answer; trying until it does", "broker", broker, "error", err)
	}
}
