// Postrider moves messages from the outbox of a database to a broker and lets operators see and repair what is stuck.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(cli.Run(context.Background(), &program.Program{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Environ: os.Environ(), Signals: signals, Exit: os.Exit,
	}, os.Args[1:]))
}
