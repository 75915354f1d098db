package shopdemo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/drawing"
	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/store"
)

// screen shows the shop: on a terminal, a dashboard of 80 × 24 that is redrawn; otherwise a line every second.
type screen struct {
	*world
	out   io.Writer
	pen   drawing.Pen
	began time.Time
	drawn int // lines of the dashboard that are on the terminal
	// rates are orders per second that became final between the last updates, for the chart.
	rates []float64
	last  figures
}

func newScreen(cfg Config, w *world) *screen {
	s := &screen{world: w, out: cfg.Out, pen: drawing.Pen(cfg.Color), began: time.Now()}
	if cfg.Width == nil {
		fmt.Fprintln(s.out, s.title())
	}
	return s
}

// title says what the shop runs on.
func (s *screen) title() string {
	services := "one process"
	if s.cfg.Processes {
		services = "four processes"
	}
	return fmt.Sprintf("postrider demo shop: %s, %s, %s, load %s, seed %d", services, s.cfg.ShownStore, s.cfg.ShownPublisher, s.cfg.Load, s.cfg.Seed)
}

// watch shows figures until ctx ends, or until the ledger is not exact.
func (s *screen) watch(ctx context.Context, l *load) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		f, err := s.read(context.WithoutCancel(ctx), l)
		if err != nil {
			return err
		}
		f.elapsed = time.Since(s.began)
		s.draw(f)
		if !f.tally.Exact() {
			return &BrokenError{f.tally.Broken}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// draw shows new figures.
func (s *screen) draw(f figures) {
	final := f.tally.Shipped + f.tally.Cancelled - s.last.tally.Shipped - s.last.tally.Cancelled
	if seconds := (f.elapsed - s.last.elapsed).Seconds(); seconds > 0 && s.last.elapsed > 0 {
		s.rates = append(s.rates, float64(final)/seconds)
		s.rates = s.rates[max(0, len(s.rates)-chartWidth):]
	}
	s.last = f
	if s.cfg.Width == nil {
		fmt.Fprintln(s.out, plainLine(f))
		return
	}
	lines, width := s.dashboard(f), max(s.cfg.Width(), minWidth)
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA", s.drawn)
	}
	for _, l := range lines {
		fmt.Fprintf(s.out, "%s\x1b[K\n", l.fit(s.pen, width-1))
	}
	s.drawn = len(lines)
}

// say prints a line under the dashboard.
func (s *screen) say(text string) {
	s.drawn = 0
	fmt.Fprintln(s.out, text)
}

// plainLine formats the figures in one line.
func plainLine(f figures) string {
	ledger := "exact"
	if !f.tally.Exact() {
		ledger = "NOT EXACT: " + f.tally.Broken[0]
	}
	return fmt.Sprintf("%6.1fs  orders: %d shipped, %d cancelled, %d timed out, %d open  sagas: %d running, %d compensating, %d stuck  p95 %d ms  stock %d  dead letters %d  ledger: %s",
		f.elapsed.Seconds(), f.tally.Shipped, f.tally.Cancelled, f.counts.TimedOut, f.tally.Open, f.sagas[store.SagaRunning], f.sagas[store.SagaCompensating],
		f.sagas[store.SagaStuck], f.p95.Milliseconds(), f.tally.Free, f.dead(), ledger)
}

func (f figures) dead() (n int64) {
	for _, s := range f.services {
		n += s.dead
	}
	return n
}

// line is a line of the dashboard: parts with their colors.
type line []part

type part struct {
	color drawing.Color
	text  string
}

// fit formats a line that is at most width columns wide.
func (l line) fit(pen drawing.Pen, width int) string {
	var b strings.Builder
	for _, p := range l {
		text := drawing.Cut(p.text, width)
		width -= len([]rune(text))
		b.WriteString(pen.Paint(p.color, text))
	}
	return b.String()
}

// minWidth is the narrowest terminal that the dashboard fits, chartWidth the number of columns of its chart.
const (
	minWidth   = 40
	chartWidth = 59
)

// dashboard returns the lines of the dashboard, at most 23.
func (s *screen) dashboard(f figures) []line {
	elapsed := clock(f.elapsed)
	if s.cfg.For > 0 {
		elapsed += " of " + clock(s.cfg.For)
	}
	lines := []line{
		{{drawing.Bold, "Postrider: a shop of four services"}, {drawing.Dim, fmt.Sprintf("%45s", elapsed)}},
		{{drawing.Dim, strings.TrimPrefix(s.title(), "postrider demo shop: ")}},
		nil,
		{{drawing.Bold, fmt.Sprintf("%-27s%-25s%s", "ORDERS", "SAGAS", "LEDGER ")}, ledgerState(f.tally)},
	}
	lines = append(lines, f.columns()...)
	lines = append(lines, nil, line{{drawing.Bold, fmt.Sprintf("%-13s%-24s%10s%10s%14s", "SERVICE", "ADDRESS", "WAITING", "PARKED", "DEAD LETTERS")}})
	for _, v := range f.services {
		lines = append(lines, line{
			{"", fmt.Sprintf("%-13s%-24s%10s", v.name, v.address, drawing.Number(v.backlog))},
			{"", fmt.Sprintf("%10s", drawing.Number(v.parked))}, {warn(v.dead > 0), fmt.Sprintf("%14s", drawing.Number(v.dead))},
		})
	}
	lines = append(lines, nil, line{{drawing.Bold, "LATEST ORDERS"}})
	for i := range latestOrders {
		if i >= len(f.latest) {
			lines = append(lines, nil) // so that the height stays the same
			continue
		}
		o := f.latest[i]
		lines = append(lines, line{{"", fmt.Sprintf("%-38s%-18s%11s  ", o.id, o.customer, o.total)}, {statusColor(o.status), string(o.status)}})
	}
	return append(lines, line{{drawing.Dim, "orders per second   "}, {drawing.Green, drawing.Chart(s.rates)}})
}

// columns are orders, sagas and ledger next to each other.
func (f figures) columns() []line {
	t := f.tally
	cell := func(label, value string, width int) string { return fmt.Sprintf("%-13s%*s", label, width-13, value) }
	row := func(order, saga, ledger string, color drawing.Color) line {
		return line{{"", fmt.Sprintf("%-27s", order)}, {color, fmt.Sprintf("%-25s", saga)}, {"", ledger}}
	}
	stuck, timedOut := f.sagas[store.SagaStuck], f.counts.TimedOut
	return []line{
		row(cell("shipped", drawing.Number(t.Shipped), 22), cell("running", drawing.Number(f.sagas[store.SagaRunning]), 20), cell("charged", t.Charged.String(), 27), ""),
		row(cell("cancelled", drawing.Number(t.Cancelled), 22), cell("compensating", drawing.Number(f.sagas[store.SagaCompensating]), 20), cell("refunded", t.Refunded.String(), 27), ""),
		row(cell("open", drawing.Number(t.Open), 22), cell("stuck", drawing.Number(stuck), 20), cell("free goods", drawing.Number(t.Free), 27), warn(stuck > 0)),
		row(cell("failed calls", drawing.Number(f.counts.Failed), 22), cell("p50", drawing.Age(f.p50), 20), cell("reserved", drawing.Number(t.Reserved), 27), ""),
		row(cell("timed out", drawing.Number(timedOut), 22), cell("p95", drawing.Age(f.p95), 20), cell("sold", drawing.Number(t.Sold), 27), warn(timedOut > 0)),
	}
}

func ledgerState(t shop.Tally) part {
	if t.Exact() {
		return part{drawing.Green, "exact"}
	}
	return part{drawing.Red, "NOT EXACT"}
}

func statusColor(s shop.Status) drawing.Color {
	switch s {
	case shop.Shipped:
		return drawing.Green
	case shop.Cancelled:
		return drawing.Yellow
	default:
		return ""
	}
}

func warn(yes bool) drawing.Color {
	if yes {
		return drawing.Yellow
	}
	return ""
}

// clock formats a duration as minutes and seconds.
func clock(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// result prints the result.
func (s *screen) result(t shop.Tally, c loadCounts, p50, p95 time.Duration, found []string) {
	heading := s.pen.Paint(drawing.Green, "Every promise was kept.")
	if len(found) > 0 {
		heading = s.pen.Paint(drawing.Red, "A promise broke.")
	}
	fmt.Fprintf(s.out, "\n%s\n  %s\n", heading, ledgerLine(t))
	fmt.Fprintf(s.out, "  %s that could succeed, %s that had to be declined; half of all took less than %d ms, 95%% less than %d ms\n",
		drawing.Plural(c.Orders, "order"), drawing.Number(c.Declined), p50.Milliseconds(), p95.Milliseconds())
	if c.TimedOut > 0 {
		fmt.Fprintf(s.out, "  %s of them timed out and what was done for them was undone: this machine is too slow for the load; choose a lower --load or a higher --step-timeout\n", drawing.Number(c.TimedOut))
	}
	if c.SoldOut > 0 {
		fmt.Fprintf(s.out, "  %s of them were refused, since goods were sold out: choose a lower --load or a shorter --replenish\n", drawing.Number(c.SoldOut))
	}
	for _, broken := range found {
		fmt.Fprintln(s.out, "  "+broken)
	}
}
