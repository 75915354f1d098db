package webhook_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
)

func open(t *testing.T, cfg webhook.Config) *webhook.Publisher {
	t.Helper()
	if cfg.Secrets == nil {
		cfg.Secrets = []string{secretA}
	}
	p, err := webhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

func message() *postrider.Message {
	return &postrider.Message{ID: "id-1", Type: "order.placed", Source: "/shop", Topic: "orders", ContentType: "application/json", Payload: []byte(`{"n":1}`)}
}

// publish sends one message and returns its error.
func publish(t *testing.T, p *webhook.Publisher) error {
	t.Helper()
	errs := p.Publish(t.Context(), []*postrider.Message{message()})
	if errs == nil {
		return nil
	}
	return errs[0]
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status     int
		retryAfter string
		kind       postrider.OutcomeKind
		after      time.Duration
	}{
		{200, "", postrider.Delivered, 0},
		{204, "", postrider.Delivered, 0},
		{302, "", postrider.Retried, 0},
		{400, "", postrider.DeadLettered, 0},
		{401, "", postrider.DeadLettered, 0},
		{404, "", postrider.DeadLettered, 0},
		{408, "", postrider.Retried, 0},
		{410, "", postrider.DeadLettered, 0},
		{425, "", postrider.Retried, 0},
		{429, "17", postrider.Retried, 17 * time.Second},
		{500, "", postrider.Retried, 0},
		{503, "5", postrider.Retried, 5 * time.Second},
	}
	for _, tt := range tests {
		t.Run(strconv.Itoa(tt.status), func(t *testing.T) {
			t.Parallel()
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.retryAfter != "" {
					w.Header().Set("Retry-After", tt.retryAfter)
				}
				w.WriteHeader(tt.status)
				if tt.status != 204 {
					_, _ = io.WriteString(w, "because")
				}
			})
			err := publish(t, open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback}))
			if o := postrider.OutcomeOf(err); o.Kind != tt.kind || o.After != tt.after {
				t.Errorf("outcome of %v is %d after %s, want %d after %s", err, o.Kind, o.After, tt.kind, tt.after)
			}
			if err != nil {
				wantError(t, err, strconv.Itoa(tt.status), "because")
			}
		})
	}
}

// TestRequest checks a request as a receiver sees it that does not use this package.
func TestRequest(t *testing.T) {
	t.Parallel()
	for _, binary := range []bool{false, true} {
		got := make(chan *http.Request, 1)
		body := make(chan string, 1)
		url := serve(t, func(_ http.ResponseWriter, req *http.Request) {
			b, _ := io.ReadAll(req.Body)
			got <- req
			body <- string(b)
		})
		p := open(t, webhook.Config{
			URL: url + "/hook", PlainHTTP: true, Allow: loopback, Binary: binary, Secrets: []string{secretA, secretB},
			Header: http.Header{"authorization": {"Bearer x"}},
		})
		if err := publish(t, p); err != nil {
			t.Fatal(err)
		}
		req := <-got
		want := map[string]string{"Idempotency-Key": "id-1", "Webhook-Id": "id-1", "Authorization": "Bearer x"}
		wantBody := `{"n":1}`
		if binary {
			want["Content-Type"], want["Ce-Id"], want["Ce-Type"] = "application/json", "id-1", "order.placed"
		} else {
			want["Content-Type"] = "application/cloudevents+json; charset=utf-8"
			wantBody = string(postrider.EncodeCloudEvent(message()))
		}
		for name, value := range want {
			if req.Header.Get(name) != value {
				t.Errorf("binary %v: %s is %q, want %q", binary, name, req.Header.Get(name), value)
			}
		}
		if b := <-body; b != wantBody {
			t.Errorf("binary %v: body is %s, want %s", binary, b, wantBody)
		}
		if req.Method != http.MethodPost || req.URL.Path != "/hook" {
			t.Errorf("request is %s %s", req.Method, req.URL.Path)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	target := serve(t, func(http.ResponseWriter, *http.Request) { followed.Store(true) })
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, target, http.StatusTemporaryRedirect)
	})
	err := publish(t, open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback}))
	wantError(t, err, "redirects are not followed", target)
	if followed.Load() {
		t.Error("the redirect was followed")
	}
}

// TestPrivateAddress checks that no request reaches this machine, neither by address nor by name.
func TestPrivateAddress(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	url := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	_, port, err := net.SplitHostPort(url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		err := publish(t, open(t, webhook.Config{URL: "http://" + host + ":" + port, PlainHTTP: true}))
		if o := postrider.OutcomeOf(err); o.Kind != postrider.BrokerUnavailable || !errors.Is(err, webhook.ErrAddressNotAllowed) {
			t.Errorf("%s: %v, want unavailable for an address that is not allowed", host, err)
		}
	}
	if reached.Load() {
		t.Error("a request arrived")
	}
}

func TestCertificateIsVerified(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // would log the handshake error that the test expects
	s.StartTLS()
	t.Cleanup(s.Close)
	err := publish(t, open(t, webhook.Config{URL: s.URL, Allow: loopback}))
	if o := postrider.OutcomeOf(err); o.Kind != postrider.BrokerUnavailable {
		t.Errorf("unknown authority: %v, want unavailable", err)
	}
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if err := publish(t, open(t, webhook.Config{URL: s.URL, Allow: loopback, TLS: &tls.Config{RootCAs: roots}})); err != nil {
		t.Errorf("known authority: %v", err)
	}
}

// TestEndlessAnswer checks that reading an endless response stops once its status is known.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	if err := publish(t, open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback})); err != nil {
		t.Error(err)
	}
}

// TestConcurrency checks that no more requests run concurrently than configured, over all calls.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int32
	url := serve(t, func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			old := most.Load()
			if n <= old || most.CompareAndSwap(old, n) {
				break
			}
		}
	})
	p := open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback, Concurrency: 3})
	msgs := make([]*postrider.Message, 40)
	for i := range msgs {
		msgs[i] = message()
	}
	done := make(chan struct{})
	for range 3 {
		go func() {
			p.Publish(t.Context(), msgs)
			done <- struct{}{}
		}()
	}
	for range 3 {
		<-done
	}
	if most.Load() > 3 {
		t.Errorf("%d requests were under way at once, want 3 at most", most.Load())
	}
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := webhook.New(webhook.Config{
		URL: "ftp://host/x", Timeout: -1, Concurrency: -1, MaxMessageBytes: -1, TLS: &tls.Config{InsecureSkipVerify: true},
		Header: http.Header{"Webhook-Id": {"x"}, "Ce-Type": {"x"}, "host": {"x"}, "X-A": {"a\r\nb"}, "X B": {"b"}},
		Allow:  []netip.Prefix{{}}, KeepAttempts: -1, CertFile: "c", Attempts: &attemptLog{},
	})
	wantError(t, err, `scheme "ftp"`, "timeout is", "concurrency is -1", "largest message is -1", "does not verify certificates",
		"header Webhook-Id is set", "header Ce-Type is set", "header host is set", `header "X-A" has`, `header "X B" has`, "no secret",
		"a prefix that is none", "time to keep attempts", "give both files", "set Relay")
	for url, want := range map[string]string{
		"": "https://host/path", "host/x": "https://host/path", "http://host": "is not encrypted", "https://u:secret@host": "has a user in it",
	} {
		_, err := webhook.New(webhook.Config{URL: url, Secrets: []string{secretA}})
		wantError(t, err, want)
	}
}

// TestConnectionLost: a receiver that closes every connection without an answer, like a proxy without a backend, is
// Unavailable. A receiver that does so for one message, and answers others meanwhile, is not.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	for name, answersOthers := range map[string]bool{"for all": false, "for one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began, answered := make(chan struct{}), make(chan struct{})
			begin := sync.OnceFunc(func() { close(began) })
			url := serve(t, func(_ http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				if req.Header.Get("Idempotency-Key") == "other" {
					<-began
					return
				}
				begin()
				if answersOthers {
					<-answered
				}
				panic(http.ErrAbortHandler)
			})
			p := open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback})
			if answersOthers {
				go func() {
					defer close(answered)
					other := message()
					other.ID = "other"
					if errs := p.Publish(t.Context(), []*postrider.Message{other}); errs != nil {
						t.Error(errs)
					}
				}()
			}
			want := postrider.BrokerUnavailable
			if answersOthers {
				want = postrider.Retried
			}
			if err := publish(t, p); postrider.OutcomeOf(err).Kind != want {
				t.Errorf("outcome of %v is %s, want %s", err, postrider.OutcomeOf(err).Kind, want)
			}
		})
	}
}

// TestNoTimeLeft: the context of a call ends while a message waits for another's answer: it was not sent, so it is not
// an attempt.
func TestNoTimeLeft(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		cancel()
		<-req.Context().Done()
	})
	p := open(t, webhook.Config{URL: url, PlainHTTP: true, Allow: loopback, Concurrency: 1})
	one, two := message(), message()
	two.ID = "id-2"
	errs := p.Publish(ctx, []*postrider.Message{one, two})
	if o := postrider.OutcomeOf(errs[0]); o.Kind != postrider.Retried {
		t.Errorf("outcome of the message that was sent is %s, want retried: %v", o.Kind, errs[0])
	}
	if o := postrider.OutcomeOf(errs[1]); o.Kind != postrider.Snoozed || !errors.Is(errs[1], context.Canceled) {
		t.Errorf("outcome of the message that was not sent is %s, want snoozed: %v", o.Kind, errs[1])
	}
}
