package rabbitmqbroker_test

import (
	"net/url"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider/internal/servertest"
)

// running returns the URL of the server that all tests share. It cannot be restarted.
func running(t testing.TB) string {
	t.Helper()
	return servertest.Get(t, servertest.RabbitMQ)
}

// hostOf returns the host:port of a URL.
func hostOf(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("POSTRIDER_TEST_RABBITMQ: %v", err)
	}
	return u.Host
}

// through returns a URL with the host of a proxy.
func through(t testing.TB, address string, p *proxy) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("POSTRIDER_TEST_RABBITMQ: %v", err)
	}
	u.Host = p.Address()
	return u.String()
}

// dial opens a channel that is closed at the end of the test.
func dial(t testing.TB, address string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // a stopped server has already closed it
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// patience bounds the wait for everything that must happen eventually.
const patience = 5 * time.Minute
