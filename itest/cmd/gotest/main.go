// Gotest runs go test and sums up: a line for each package, the output of what failed, the names of what was skipped, and
// at the end, alone on its line,
//
//	123 passed, 0 failed
//
// The arguments are those of go test. The exit code is not 0 if anything failed, or if no test ran at all.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
)

func main() {
	cmd := exec.Command("go", slices.Concat([]string{"test", "-json"}, os.Args[1:])...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	good := summarise(events, os.Stdout)
	if err := cmd.Wait(); err != nil || !good {
		os.Exit(1)
	}
}
