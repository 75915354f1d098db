package main

import (
	"os"
	"strings"
	"testing"
)

// TestQuick measures every pair once.
func TestQuick(t *testing.T) {
	t.Parallel()
	url := os.Getenv("POSTRIDER_TEST_POSTGRES")
	if url == "" {
		t.Fatal("POSTRIDER_TEST_POSTGRES is not set: run the tests with make test, which starts the servers")
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"-quick", "-postgres", url}, &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != len(pairs)+1 {
		t.Errorf("%d lines, want one for each of %d pairs and a head:\n%s", n, len(pairs), out.String())
	}
}
