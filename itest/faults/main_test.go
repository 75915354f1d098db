package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/postrider/postrider/itest/process"
)

// patience limits every wait for something that must happen.
const patience = 5 * time.Minute

// shortLease is for tests of lease expiry.
const shortLease = 5 * time.Second

// program is the program under test, built as users build it.
var program string

func TestMain(m *testing.M) {
	runChild()
	flag.Parse()
	parallel := true
	flag.Visit(func(f *flag.Flag) { parallel = parallel && f.Name != "test.parallel" })
	if parallel { // most tests wait, for a lease to end or for a server to start
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	var err error
	if program, err = process.Postrider("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// loadTime is how long a load runs: short in the test suite, as set by make torture otherwise.
func loadTime(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("POSTRIDER_TORTURE")
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("POSTRIDER_TORTURE: %v", err)
	}
	return d
}

// seeded returns the random source of a test. POSTRIDER_SEED repeats an earlier run.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("POSTRIDER_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("POSTRIDER_SEED: %v", err)
		}
	}
	t.Logf("POSTRIDER_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// serverDir is a test folder accessible to servers that run as another user.
func serverDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// await polls until left returns "": nothing is left to wait for.
func await(t *testing.T, what string, left func() string) {
	t.Helper()
	if missing := awaitUntil(t, time.Now().Add(patience), left); missing != "" {
		t.Fatalf("waited %s in vain until %s: %s", patience, what, missing)
	}
}

// awaitUntil polls until left returns "", or the deadline has passed, and returns what was left then.
func awaitUntil(t *testing.T, deadline time.Time, left func() string) string {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		missing := left()
		if missing == "" {
			return ""
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return missing
		}
	}
}
