package webhook_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
)

// attemptLog is an in-memory postrider.AttemptLog.
type attemptLog struct {
	mu       sync.Mutex
	attempts []postrider.DeliveryAttempt
	keep     time.Duration
	fail     error
	blocked  <-chan struct{} // blocks the log until it is closed
}

func (l *attemptLog) RecordAttempts(ctx context.Context, attempts []postrider.DeliveryAttempt, keep time.Duration) error {
	if l.blocked != nil {
		select {
		case <-l.blocked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	l.attempts, l.keep = append(l.attempts, attempts...), keep
	return nil
}

func (l *attemptLog) Attempts(context.Context, string) ([]postrider.DeliveryAttempt, error) {
	return l.attempts, nil
}

func (l *attemptLog) DropAttempts(context.Context) (int, error) { return 0, nil }

func TestAttemptsAreKept(t *testing.T) {
	t.Parallel()
	answers := []struct {
		status int
		text   string
	}{{503, "busy \x00\xff" + strings.Repeat("x", 1000)}, {400, "no"}, {200, "thanks"}}
	var bodies [][]byte
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		a := answers[len(bodies)]
		bodies = append(bodies, body)
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.text)
	})
	log := &attemptLog{}
	p, err := webhook.New(webhook.Config{
		URL: url, PlainHTTP: true, Allow: loopback, Secrets: []string{secretA}, Attempts: log, Relay: "to-partner", KeepAttempts: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for n := range answers {
		m := message()
		m.Attempt = n + 1
		p.Publish(t.Context(), []*postrider.Message{m})
	}
	if err := p.Close(); err != nil { // writes the queued attempts
		t.Fatal(err)
	}
	want := []struct {
		outcome, err, answer string
		status               int
	}{
		{"retried", "webhook answered 503", "busy \x00\xff" + strings.Repeat("x", 505), 503},
		{"dead", "webhook answered 400", "no", 400},
		{"delivered", "", "thanks", 200},
	}
	if len(log.attempts) != len(want) || log.keep != time.Hour {
		t.Fatalf("%d attempts are kept for %s, want %d for 1h", len(log.attempts), log.keep, len(want))
	}
	for n, a := range log.attempts {
		w := want[n]
		if a.MessageID != "id-1" || a.Relay != "to-partner" || a.Attempt != n+1 || a.Outcome != w.outcome || a.Status != w.status ||
			string(a.Answer) != w.answer || !strings.Contains(a.Error, w.err) || (w.err == "") != (a.Error == "") ||
			a.Took <= 0 || a.At.Before(began.Add(-time.Minute)) || a.At.After(time.Now()) {
			t.Errorf("attempt %d is %+v", n+1, a)
		}
		if sum := sha256.Sum256(bodies[n]); !bytes.Equal(a.RequestSHA256, sum[:]) {
			t.Errorf("attempt %d: the sum is not that of what was sent", n+1)
		}
	}
}

func TestAttemptsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	_ = listener.Close()
	reached := make(chan struct{})
	silent := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // only then does the server notice that the client has disconnected
		close(reached)
		<-req.Context().Done()
	})
	for _, tt := range []struct {
		name, url, outcome, words string
	}{
		{"nobody there", "http://" + nobody, "unavailable", "connection refused"},
		{"cancelled", silent, "cancelled", "context canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log := &attemptLog{}
			p := open(t, webhook.Config{URL: tt.url + "/path?token=secret", PlainHTTP: true, Allow: loopback, Attempts: log, Relay: "r"})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.url == silent {
				go func() {
					select {
					case <-reached:
						cancel()
					case <-ctx.Done():
					}
				}()
			}
			errs := p.Publish(ctx, []*postrider.Message{message()})
			_ = p.Close()
			if len(log.attempts) != 1 {
				t.Fatalf("%d attempts are kept", len(log.attempts))
			}
			a := log.attempts[0]
			if a.Outcome != tt.outcome || a.Status != 0 || len(a.Answer) > 0 || !strings.Contains(a.Error, tt.words) {
				t.Errorf("attempt is %+v", a)
			}
			if strings.Contains(a.Error+errs[0].Error(), "secret") {
				t.Errorf("the URL's secret is in %q", errs[0])
			}
		})
	}
}

// TestAttemptLogDoesNotHoldUpDeliveries: neither a log that blocks nor one that fails delays deliveries.
func TestAttemptLogDoesNotHoldUpDeliveries(t *testing.T) {
	t.Parallel()
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	release := make(chan struct{})
	var logged syncBuffer
	waiting := &attemptLog{blocked: release}
	failing := &attemptLog{fail: errors.New("database is gone")}
	for _, log := range []*attemptLog{waiting, failing} {
		p := open(t, webhook.Config{
			URL: url, PlainHTTP: true, Allow: loopback, Attempts: log, Relay: "r", Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		for range 3 {
			if err := publish(t, p); err != nil {
				t.Fatal(err)
			}
		}
		if log == waiting {
			close(release)
		}
		_ = p.Close()
	}
	if len(waiting.attempts) != 3 {
		t.Errorf("%d attempts are kept once the log goes on, want 3", len(waiting.attempts))
	}
	if text := logged.String(); !strings.Contains(text, "missing=3") || !strings.Contains(text, "database is gone") {
		t.Errorf("logged %q", text)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
