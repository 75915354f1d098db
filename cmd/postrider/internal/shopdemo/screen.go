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
	width int // of the terminal
	drawn int // lines of the dashboard that are on the terminal
	// closing: the shop is closed, and orders are still in progress.
	closing bool
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
	s.width = max(s.cfg.Width(), minWidth)
	var frame strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&frame, "\r\x1b[%dA", s.drawn)
	}
	lines := s.dashboard(f)
	for _, l := range lines {
		frame.WriteString(l.Fit(s.pen, s.width-1) + "\x1b[K\n")
	}
	s.drawn = len(lines)
	fmt.Fprint(s.out, frame.String()+"\x1b[J")
}

// close says that the shop closes.
func (s *screen) close() {
	s.closing = true
	if s.cfg.Width == nil {
		fmt.Fprintln(s.out, "the shop closes; waiting for open orders")
	}
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

// minWidth is the narrowest terminal that the dashboard fits, chartWidth the number of columns of its chart.
const (
	minWidth   = 40
	chartWidth = 50
)

// dashboard returns the lines of the dashboard, at most 23 on a terminal of 80 columns.
func (s *screen) dashboard(f figures) []drawing.Line {
	elapsed := clock(f.elapsed)
	if s.cfg.For > 0 {
		elapsed += " of " + clock(s.cfg.For)
	}
	if s.closing {
		elapsed = fmt.Sprintf("closed; %s in progress", drawing.Plural(f.tally.Open, "order"))
	}
	lines := []drawing.Line{
		{drawing.Bold.Part("Postrider: a shop of four services"), drawing.Dim.Part(fmt.Sprintf("%45s", elapsed))},
		{drawing.Dim.Part(strings.TrimPrefix(s.title(), "postrider demo shop: "))},
		nil,
	}
	lines = append(lines, drawing.Columns(s.width-1, f.groups()...)...)
	lines = append(append(lines, nil), f.servicesTable()...)
	lines = append(append(lines, nil), f.ordersTable()...)
	rate := ""
	if n := len(s.rates); n > 0 {
		rate = fmt.Sprintf("%9.1f", s.rates[n-1])
	}
	return append(lines, drawing.Line{
		drawing.Plain.Part("orders per second   "), drawing.Green.Part(fmt.Sprintf("%-*s", chartWidth, drawing.Chart(s.rates))), drawing.Plain.Part(rate),
	})
}

func (f figures) servicesTable() []drawing.Line {
	lines := []drawing.Line{{drawing.Bold.Part(fmt.Sprintf("%-46s%9s%10s%14s", "SERVICES", "WAITING", "PARKED", "DEAD LETTERS"))}}
	for _, v := range f.services {
		lines = append(lines, drawing.Line{
			drawing.Plain.Part(fmt.Sprintf("%-13s", v.name)), drawing.Dim.Part(fmt.Sprintf("%-33s", "http://"+v.address+"/postrider/")),
			drawing.Plain.Part(fmt.Sprintf("%9s%10s", drawing.Number(v.backlog), drawing.Number(v.parked))),
			warn(v.dead > 0).Part(fmt.Sprintf("%14s", drawing.Number(v.dead))),
		})
	}
	return lines
}

// ordersTable has the latest orders, and always the same height.
func (f figures) ordersTable() []drawing.Line {
	lines := []drawing.Line{{drawing.Bold.Part(fmt.Sprintf("%-68s", "LATEST ORDERS")), drawing.Dim.Part("Ctrl+C ends")}}
	for i := range latestOrders {
		if i >= len(f.latest) {
			lines = append(lines, nil)
			continue
		}
		o, total := f.latest[i], "–"
		if o.total > 0 { // or it is not known yet
			total = o.total.String()
		}
		lines = append(lines, drawing.Line{
			drawing.Plain.Part(o.id), drawing.Dim.Part(fmt.Sprintf("  %-15s", o.kind)), drawing.Plain.Part(fmt.Sprintf("%15s  ", total)),
			statusColor(o.status).Part(string(o.status)),
		})
	}
	return lines
}

// groups are orders, sagas and ledger.
func (f figures) groups() []drawing.Group {
	t := f.tally
	cell := func(label string, n int64, bad bool) drawing.Cell {
		return drawing.Cell{Label: label, Value: drawing.Number(n), Color: warn(bad && n > 0)}
	}
	return []drawing.Group{
		{Heading: "ORDERS", Cells: []drawing.Cell{
			cell("shipped", int64(t.Shipped), false), cell("cancelled", int64(t.Cancelled), false), cell("in progress", int64(t.Open), false),
			cell("timed out", int64(f.counts.TimedOut), true), cell("failed requests", int64(f.counts.Failed), true),
		}},
		{Heading: "SAGAS", Cells: []drawing.Cell{
			cell("running", f.sagas[store.SagaRunning], false), cell("compensating", f.sagas[store.SagaCompensating], false),
			cell("stuck", f.sagas[store.SagaStuck], true), {Label: "half within", Value: drawing.Age(f.p50)}, {Label: "95% within", Value: drawing.Age(f.p95)},
		}},
		{Heading: "LEDGER", Outcome: ledgerState(t), Cells: []drawing.Cell{
			{Label: "charged", Value: t.Charged.String()}, {Label: "refunded", Value: t.Refunded.String()},
			cell("goods free", t.Free, false), cell("goods reserved", t.Reserved, false), cell("goods sold", t.Sold, false),
		}},
	}
}

func ledgerState(t shop.Tally) drawing.Part {
	if t.Exact() {
		return drawing.Green.Part("exact")
	}
	return drawing.Red.Part("NOT EXACT")
}

func statusColor(s shop.Status) drawing.Color {
	switch s {
	case shop.Shipped:
		return drawing.Green
	case shop.Cancelled:
		return drawing.Yellow
	default:
		return drawing.Plain
	}
}

func warn(yes bool) drawing.Color {
	if yes {
		return drawing.Yellow
	}
	return drawing.Plain
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
	fmt.Fprintf(s.out, "\n%s\n", heading)
	lines := ledgerLines(t)
	if c.Orders+c.Declined > 0 {
		lines = append(lines, fmt.Sprintf("%s could succeed, %s had to be declined; half of all took less than %s, 95%% less than %s",
			drawing.Plural(c.Orders, "order"), drawing.Number(c.Declined), drawing.Age(p50), drawing.Age(p95)))
	}
	if c.TimedOut > 0 {
		lines = append(lines, fmt.Sprintf("%s of them timed out and what was done for them was undone: this machine is too slow for the load; choose a lower --load or a higher --step-timeout",
			drawing.Number(c.TimedOut)))
	}
	if c.SoldOut > 0 {
		lines = append(lines, fmt.Sprintf("%s of them were refused, since goods were sold out: choose a lower --load or a shorter --replenish", drawing.Number(c.SoldOut)))
	}
	s.cfg.show("  ", append(lines, found...)...)
}

// show prints lines, indented; on a terminal, they are broken to fit.
func (c Config) show(indent string, lines ...string) {
	for _, text := range lines {
		shown := []string{indent + text}
		if c.Width != nil {
			shown = drawing.Hang(shown[0], max(c.Width(), minWidth)-1, len(indent)+2)
		}
		fmt.Fprintln(c.Out, strings.Join(shown, "\n"))
	}
}
