package protect_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/protect"
)

func TestObserverThatPanicsIsCalledNoMore(t *testing.T) {
	t.Parallel()
	var o protect.Observer
	var log strings.Builder
	logger, calls := slog.New(slog.NewTextHandler(&log, nil)), 0
	o.Call(logger, func() { calls++ })
	for range 2 {
		o.Call(logger, func() {
			calls++
			panic("observer")
		}, "consumer", "view")
	}
	if calls != 2 || strings.Count(log.String(), "observer panicked and will not be called again") != 1 || !strings.Contains(log.String(), "consumer=view") {
		t.Errorf("%d calls, log: %s", calls, log.String())
	}
}
