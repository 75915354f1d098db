package rabbitmqbroker_test

import (
	"net/url"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider/internal/servertest"
)

// running is the URL of the server that all tests share. It cannot be restarted.
func running(t testing.TB) string {
	t.Helper()
	return servertest.Get(t, servertest.RabbitMQ)
}

// hostOf is the host:port of a URL.
func hostOf(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("POSTRIDER_TEST_RABBITMQ: %v", err)
	}
	return u.Host
}

// through is a URL with the host of a proxy.
func through(t testing.TB, address string, p *proxy) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("POSTRIDER_TEST_RABBITMQ: %v", err)
	}
	u.Host = p.Address()
	return u.String()
}

// dial opens a channel of the test's own, that ends with it.
func dial(t testing.TB, address string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // a server that was stopped has ended it
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// patience is the time for what must happen sooner or later.
const patience = 5 * time.Minute
