package demo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
)

// receiver is a webhook receiver in this process.
type receiver struct {
	secret  string
	address string
	handler http.Handler

	mu     sync.Mutex
	server *http.Server
	served sync.WaitGroup
	take   func(*postrider.Message) error
	failed chan error
}

// errNobodyReads makes messages wait until the consumer is ready.
var errNobodyReads = errors.New("the consumer is not there yet")

// startReceiver listens on a local address.
func startReceiver() (*receiver, error) {
	key := make([]byte, 32)
	rand.Read(key) // never fails: the program crashes if the system has no randomness
	r := &receiver{
		secret: "whsec_" + base64.StdEncoding.EncodeToString(key), address: "127.0.0.1:0", failed: make(chan error, 1),
		take: func(*postrider.Message) error { return errNobodyReads },
	}
	verify, err := webhook.NewReceiver(webhook.ReceiverConfig{Secrets: []string{r.secret}})
	if err != nil {
		return nil, err
	}
	r.handler = verify.Handler(r.receive)
	if err := r.back(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *receiver) receive(_ context.Context, m *postrider.Message) error {
	r.mu.Lock()
	take := r.take
	r.mu.Unlock()
	err := take(m)
	if err != nil && !errors.Is(err, errNobodyReads) {
		select {
		case r.failed <- err:
		default: // the first one is enough
		}
	}
	return err
}

func (r *receiver) back() error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", r.address)
	if err != nil {
		return fmt.Errorf("start the receiver: %w", err)
	}
	r.address = listener.Addr().String() // the same address after the outage
	r.server = &http.Server{Handler: r.handler, ReadHeaderTimeout: startTimeout}
	r.served.Go(func() { _ = r.server.Serve(listener) }) // returns when closed
	return nil
}

func (r *receiver) away() string {
	_ = r.server.Close()
	r.served.Wait()
	return "the receiver is shut down"
}

func (r *receiver) publisher(context.Context) (publisher, error) {
	return webhook.New(webhook.Config{
		URL: "http://" + r.address, PlainHTTP: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Secrets: []string{r.secret}, Timeout: 2 * time.Second,
	})
}

func (r *receiver) consume(ctx context.Context, take func(*postrider.Message) error) error {
	r.mu.Lock()
	r.take = take
	r.mu.Unlock()
	select {
	case err := <-r.failed:
		return fmt.Errorf("receive: %w", err)
	case <-ctx.Done():
		return nil
	}
}

func (r *receiver) end(context.Context) error {
	r.away()
	return nil
}
