package webhook_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
)

// recorded returns a request signed by a Publisher with the secrets. Its timestamp is the real time, outside of any
// bubble.
func recorded(t *testing.T, secrets ...string) (http.Header, string) {
	t.Helper()
	var header http.Header
	var body string
	url := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		header, body = req.Header, string(b)
	})
	if err := publish(t, open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback, Secrets: secrets})); err != nil {
		t.Fatal(err)
	}
	return header, body
}

func receiver(t *testing.T, cfg webhook.ReceiverConfig) *webhook.Receiver {
	t.Helper()
	r, err := webhook.NewReceiver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func request(header http.Header, body string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	req.Header = header.Clone()
	return req
}

// TestRotation replaces a secret: at every step sender and receiver have one in common.
func TestRotation(t *testing.T) {
	t.Parallel()
	onlyA, both, onlyB := []string{secretA}, []string{secretA, secretB}, []string{secretB}
	for _, step := range []struct {
		sender, receiver []string
		want             error
	}{
		{onlyA, onlyA, nil}, {both, onlyA, nil}, {both, onlyB, nil}, {onlyB, onlyB, nil}, {onlyA, both, nil}, {onlyB, both, nil},
		{onlyA, onlyB, webhook.ErrSignature}, {onlyB, onlyA, webhook.ErrSignature},
	} {
		header, body := recorded(t, step.sender...)
		m, err := receiver(t, webhook.ReceiverConfig{Secrets: step.receiver}).Receive(request(header, body))
		if !errors.Is(err, step.want) {
			t.Errorf("sent with %d secrets, received with %d: %v, want %v", len(step.sender), len(step.receiver), err, step.want)
		}
		if step.want == nil && (m == nil || m.ID != "id-1" || string(m.Payload) != `{"n":1}`) {
			t.Errorf("received %+v", m)
		}
	}
}

func TestReceiveFaults(t *testing.T) {
	t.Parallel()
	header, body := recorded(t, secretA)
	tests := map[string]struct {
		change func(h http.Header) (body string)
		want   error
	}{
		"body changed":      {func(http.Header) string { return strings.Replace(body, "1", "2", 1) }, webhook.ErrSignature},
		"id changed":        {func(h http.Header) string { h.Set("Webhook-Id", "id-2"); return body }, webhook.ErrSignature},
		"timestamp changed": {func(h http.Header) string { h.Set("Webhook-Timestamp", "1"); return body }, webhook.ErrSignature},
		"not signed":        {func(h http.Header) string { h.Del("Webhook-Signature"); return body }, webhook.ErrSignature},
		"too large":         {func(http.Header) string { return body + strings.Repeat(" ", 2<<20) }, webhook.ErrTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := header.Clone()
			changed := tt.change(h)
			if _, err := receiver(t, webhook.ReceiverConfig{Secrets: []string{secretA}}).Receive(request(h, changed)); !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
		})
	}
}

// TestBinaryIsAcceptedOnlyIfAsked: in binary mode, an intercepted message could be sent again with other attributes.
func TestBinaryIsAcceptedOnlyIfAsked(t *testing.T) {
	t.Parallel()
	header, body := recorded(t, secretA)
	header.Set("Content-Type", "application/json")
	for name, value := range map[string]string{"Ce-Specversion": "1.0", "Ce-Id": "id-1", "Ce-Source": "/x", "Ce-Type": "order.refunded"} {
		header.Set(name, value)
	}
	if _, err := receiver(t, webhook.ReceiverConfig{Secrets: []string{secretA}}).Receive(request(header, body)); !errors.Is(err, webhook.ErrMalformed) {
		t.Errorf("error = %v, want ErrMalformed", err)
	}
	m, err := receiver(t, webhook.ReceiverConfig{Secrets: []string{secretA}, AcceptBinary: true}).Receive(request(header, body))
	if err != nil || m.Type != "order.refunded" {
		t.Errorf("asked for: %+v, %v", m, err)
	}
}

// TestAge runs in a bubble, whose clock is in the year 2000: there, a message sent now is from the future.
func TestAge(t *testing.T) {
	t.Parallel()
	header, body := recorded(t, secretA)
	synctest.Test(t, func(t *testing.T) {
		r := receiver(t, webhook.ReceiverConfig{Secrets: []string{secretA}})
		if _, err := r.Receive(request(header, body)); !errors.Is(err, webhook.ErrAge) {
			t.Errorf("error = %v, want %v", err, webhook.ErrAge)
		}
	})
	r := receiver(t, webhook.ReceiverConfig{Secrets: []string{secretA}, MaxAge: time.Nanosecond})
	if _, err := r.Receive(request(header, body)); !errors.Is(err, webhook.ErrAge) {
		t.Errorf("error = %v, want %v", err, webhook.ErrAge)
	}
}

// TestHandler checks that every outcome of a handler reaches the sender as the same outcome.
func TestHandler(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	tests := map[string]struct {
		err   error
		kind  postrider.OutcomeKind
		after time.Duration
	}{
		"delivered":   {nil, postrider.Delivered, 0},
		"failed":      {boom, postrider.Retried, 0},
		"retry":       {postrider.Retry(1500*time.Millisecond, boom), postrider.Retried, 2 * time.Second},
		"snooze":      {postrider.Snooze(time.Minute), postrider.Retried, time.Minute},
		"dead":        {postrider.Dead("bad", boom), postrider.DeadLettered, 0},
		"unavailable": {postrider.Unavailable(boom), postrider.Retried, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receiver(t, webhook.ReceiverConfig{Secrets: []string{secretA}})
			url := serve(t, r.Handler(func(context.Context, *postrider.Message) error { return tt.err }).ServeHTTP)
			err := publish(t, open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback}))
			if o := postrider.OutcomeOf(err); o.Kind != tt.kind || o.After != tt.after {
				t.Errorf("outcome of %v is %d after %s, want %d after %s", err, o.Kind, o.After, tt.kind, tt.after)
			}
			if err != nil && strings.Contains(err.Error(), "boom") {
				t.Errorf("the handler's error went out: %v", err)
			}
		})
	}
}

// TestHandlerRefuses checks the responses to requests that are not valid messages.
func TestHandlerRefuses(t *testing.T) {
	t.Parallel()
	header, body := recorded(t, secretA)
	h := receiver(t, webhook.ReceiverConfig{Secrets: []string{secretA}, MaxBytes: 10_000}).Handler(
		func(context.Context, *postrider.Message) error {
			t.Error("the handler was called")
			return nil
		})
	for status, req := range map[int]*http.Request{
		http.StatusUnauthorized:          request(http.Header{}, body),
		http.StatusRequestEntityTooLarge: request(header, strings.Repeat(" ", 10_001)),
		http.StatusMethodNotAllowed:      httptest.NewRequest(http.MethodGet, "/", nil),
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != status {
			t.Errorf("status is %d, want %d", w.Code, status)
		}
	}
	w := httptest.NewRecorder()
	http.MaxBytesHandler(h, 10).ServeHTTP(w, request(header, body))
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("with a smaller limit the status is %d, want 413", w.Code)
	}
}

// TestBodyStops stops sending a body until the server times out. The response must make the sender retry (TestOutcomes),
// because the message may be fine.
func TestBodyStops(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(receiver(t, webhook.ReceiverConfig{Secrets: []string{secretA}}).Handler(
		func(context.Context, *postrider.Message) error {
			t.Error("the handler was called")
			return nil
		}))
	s.Config.ReadTimeout = 50 * time.Millisecond
	s.Start()
	t.Cleanup(s.Close)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status is %d, want %d", resp.StatusCode, http.StatusRequestTimeout)
	}
}

// FuzzReceive checks that nothing unsigned is accepted.
func FuzzReceive(f *testing.F) {
	f.Add("id", "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", `{"specversion":"1.0"}`)
	f.Add("", "", "v1,", "")
	r, err := webhook.NewReceiver(webhook.ReceiverConfig{Secrets: []string{secretB}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, timestamp, signature, body string) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signature}}
		if m, err := r.Receive(request(h, body)); !errors.Is(err, webhook.ErrSignature) {
			t.Errorf("received %+v, %v", m, err)
		}
	})
}
