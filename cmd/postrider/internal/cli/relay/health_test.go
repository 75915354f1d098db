package relay_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
)

// TestIdleConnectionsDoNotStopTheRelay: 1,300 connections that send nothing, half a request, or nothing after a request, keep neither
// messages nor other requests waiting, and are closed.
func TestIdleConnectionsDoNotStopTheRelay(t *testing.T) {
	t.Parallel()
	url, broker := clitest.NewOutbox(t), clitest.StartNATS(t)
	r := clitest.Start(t, nil, "relay", "--store", url, "--publisher", broker+"?stream=ORDERS", "--listen", "127.0.0.1:0")
	address := <-r.Address
	awaitStatus(t, address, http.StatusOK)
	idle := make([]net.Conn, 1300)
	for i := range idle {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address.String())
		clitest.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		request := []string{"", "GET /readyz HTTP/1.1\r\nHost: x\r\nX: ", "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"}[i%3]
		_, _ = io.WriteString(conn, request) // it may be closed already
		idle[i] = conn
	}
	clitest.PublishKeys(t, url, "order/1")
	clitest.Arrivals(t, broker, "ORDERS", 1)
	for _, path := range []string{"livez", "readyz"} {
		if code, body := get(t, fmt.Sprintf("http://%s/%s", address, path)); code != http.StatusOK {
			t.Errorf("/%s is %d with idle connections: %s", path, code, body)
		}
	}
	for i, conn := range idle { // each is closed: those beyond the limit at once, the others when their time is over
		clitest.Must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Fatalf("connection %d stays open", i)
		}
	}
	awaitStatus(t, address, http.StatusOK)
	r.End(t)
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
