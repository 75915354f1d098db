package demo

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/drawing"
	"github.com/postrider/postrider/store"
)

// figures is what the screen shows at one time.
type figures struct {
	elapsed   time.Duration
	committed int64
	tally
	orders, rolledBack    int64
	status                store.RelayStatus
	brokerAway, relayDown bool
	// err is why figures are missing.
	err error
}

// screen shows the demo: on a terminal a dashboard that is redrawn below the lines of the script, otherwise plain lines.
type screen struct {
	out    io.Writer
	length time.Duration
	title  string
	pen    drawing.Pen
	// columns returns the terminal's width; nil without a terminal.
	columns func() int

	mu    sync.Mutex
	began time.Time
	// width is the last result of columns.
	width int
	// drawn is how many lines of the dashboard are on the terminal.
	drawn int
	last  figures
	// rates are messages per second received between the last updates, for the chart.
	rates []float64
}

func newScreen(cfg Config) *screen {
	s := &screen{
		out: cfg.Out, length: cfg.For, columns: cfg.Width, pen: drawing.Pen(cfg.Color), began: time.Now(),
		title: fmt.Sprintf("postrider demo: %s to %s", cfg.Shown, cfg.ShownPublisher),
	}
	if !s.live() {
		fmt.Fprintln(s.out, s.title)
	}
	return s
}

// begin sets the start of the times on the screen.
func (s *screen) begin(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = at
}

func (s *screen) live() bool { return s.columns != nil }

// interval is the time between two updates, or plain lines.
func (s *screen) interval() time.Duration {
	if s.live() {
		return 100 * time.Millisecond
	}
	return time.Second
}

// step prints one step of the script. It stays on the screen, above the dashboard.
func (s *screen) step(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := fmt.Sprintf("%5.1fs", time.Since(s.began).Seconds())
	s.wipe()
	text := fmt.Sprintf(format, args...)
	if !s.live() {
		fmt.Fprintf(s.out, "%s  %s\n", at, text)
		return
	}
	for i, line := range drawing.Wrap(text, s.width-9) {
		if i > 0 {
			at = "      "
		}
		fmt.Fprintf(s.out, "%s  %s\n", s.pen.Paint(drawing.Dim, at), line)
	}
	s.redraw()
}

// draw shows new figures.
func (s *screen) draw(f figures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seconds := (f.elapsed - s.last.elapsed).Seconds(); seconds > 0 {
		s.rates = append(s.rates, float64(f.Received-s.last.Received)/seconds)
		s.rates = s.rates[max(0, len(s.rates)-chartWidth):]
	}
	s.last = f
	if !s.live() {
		fmt.Fprintln(s.out, plainLine(f))
		return
	}
	s.wipe()
	s.redraw()
}

// minWidth is the narrowest terminal that the dashboard fits.
const minWidth = 30

// wipe removes the dashboard from the terminal, and updates the width.
func (s *screen) wipe() {
	if s.live() {
		s.width = max(s.columns(), minWidth)
	}
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// redraw draws the dashboard.
func (s *screen) redraw() {
	lines := s.dashboard(s.last)
	fmt.Fprint(s.out, strings.Join(lines, "\n")+"\n")
	s.drawn = len(lines)
}

// plainLine formats the figures in one line.
func plainLine(f figures) string {
	return fmt.Sprintf("%5.1fs  committed %d  delivered %d  age %s  lost %d  duplicates %d  order violations %d  held keys %d  parked %d  dead letters %d",
		f.elapsed.Seconds(), f.committed, f.Received, drawing.Age(f.status.Age), f.Missing, f.Duplicates, f.Disorder,
		f.status.Held.N, f.status.Parked.N, f.status.Dead.N)
}

// result prints the result.
func (s *screen) result(f Findings, orders, rolledBack int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		fmt.Fprintf(s.out, "\n%s %v\n", s.pen.Paint(drawing.Red, "The demo failed:"), err)
		return
	}
	heading := s.pen.Paint(drawing.Green, "Every promise was kept.")
	if !f.Held() {
		heading = s.pen.Paint(drawing.Red, "A promise broke.")
	}
	fmt.Fprintf(s.out, "\n%s\n", heading)
	lines := append([]string{
		fmt.Sprintf("%s in %s were committed; the consumer received %s and %s",
			drawing.Plural(f.Committed, "message"), drawing.Plural(orders, "order"), drawing.Number(f.Received), drawing.Plural(f.Duplicates, "duplicate")),
		fmt.Sprintf("lost %d · invented %d · altered %d · order violations %d · in the dead letters %d",
			f.Lost, f.Invented, f.Altered, f.Disorder, f.Dead),
		fmt.Sprintf("%s rolled back; a message of theirs would count as invented", drawing.Plural(rolledBack, "order")),
	}, f.Named...)
	width := s.width - 3
	if !s.live() {
		width = math.MaxInt
	}
	for _, text := range lines {
		for _, line := range drawing.Wrap(text, width) {
			fmt.Fprintf(s.out, "  %s\n", line)
		}
	}
}
