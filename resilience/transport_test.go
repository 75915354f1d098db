package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/resilience"
)

// accepting is a publisher that accepts everything.
type accepting struct{}

func (accepting) Publish(context.Context, []*postrider.Message) []error { return nil }
func (accepting) Capabilities() postrider.Capabilities                  { return postrider.Capabilities{} }

// wantIn checks that a text contains others.
func wantIn(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, err)
		}
	}
}

// answers is a RoundTripper with prepared answers; the last one repeats.
type answers struct {
	t        *testing.T
	status   []int
	header   http.Header
	requests []*http.Request
	bodies   []string
}

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			a.t.Error(err)
		}
		body = string(text)
	}
	a.requests, a.bodies = append(a.requests, r), append(a.bodies, body)
	w := httptest.NewRecorder()
	for k, v := range a.header {
		w.Header()[k] = v
	}
	w.WriteHeader(a.status[min(len(a.requests), len(a.status))-1])
	_, _ = io.WriteString(w, "answer")
	return w.Result(), nil
}

// client returns a client on a transport, and what it is answered.
func client(t *testing.T, p resilience.Policy, tr resilience.Transport, status ...int) (*http.Client, *answers, *resilience.Operation) {
	t.Helper()
	a := &answers{t: t, status: status, header: http.Header{}}
	o := newSet(t, resilience.Config{Default: p}).Operation("payment")
	tr.Base, tr.Operation = a, func(*http.Request) *resilience.Operation { return o }
	return &http.Client{Transport: &tr}, a, o.Instance("payment.example")
}

func send(t *testing.T, ctx context.Context, c *http.Client, method string, key string) (status int, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://payment.example/charge", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "answer" {
		t.Errorf("body %q: %v", text, err)
	}
	return answer.StatusCode, nil
}

// TestRequestsThatAreRepeated: which requests are sent again after 503, with their body, and what is returned.
func TestRequestsThatAreRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, c := range []struct {
			name, method, key string
			transport         resilience.Transport
			message           bool
			inHandler         int
			sent              int
		}{
			{name: "GET", method: "GET", sent: 3},
			{name: "PUT", method: "PUT", sent: 3},
			{name: "POST", method: "POST", sent: 1},
			{name: "POST with a key", method: "POST", key: "k", sent: 3},
			{name: "POST of an unsafe transport", method: "POST", transport: resilience.Transport{RetryUnsafe: true}, sent: 3},
			{name: "POST in a handler", method: "POST", transport: resilience.Transport{KeyHeader: "Idempotency-Key"}, message: true, sent: 1},
			{name: "POST in a handler that retries", method: "POST", transport: resilience.Transport{KeyHeader: "Idempotency-Key"}, message: true, inHandler: 2, sent: 2},
			{name: "POST in a handler without keys", method: "POST", message: true, inHandler: 2, sent: 1},
		} {
			ctx, key := t.Context(), c.key
			if c.message {
				ctx = handling(t, 30*time.Second)
				if c.transport.KeyHeader != "" {
					key = "m1"
				}
			}
			h, a, _ := client(t, resilience.Policy{Retry: resilience.Retry{InHandler: c.inHandler}}, c.transport, 503)
			status, err := send(t, ctx, h, c.method, c.key)
			if status != 503 || err != nil || len(a.requests) != c.sent {
				t.Errorf("%s: %d, %v after %d requests, want %d", c.name, status, err, len(a.requests), c.sent)
			}
			for i, r := range a.requests {
				if r.Header.Get("Idempotency-Key") != key || a.bodies[i] != "body" {
					t.Errorf("%s, request %d: key %q, body %q", c.name, i+1, r.Header.Get("Idempotency-Key"), a.bodies[i])
				}
			}
		}
	})
}

// TestAnswersAndTheBreaker: declined answers do not open the breaker, failures do, and a rejected request is an error.
func TestAnswersAndTheBreaker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for status, opens := range map[int]bool{200: false, 400: false, 402: false, 404: false, 422: false, 408: true, 425: true, 429: true, 500: true, 503: true} {
			h, _, o := client(t, resilience.Policy{Retry: resilience.Retry{Attempts: 1}}, resilience.Transport{}, status)
			for range 5 {
				if got, err := send(t, t.Context(), h, "GET", ""); got != status || err != nil {
					t.Fatal(status, got, err)
				}
			}
			if isOpen(o) != opens {
				t.Errorf("after five answers %d: %+v", status, o.State())
			}
			if _, err := send(t, t.Context(), h, "GET", ""); opens != errors.Is(err, resilience.ErrOpen) {
				t.Errorf("%d: %v", status, err)
			}
		}
	})
}

// TestRetryAfter: a wait of 3 s is waited for, one of an hour goes to the caller, and a time is compared with that of the server.
func TestRetryAfter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		wrong := time.Now().Add(10 * time.Minute).UTC()
		for name, c := range map[string]struct {
			header http.Header
			status int
			took   time.Duration
		}{
			"seconds": {http.Header{"Retry-After": {"3"}}, 200, 3 * time.Second},
			"an hour": {http.Header{"Retry-After": {"3600"}}, 429, 0},
			"a time on a wrong clock": {http.Header{
				"Retry-After": {wrong.Add(5 * time.Second).Format(http.TimeFormat)}, "Date": {wrong.Format(http.TimeFormat)},
			}, 200, 5 * time.Second},
		} {
			h, a, _ := client(t, resilience.Policy{Retry: resilience.Retry{Fixed: time.Millisecond}}, resilience.Transport{}, 429, 200)
			a.header = c.header
			began := time.Now()
			status, err := send(t, t.Context(), h, "GET", "")
			if took := time.Since(began); status != c.status || err != nil || took != c.took {
				t.Errorf("%s: %d, %v after %s", name, status, err, took)
			}
		}
	})
}

// late is a RoundTripper whose first answer comes after ten seconds, whatever the request's context.
type late struct {
	mu     sync.Mutex
	bodies []string
	closed map[string]bool
}

// RoundTrip implements http.RoundTripper: it answers with the request's number.
func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	l.mu.Lock()
	l.bodies = append(l.bodies, string(text))
	name := fmt.Sprint("answer ", len(l.bodies))
	l.mu.Unlock()
	if name == "answer 1" {
		time.Sleep(10 * time.Second)
	}
	return &http.Response{StatusCode: http.StatusOK, Body: &watched{strings.NewReader(name), l, name}}, err
}

// watched is a body that tells when it is closed.
type watched struct {
	io.Reader
	of   *late
	name string
}

func (w *watched) Close() error {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.closed[w.name] = true
	return nil
}

// TestAbandonedRequests: an attempt after an abandoned one sends the whole body, and a late answer neither replaces the good one nor stays
// open.
func TestAbandonedRequests(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for attempts, want := range map[int]string{1: "", 2: "answer 2"} {
			base := &late{closed: make(map[string]bool)}
			o := newSet(t, resilience.Config{Default: resilience.Policy{
				Timeout: time.Second, AbandonOnTimeout: true, Retry: resilience.Retry{Attempts: attempts},
			}}).Operation("payment")
			c := &http.Client{Transport: &resilience.Transport{Base: base, Operation: func(*http.Request) *resilience.Operation { return o }}}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://payment.example/charge", strings.NewReader("amount=42"))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := c.Do(r)
			pass(time.Minute) // the first attempt is answered
			switch {
			case want == "":
				if !errors.Is(err, resilience.ErrTimeout) {
					t.Errorf("one attempt: %v", err)
				}
			case err != nil:
				t.Fatal(err)
			default:
				text, err := io.ReadAll(answer.Body)
				if string(text) != want || err != nil || base.closed[want] {
					t.Errorf("answered %q, closed %t: %v", text, base.closed[want], err)
				}
				_ = answer.Body.Close()
			}
			if len(base.bodies) != attempts || base.bodies[attempts-1] != "amount=42" || !base.closed["answer 1"] || base.closed[want] != (want != "") {
				t.Errorf("%d attempts sent %q, closed %v", attempts, base.bodies, base.closed)
			}
		}
	})
}
