package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider"
)

// blocked is an attempt log that blocks until it is released, and then counts.
type blocked struct {
	released chan struct{}
	kept     atomic.Int64
}

func (l *blocked) RecordAttempts(ctx context.Context, attempts []postrider.DeliveryAttempt, _ time.Duration) error {
	select {
	case <-l.released:
		l.kept.Add(int64(len(attempts)))
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (*blocked) Attempts(context.Context, string) ([]postrider.DeliveryAttempt, error) {
	return nil, nil
}
func (*blocked) DropAttempts(context.Context) (int, error) { return 0, nil }

// TestTooManyAttempts: attempts that do not fit are counted and logged.
func TestTooManyAttempts(t *testing.T) {
	t.Parallel()
	log, text := &blocked{released: make(chan struct{})}, &strings.Builder{}
	r := startRecorder(Config{Attempts: log, Relay: "r", KeepAttempts: time.Hour, Logger: slog.New(slog.NewTextHandler(text, nil))})
	const n = 2*maxQueued + recordBatch
	for range n {
		r.attempted(&postrider.Message{ID: "id"}, time.Now(), exchange{}, nil)
	}
	close(log.released)
	r.close() // text is complete after this
	missing := n - log.kept.Load()
	if missing < n-maxQueued-recordBatch || !strings.Contains(text.String(), fmt.Sprintf("missing=%d", missing)) {
		t.Errorf("%d of %d are kept, logged: %s", log.kept.Load(), n, text)
	}
}

func TestErrorTextFitsAnyDatabase(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"plain", "nul \x00 and \xff", strings.Repeat("ä", maxError)} {
		got := errorText(errors.New(text))
		if !utf8.ValidString(got) || strings.Contains(got, "\x00") || len(got) > maxError || got == "" {
			t.Errorf("%.20q becomes %d bytes %.20q", text, len(got), got)
		}
	}
}
