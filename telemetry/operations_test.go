package telemetry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/telemetry"
)

// TestOperations: calls, retries and states of breakers are exported, and names beyond a limit count as one.
func TestOperations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, telemetry.Config{})
	o := w.Operations()
	o.BreakerChanged("payment", "eu", "closed")
	o.Called(t.Context(), "payment", "eu", "success", 1, time.Millisecond)
	o.Called(t.Context(), "payment", "eu", "success", 3, time.Second)
	o.Called(t.Context(), "payment", "eu", "failure", 2, time.Second)
	o.Called(t.Context(), "payment", "eu", "declined", 1, time.Second)
	o.BreakerChanged("payment", "eu", "open")
	const of = `{operation="payment",`
	for series, want := range map[string]string{
		`postrider_calls_total` + of + `result="success",target="eu"}`:             "2",
		`postrider_calls_total` + of + `result="open",target="eu"}`:                "0",
		`postrider_retry_calls_total` + of + `result="first",target="eu"}`:         "1",
		`postrider_retry_calls_total` + of + `result="retried",target="eu"}`:       "1",
		`postrider_retry_calls_total` + of + `result="exhausted",target="eu"}`:     "1",
		`postrider_retry_calls_total` + of + `result="not_retryable",target="eu"}`: "1",
		`postrider_retries_total` + of + `target="eu"}`:                            "3",
		`postrider_breaker_state` + of + `state="open",target="eu"}`:               "1",
		`postrider_breaker_state` + of + `state="closed",target="eu"}`:             "0",
		`postrider_breaker_changes_total` + of + `state="open",target="eu"}`:       "1",
		`postrider_breaker_changes_total` + of + `state="closed",target="eu"}`:     "0",
		`postrider_call_duration_seconds_count` + of + `target="eu"}`:              "4",
	} {
		if got := w.value(series); got != want {
			t.Errorf("%s is %q, want %s", series, got, want)
		}
	}
	for i := range 3000 {
		o.Called(t.Context(), "http", fmt.Sprintf("host-%d", i), "success", 1, time.Millisecond)
	}
	targets := 0
	for _, line := range w.scrape() {
		if strings.HasPrefix(line, "postrider_retries_total{") {
			targets++
		}
	}
	if targets != 201 || w.value(`postrider_calls_total{operation="_other",result="success",target=""}`) != "2801" {
		t.Errorf("%d targets", targets)
	}
}
