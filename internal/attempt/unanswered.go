package attempt

import (
	"log/slog"
	"time"
)

// Unanswered logs once that a broker cannot be reached at the start, after unansweredFor: a program that only waits looks as if it hung.
type Unanswered struct {
	began  time.Time // of the first attempt that failed
	logged bool
}

// unansweredFor is how long a broker may be unavailable before this is logged.
const unansweredFor = 5 * time.Second

// Failed records that an attempt to connect failed.
func (u *Unanswered) Failed(log *slog.Logger, broker string, err error) {
	if u.began.IsZero() {
		u.began = time.Now()
	}
	if !u.logged && time.Since(u.began) >= unansweredFor {
		u.logged = true
		log.Warn("the broker does not answer; trying until it does", "broker", broker, "error", err)
	}
}
