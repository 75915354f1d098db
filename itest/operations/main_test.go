// Package operations_test tests what operators are told, and what protects a program from the systems that it calls, with real servers and
// processes.
package operations_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/postrider/postrider/itest/process"
)

// patience limits every wait for something that must happen.
const patience = 5 * time.Minute

// binary is the program under test, built as users build it.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(slowServerVariable) != "" {
		slowServer()
		return
	}
	var err error
	if binary, err = process.Postrider("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
