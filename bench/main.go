// Bench measures Postrider beside what the database and the broker can do at all, and beside its peers, in one run on one
// machine. docs/performance.md says what the figures mean and what bounds them.
//
//	go run ./bench                        # everything: some 25 minutes
//	go run ./bench -quick                 # the same with few messages and one round: to see that it works
//	go run ./bench -run '^(publish|drain)$'
//	go run ./bench -check                 # fail where a ratio has fallen 15% below bench/baseline.json
//
// It starts servers of its own, which keep their data on the disk, in a temporary folder; nothing else is touched.
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
