package main

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/servertest"
)

// TestQuick measures every pair once.
func TestQuick(t *testing.T) {
	t.Parallel()
	url := servertest.Get(t, servertest.Postgres)
	var out strings.Builder
	if err := run(t.Context(), []string{"-quick", "-postgres", url}, &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != len(pairs)+1 {
		t.Errorf("%d lines, want one for each of %d pairs and a head:\n%s", n, len(pairs), out.String())
	}
}
