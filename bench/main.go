// Bench compares Postrider with the limits of the database and the broker, and with its peers, in one run on one machine.
// docs/performance.md explains the figures and what limits them.
//
//	go run ./bench                        # everything: about an hour
//	go run ./bench -quick                 # the same with few messages and one round: to see that it works
//	go run ./bench -run '^(publish|drain)$'
//	go run ./bench -check                 # fail where a ratio has fallen 15% below bench/baseline.json
//
// It starts its own servers, which keep their data on disk, in a temporary folder; it changes nothing else.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
