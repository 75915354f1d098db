package export_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/postrider/postrider/telemetry/export"
)

// TestCollectorThatTakesNothing: a collector that does not answer, and one that cannot be reached, hold up nobody: spans are dropped, and
// memory does not grow. The log has one line.
func TestCollectorThatTakesNothing(t *testing.T) { // not in parallel: it sets what is global
	released := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-released }))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	t.Cleanup(func() {
		close(released)
		silent.Close()
	})
	for name, url := range map[string]string{"does not answer": silent.URL, "cannot be reached": gone.URL} {
		t.Run(name, func(t *testing.T) {
			log, began := &lockedLog{}, time.Now()
			p, err := export.Open(t.Context(), export.Config{OTLP: url, Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_ = p.Shutdown(ctx)
			})
			before := heap()
			tracer := p.Tracer.Tracer("test")
			for range 200_000 { // which would not end if a span waited for the collector
				_, span := tracer.Start(t.Context(), strings.Repeat("s", 100))
				span.End()
			}
			if grown := int64(heap()) - int64(before); grown > 20<<20 {
				t.Errorf("200,000 spans that nobody takes need %d MiB", grown>>20)
			}
			for range 1000 {
				otel.Handle(errors.New("not exported"))
			}
			lines := strings.Count(log.String(), "telemetry could not be exported")
			if most := 1 + int(time.Since(began)/time.Minute); lines < 1 || lines > most {
				t.Errorf("%d lines for a thousand errors, want one a minute", lines)
			}
		})
	}
}

// lockedLog is a log that exporters write to at any time.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns what was logged.
func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// heap is the memory in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
