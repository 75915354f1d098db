package servertest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Servers get ports below the range from which systems take ephemeral ones (Linux: 32768 to 60999). Otherwise a listener or an
// outgoing connection of another test could take the port of a server that is being restarted, and its clients would reach
// something else.
const firstPort, lastPort = 15_000, 32_000

var given sync.Map // ports, so that none is used twice in this process

// FreePort returns a port of the loopback interface on which nothing listens.
func FreePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, used := given.LoadOrStore(port, true); used {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 15000 and 32000")
}

// Port is FreePort for a test.
func Port(t testing.TB) int {
	t.Helper()
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
