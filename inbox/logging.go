package inbox

import (
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/store"
)

// logFailure logs a failed attempt, as a relay does: within the limit of attempt.LogLimit, and at debug level if the handler itself
// put the message off. logEnd logs a message that is dead or discarded.
func (c *Consumer[Tx]) logFailure(it *item, wait time.Duration) {
	level, text, reason, n, cause := slog.LevelWarn, "attempt failed", store.ParkRetry, len(it.failures), ""
	if n > 0 {
		cause = it.failures[n-1].cause
	}
	if f := it.fate; f != nil {
		switch {
		case f.dead:
			return
		case f.park == store.ParkUnhandled:
			text = "no handler takes the message"
		case f.park == store.ParkSnoozed && f.cause == "":
			level, text = slog.LevelDebug, "message is put off"
		}
		if reason, wait = f.park, f.after; reason != store.ParkRetry {
			n, cause = n+1, f.cause // it does not count as a failure
		}
	}
	if !c.cfg.Logger.Enabled(c.life, level) || level == slog.LevelWarn && !c.failures.Allow(c.logSuppressed) {
		return
	}
	fields := append([]any{"consumer", c.cfg.Name}, attempt.LogFields(it.msg, it.msg.Key)...)
	c.cfg.Logger.Log(c.life, level, text, append(fields,
		"attempt", n, "reason", reason, "next_attempt_in", wait, "cause", attempt.FirstLine(cause))...)
}

// logSuppressed logs how many lines logFailure has left out.
func (c *Consumer[Tx]) logSuppressed(n int) {
	c.cfg.Logger.Warn("more attempts failed than are logged one by one", "consumer", c.cfg.Name, "not_logged", n)
}

// logEnd logs a message that had no effect: one that is dead or discarded, and at debug level a duplicate and one that was skipped.
func (c *Consumer[Tx]) logEnd(it *item, e end) {
	level, text := slog.LevelDebug, ""
	switch {
	case e == deadLettered:
		level, text = slog.LevelError, "message is dead"
	case e == parkedFailed && it.fate.dead:
		level, text = slog.LevelWarn, "message failed, and is dead after those of its key that are parked before it"
	case e == discarded:
		level, text = slog.LevelWarn, "message is discarded"
	case e == duplicate:
		text = "message is a duplicate"
	case e == skipped:
		text = "message is skipped"
	}
	if text == "" || !c.cfg.Logger.Enabled(c.life, level) {
		return
	}
	fields := append([]any{"consumer", c.cfg.Name}, attempt.LogFields(it.msg, it.msg.Key)...)
	if level > slog.LevelDebug {
		fields = append(fields, "attempts", len(it.failures), "reason", it.fate.reason, "cause", attempt.FirstLine(it.fate.cause))
	}
	c.cfg.Logger.Log(c.life, level, text, fields...)
}
