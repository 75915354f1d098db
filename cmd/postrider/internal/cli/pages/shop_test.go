package pages_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/internal/servertest"
)

// TestShopInProcesses: the shop starts four processes of the program, whose handlers can be made to fail, and keeps its promises.
func TestShopInProcesses(t *testing.T) {
	t.Parallel()
	first := servertest.Port(t)
	var out bytes.Buffer
	shop := exec.CommandContext(t.Context(), filepath.Join(bin, "postrider"), "demo", "shop", "--processes", "--faults", "--plain",
		"--for", "8s", "--load", "5", "--dir", t.TempDir(), "--port", fmt.Sprint(first))
	shop.Env = append(shop.Environ(), "PROGRAM=postrider")
	shop.Stdout, shop.Stderr = &out, &out
	clitest.Must(t, shop.Start())
	ended := make(chan error, 1)
	go func() { ended <- shop.Wait() }()
	payments := fmt.Sprintf("http://127.0.0.1:%d/faults?type=card.refund&fail=true", first+2)
	accepted := false
	for look := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case err := <-ended:
			if err != nil || !accepted {
				t.Errorf("payments accepted a fault: %t; the shop ended: %v\n%s", accepted, err, out.String())
			}
			clitest.Contains(t, out.String(), "four processes, SQLite", "Every promise was kept.", "ledger exact")
			return
		case <-look.C:
			if !accepted {
				accepted = post(t, payments)
			}
		}
	}
}

// post reports whether a service has accepted a request.
func post(t *testing.T, url string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	clitest.Must(t, err)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false // it starts
	}
	clitest.Must(t, answer.Body.Close())
	return answer.StatusCode < 300
}
