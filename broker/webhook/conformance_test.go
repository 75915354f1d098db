package webhook_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	"github.com/postrider/postrider/broker/webhook"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, binary := range map[string]bool{"structured": false, "binary": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			features := brokertest.Features{
				NoDedupe:       true,
				NoLoseMessages: true, // net/http itself retries a request whose connection broke before any answer
			}
			brokertest.Run(t, features, func(t *testing.T) brokertest.Harness { return harness(t, binary) })
		})
	}
}

func harness(t *testing.T, binary bool) brokertest.Harness {
	e := newEndpoint(t)
	p, err := webhook.New(webhook.Config{
		URL: "http://" + e.address, Secrets: []string{secretA}, PlainHTTP: true, Allow: loopback, Binary: binary,
		Timeout: 15 * time.Second, MaxMessageBytes: 64 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	return brokertest.Harness{
		Publisher: p, Close: p.Close, Arrived: e.arrived,
		Refuse: e.mark(e.refuse), LoseAcks: e.mark(e.loseAck),
		Drop:  func() { e.server.CloseClientConnections() },
		Stop:  func(testing.TB) { e.stop() },
		Start: e.start,
		Pause: e.pause, Resume: e.resume,
	}
}

// endpoint is a receiver that keeps accepted messages and causes faults on demand.
type endpoint struct {
	address  string
	receiver *webhook.Receiver
	server   *httptest.Server

	mu              sync.Mutex
	kept            []*postrider.Message
	refuse, loseAck map[string]bool
	resumed         chan struct{} // closed unless paused
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	receiver, err := webhook.NewReceiver(webhook.ReceiverConfig{Secrets: []string{secretA}, AcceptBinary: true})
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{
		address: "127.0.0.1:0", receiver: receiver,
		refuse: make(map[string]bool), loseAck: make(map[string]bool), resumed: make(chan struct{}),
	}
	close(e.resumed)
	e.start(t)
	e.address = e.server.Listener.Addr().String()
	t.Cleanup(func() {
		e.resume()
		e.stop()
	})
	return e
}

func (e *endpoint) start(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	e.server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	_ = e.server.Listener.Close()
	e.server.Listener = listener
	e.server.Start()
}

func (e *endpoint) stop() {
	e.server.CloseClientConnections()
	e.server.Close()
}

func (e *endpoint) serve(w http.ResponseWriter, req *http.Request) {
	e.mu.Lock()
	resumed := e.resumed
	e.mu.Unlock()
	select {
	case <-resumed:
	case <-req.Context().Done():
		return
	}
	m, err := e.receiver.Receive(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse[m.ID] {
		delete(e.refuse, m.ID)
		http.Error(w, "refused", http.StatusInternalServerError)
		return
	}
	e.kept = append(e.kept, m)
	if e.loseAck[m.ID] {
		delete(e.loseAck, m.ID)
		panic(http.ErrAbortHandler)
	}
}

func (e *endpoint) arrived(_ testing.TB, topic string) []*postrider.Message {
	e.mu.Lock()
	defer e.mu.Unlock()
	var msgs []*postrider.Message
	for _, m := range e.kept {
		if m.Topic == topic {
			msgs = append(msgs, m)
		}
	}
	return msgs
}

func (e *endpoint) mark(set map[string]bool) func(ids ...string) {
	return func(ids ...string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, id := range ids {
			set[id] = true
		}
	}
}

func (e *endpoint) pause() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resumed = make(chan struct{})
}

func (e *endpoint) resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.resumed:
	default:
		close(e.resumed)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}
