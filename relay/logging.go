package relay

import (
	"log/slog"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// outage counts failures of one operation, so that a log says once when it begins to fail and once when it works again. It
// has no lock of its own.
type outage struct {
	since    time.Time
	failures int
}

// failed records a failure and reports whether it is the first one since the operation worked.
func (o *outage) failed(now time.Time) (began bool) {
	if o.failures++; o.failures > 1 {
		return false
	}
	o.since = now
	return true
}

// succeeded records that the operation works. If it failed before, it returns for how long and how often.
func (o *outage) succeeded(now time.Time) (lasted time.Duration, failures int, ended bool) {
	if o.failures == 0 {
		return 0, 0, false
	}
	lasted, failures = now.Sub(o.since), o.failures
	*o = outage{}
	return lasted, failures, true
}

// logFailing logs an operation that begins to fail.
func (r *Relay) logFailing(o *outage, now time.Time, text string, err error) {
	if o.failed(now) {
		r.cfg.Logger.Warn(text, "relay", r.cfg.Name, "error", err)
	}
}

// logWorking logs an operation that works again.
func (r *Relay) logWorking(o *outage, now time.Time, text string) {
	if lasted, failures, ended := o.succeeded(now); ended {
		r.cfg.Logger.Info(text, "relay", r.cfg.Name, "after", lasted, "failures", failures)
	}
}

// logFailure logs why a message is postponed or discarded: each failed attempt, each discarded message, and each message that no
// handler takes, within the limit of attempt.LogLimit. Postponement by the handler itself is logged at debug level.
func (r *Relay) logFailure(it *item, o *schedule.Outcome, v *result) {
	level, text, reason := slog.LevelWarn, "attempt failed", store.ParkReason(o.Reason)
	switch {
	case o.Kind == schedule.Discarded:
		text = "message is discarded"
	case reason == store.ParkUnhandled && it.Message.reason != reason: // once
		text = "no handler takes the message"
	case reason != store.ParkRetry && !v.is(postrider.BrokerUnavailable):
		level, text = slog.LevelDebug, "message is put off"
	}
	if !r.cfg.Logger.Enabled(r.life, level) {
		return
	}
	if level == slog.LevelWarn && !r.failures.Allow(r.logSuppressed) {
		return
	}
	fields := append([]any{"relay", r.cfg.Name}, attempt.LogFields(it.Message.Message, it.Key)...)
	r.cfg.Logger.Log(r.life, level, text, append(fields,
		"attempt", it.Attempts+1, "reason", reason, "next_attempt_in", o.After, "cause", attempt.FirstLine(v.cause))...)
}

// logSuppressed logs how many lines logFailure has left out.
func (r *Relay) logSuppressed(n int) {
	r.cfg.Logger.Warn("more attempts failed than are logged one by one", "relay", r.cfg.Name, "not_logged", n)
}
