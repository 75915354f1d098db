package commands_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/doctor"
)

// hook is the URL of a publisher for a webhook on this host.
func hook(server string) string {
	return server + "/hook#plain_http=true&allow=127.0.0.0/8&secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
}

// examineOne returns the result of one check.
func examineOne(t *testing.T, url, check string) doctor.Result {
	t.Helper()
	r, _ := examine(t, check, "--store", url)
	return r.Results[0]
}

// eventually waits until something is so, while a process runs.
func eventually(t *testing.T, r *clitest.Process, done func() bool) {
	t.Helper()
	for end := time.Now().Add(clitest.Patience); !done(); <-time.After(10 * time.Millisecond) {
		r.Works(t)
		if time.Now().After(end) {
			t.Fatalf("it did not happen:\n%s", r.Err.String())
		}
	}
}

// TestFixOfAHeldKey: the printed fix lets go the key that is held longest, as soon as a relay that runs has delivered its messages; and the
// check names the next one.
func TestFixOfAHeldKey(t *testing.T) {
	t.Parallel()
	var repaired atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !repaired.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	url := clitest.NewOutbox(t)
	config := clitest.WriteFile(t, fmt.Sprintf("store: {url: %q}\nrelays:\n  - {name: to-hook, publisher: %q, backoff_base: 24h, backoff_max: 24h}\n", url, hook(server.URL)))
	clitest.PublishKeys(t, url, "order/1", "order/2", "order/1")
	r := clitest.Start(t, nil, "relay", "--config", config)
	held := func(n int) func() bool {
		return func() bool { return strings.Count(clitest.OK(t, "held", "list", "--store", url), "order/") == n }
	}
	eventually(t, r, held(2))
	passes(t, url, "relay.held")
	later(t, url, 600, "held.since")
	repaired.Store(true)
	paste(t, found(t, url, "relay.held").Fix[1].Command)
	eventually(t, r, held(1))
	f := found(t, url, "relay.held")
	if !strings.Contains(f.Message, "holds 1 key,") {
		t.Errorf("one key is left: %+v", f)
	}
	paste(t, f.Fix[1].Command)
	eventually(t, r, held(0))
	passes(t, url, "relay.held")
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d", code)
	}
}

// TestDoctorOfDestinations: a broker that is not there is a fault of the relay of the configuration, until it is there; and the broker is
// asked, not changed. A window that is too short is a warning, until the URL has the one of the fix.
func TestDoctorOfDestinations(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s", r.Method, r.URL) }))
	t.Cleanup(server.Close)
	look := func(server, window, check string) doctor.Result {
		t.Helper()
		config := clitest.WriteFile(t, fmt.Sprintf(`store: {url: %q}
relays:
  - {name: to-hook, publisher: %q}
  - {name: to-nats, publisher: "nats://127.0.0.1:4222?stream=SHOP&%s"}
`, url, hook(server), window))
		r, code := examine(t, check, "--config", config)
		if failed := r.Results[0].Outcome == doctor.Faulty; (code == program.ExitNo) != failed {
			t.Errorf("exit code %d: %+v", code, r)
		}
		return r.Results[0]
	}
	const short = "dedupe_window=10s"
	nobody := "http://127.0.0.1:1" // a port that no test is given
	if r := look(nobody, short, "destination.to-hook"); r.Outcome != doctor.Faulty {
		t.Errorf("nobody listens: %+v", r)
	}
	if r := look(server.URL, short, "destination.to-hook"); r.Outcome != doctor.Passed {
		t.Errorf("after the fix: %+v", r)
	}
	r := look(nobody, short, "relay.horizon.to-nats")
	if r.Outcome != doctor.Warned {
		t.Fatalf("a window of 10 s: %+v", r)
	}
	if r := look(nobody, r.Findings[0].Fix[0].Command, "relay.horizon.to-nats"); r.Outcome != doctor.Passed {
		t.Errorf("after the fix: %+v", r)
	}
}
