package redisbroker

import (
	"log/slog"
	"testing"
)

// TestLogsByDefault: a program that sets no logger learns that its broker does not answer.
func TestLogsByDefault(t *testing.T) {
	t.Parallel()
	if c := (Config{}).withDefaults(); c.Logger != slog.Default() {
		t.Error("without a Logger, nothing is logged")
	}
}
