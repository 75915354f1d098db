package inbox

import (
	"log/slog"
	"strings"

	"github.com/postrider/postrider/internal/attempt"
)

// logEnd logs a message that had no effect: one that is dead or discarded, and at debug level a duplicate and one that was skipped.
func (c *Consumer[Tx]) logEnd(it *item, e end) {
	level, text := slog.LevelDebug, ""
	switch e {
	case deadLettered:
		level, text = slog.LevelError, "message is dead"
	case discarded:
		level, text = slog.LevelWarn, "message is discarded"
	case duplicate:
		text = "message is a duplicate"
	case skipped:
		text = "message is skipped"
	}
	if text == "" || !c.cfg.Logger.Enabled(c.life, level) {
		return
	}
	fields := append([]any{"consumer", c.cfg.Name}, attempt.LogFields(it.msg, it.msg.Key)...)
	if e == deadLettered || e == discarded {
		cause, _, _ := strings.Cut(it.fate.cause, "\n") // a panic's cause continues with its stack
		fields = append(fields, "attempts", len(it.failures), "reason", it.fate.reason, "cause", cause)
	}
	c.cfg.Logger.Log(c.life, level, text, fields...)
}
