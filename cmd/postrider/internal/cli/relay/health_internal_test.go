package relay

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestReasonsAreInTheLogOnly: the answer says that the process is not ready, the log says why, once.
func TestReasonsAreInTheLogOnly(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ready := &readiness{process: t.Context(), logger: slog.New(slog.NewTextHandler(&log, nil)), ready: true}
	ready.check = func() error { return errors.New("dial tcp 10.1.2.3:5432: refused") }
	for range 3 {
		answer := httptest.NewRecorder()
		mux := http.NewServeMux()
		handleHealth(mux, ready)
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		if answer.Code != http.StatusServiceUnavailable || answer.Body.String() != "not ready\n" {
			t.Errorf("the answer is %d %q", answer.Code, answer.Body)
		}
	}
	if n := strings.Count(log.String(), "10.1.2.3"); n != 1 {
		t.Errorf("the log has the reason %d times, want once:\n%s", n, log.String())
	}
}
