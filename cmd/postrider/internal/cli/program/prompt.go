package program

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Confirm asks before an operation on many messages. Without a terminal nobody can answer, so --yes is required.
func (p *Program) Confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if _, ok := p.Width(p.Stdin); !ok {
		return Usagef("%s Nobody can answer here (standard input is not a terminal): give --yes to go on", question)
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
		return &ExitError{ExitFailed, fmt.Errorf("not confirmed; nothing was done")}
	}
}

// Progress shows the progress of long work when standard error is a terminal. A total of -1 means unknown.
type Progress struct{ bar *progressbar.ProgressBar }

// Progress shows the progress of work on a total of messages; -1 means that the total is unknown.
func (p *Program) Progress(total int64, what string) *Progress {
	width, ok := p.Width(p.Stderr)
	if !ok {
		return &Progress{}
	}
	return &Progress{progressbar.NewOptions64(total, append(barOptions(p.Stderr, width, what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("messages"))...)}
}

// ProgressBytes is progress over a file of size bytes.
func (p *Program) ProgressBytes(size int64) *Progress {
	width, ok := p.Width(p.Stderr)
	if !ok {
		return &Progress{}
	}
	return &Progress{progressbar.NewOptions64(size, append(barOptions(p.Stderr, width, "publish"), progressbar.OptionShowBytes(true))...)}
}

func barOptions(out io.Writer, width int, what string) []progressbar.Option {
	return []progressbar.Option{
		progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(max(min(width-60, 40), 8)), progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
	}
}

// Shown reports whether a bar is shown.
func (g *Progress) Shown() bool { return g.bar != nil }

// Add advances the bar. A closed terminal is no reason to stop the work.
func (g *Progress) Add(n int) {
	if g.bar != nil {
		_ = g.bar.Add(n)
	}
}

// End removes the bar.
func (g *Progress) End() {
	if g.bar != nil {
		_ = g.bar.Finish()
	}
}
