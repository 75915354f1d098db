package pages_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDemoWithoutItsRedis: the demo says itself that Redis does not answer. The lines of the client, which would go to the process's
// standard error, are left out.
func TestDemoWithoutItsRedis(t *testing.T) {
	t.Parallel()
	x := open(t, t.TempDir(), append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TERM=xterm"), "postrider demo --for 5s --plain --publisher redis://127.0.0.1:1")
	x.await(t, regexp.MustCompile(`to redis://127\.0\.0\.1:1`))
	x.typed(t, interrupt)
	if code := x.end(t); code == 0 || !strings.Contains(x.text(), "remove the keys") || strings.Contains(x.text(), "pool.go") {
		t.Errorf("ended with %d and wrote:\n%s", code, x.text())
	}
}
