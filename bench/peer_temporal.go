package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/postrider/postrider/bench/internal/report"
)

// temporalPeer runs the same sagas as workflows of Temporal, go.temporal.io/server, on the same PostgreSQL server. Its services, its worker and
// its clients are one process, the program of bench/temporal.
const temporalPeer = "Temporal, with three activities"

type temporal struct {
	orders  io.Writer
	answers *bufio.Scanner
}

// newTemporal starts the program and waits until its server runs.
func newTemporal(ctx context.Context, b *bundle) (*temporal, error) {
	ctx, cancel := context.WithCancel(ctx)
	program := exec.CommandContext(ctx, b.options.temporal, b.postgresURL, strconv.Itoa(b.n))
	program.Stderr, program.WaitDelay = os.Stderr, 10*time.Second
	orders, err := program.StdinPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	answers, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	b.after(func() {
		cancel()
		_ = program.Wait() // it was killed
	})
	t := &temporal{orders, bufio.NewScanner(answers)}
	if !t.answers.Scan() { // "ready"
		return nil, fmt.Errorf("%s has ended: %w", b.options.temporal, cmp.Or(t.answers.Err(), io.ErrUnexpectedEOF))
	}
	return t, nil
}

// run lets the program run workflows. It measures its own processor time.
func (t *temporal) run(context.Context) (report.Figures, error) {
	if _, err := fmt.Fprintln(t.orders, "run"); err != nil {
		return nil, err
	}
	if !t.answers.Scan() {
		return nil, fmt.Errorf("Temporal's program has ended: %w", cmp.Or(t.answers.Err(), io.ErrUnexpectedEOF))
	}
	var figures report.Figures
	return figures, json.Unmarshal(t.answers.Bytes(), &figures)
}
