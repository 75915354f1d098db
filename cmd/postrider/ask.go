package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
)

// confirm asks before an operation on many messages. Without a terminal nobody can answer, so --yes is required.
func (p *Program) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if _, ok := p.terminal(p.Stdin); !ok {
		return usagef("%s Nobody can answer here (standard input is not a terminal): give --yes to go on", question)
	}
	fmt.Fprintf(p.Stderr, "%s [y/N] ", question)
	line, err := bufio.NewReader(p.Stdin).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	default:
		return &exitError{exitFailed, fmt.Errorf("not confirmed; nothing was done")}
	}
}

// progress shows the progress of long work when standard error is a terminal. A total of -1 means unknown.
type progress struct{ bar *progressbar.ProgressBar }

func (p *Program) progress(total int64, what string) *progress {
	width, ok := p.terminal(p.Stderr)
	if !ok {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(total, append(barOptions(p.Stderr, width, what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("messages"))...)}
}

// progressBytes is progress over a file of size bytes.
func (p *Program) progressBytes(size int64) *progress {
	width, ok := p.terminal(p.Stderr)
	if !ok {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(size, append(barOptions(p.Stderr, width, "publish"), progressbar.OptionShowBytes(true))...)}
}

func barOptions(out io.Writer, width int, what string) []progressbar.Option {
	return []progressbar.Option{
		progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(max(min(width-60, 40), 8)), progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
	}
}

// add advances the bar. A closed terminal is no reason to stop the work.
func (g *progress) add(n int) {
	if g.bar != nil {
		_ = g.bar.Add(n)
	}
}

// end removes the bar.
func (g *progress) end() {
	if g.bar != nil {
		_ = g.bar.Finish()
	}
}
