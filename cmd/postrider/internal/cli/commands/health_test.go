package commands_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// TestHealth: a process is ready, not ready, or does not answer.
func TestHealth(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" && !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	clitest.Fails(t, program.ExitNo, "not ready", "health", "--address", address)
	clitest.Contains(t, clitest.OK(t, "health", "--address", address, "--live"), "alive")
	ready.Store(true)
	clitest.Contains(t, clitest.OK(t, "health", "--address", address), "ready")
	server.Close()
	clitest.Fails(t, program.ExitFailed, "does not answer", "health", "--address", address)
}

// TestHealthOfARelay: the health check of a container finds the relay by the configuration that the relay has.
func TestHealthOfARelay(t *testing.T) {
	t.Parallel()
	url, broker := clitest.NewOutbox(t), clitest.StartNATS(t)
	relay := clitest.Start(t, nil, "relay", "--store", url, "--publisher", broker+"?stream=ORDERS", "--listen", "127.0.0.1:0")
	environ := []string{"POSTRIDER_HTTP_LISTEN=" + (<-relay.Address).String()}
	for deadline := time.Now().Add(time.Minute); ; {
		r := clitest.Invocation{Environ: environ, Args: []string{"health"}}.Run(t)
		if r.Code == program.ExitDone && r.Out == "ready\n" {
			break
		}
		if r.Code != program.ExitNo || time.Now().After(deadline) {
			t.Fatalf("exit code %d, %q\n%s", r.Code, r.Out, r.Err)
		}
	}
	relay.End(t)
}

func TestHealthNeedsAnAddress(t *testing.T) {
	t.Parallel()
	clitest.Fails(t, program.ExitUsage, "no address is given", "health")
	clitest.Fails(t, program.ExitUsage, `"nowhere" is not host:port`, "health", "--address", "nowhere")
	clitest.Fails(t, program.ExitUsage, "--timeout must be positive", "health", "--address", ":1", "--timeout", "0s")
}
