package serve_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/internal/servertest"
)

// TestAPIIsAsDescribed: Schemathesis makes requests at the bounds of what the description allows, and beyond them. No answer is an error of
// the server, none differs from the description, and what the description does not allow is refused. What each role may do, other tests show.
func TestAPIIsAsDescribed(t *testing.T) {
	t.Parallel()
	schemathesis(t, "admin", "--phases", "coverage", "--seed", "1")
}

// TestAPITorture is the long form of TestAPIIsAsDescribed: each role, with random requests, other ones each time. To JSON Schema, 1.0 is an
// integer; it may be refused.
func TestAPITorture(t *testing.T) {
	if os.Getenv("POSTRIDER_TORTURE") == "" {
		t.Skip("POSTRIDER_TORTURE is not set")
	}
	for _, role := range []string{"viewer", "operator", "admin"} {
		t.Run(role, func(t *testing.T) {
			schemathesis(t, role, "--max-examples", "200", "--exclude-checks", "positive_data_acceptance")
		})
	}
}

// schemathesis runs Schemathesis against a server, with an access token of a role.
func schemathesis(t *testing.T, role string, flags ...string) {
	t.Helper()
	program := filepath.Join(servertest.Get(t, servertest.Clients), "python", "bin", "schemathesis")
	store := clitest.WithDead(t)
	serve := clitest.Start(t, nil, "serve", "--store", store, "--listen", "127.0.0.1:0", "--print-code")
	token := strings.TrimSpace(clitest.OK(t, "token", "create", "--store", store, "--name", "fuzz", "--role", role))
	cmd := exec.CommandContext(t.Context(), program, append([]string{"run", fmt.Sprintf("http://%s/api/v1/openapi.json", <-serve.Address),
		"--header", "Authorization: Bearer " + token, "--request-timeout", "600", "--no-color"}, flags...)...)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	serve.End(t)
}
