package demo

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/drawing"
)

// chartWidth is the number of columns of the delivery chart.
const chartWidth = 47

// dashboard returns the dashboard's lines for figures, none wider than the terminal.
func (s *screen) dashboard(f figures) []string {
	lines := []drawing.Line{nil, {drawing.Bold.Part(s.title)}, s.condition(f), nil}
	lines = append(append(lines, drawing.Columns(s.width-1, f.groups()...)...), nil)
	if s.width > chartWidth+24 {
		rate := ""
		if n := len(s.rates); n > 0 {
			rate = fmt.Sprintf("%9.0f", s.rates[n-1])
		}
		lines = append(lines, drawing.Line{
			drawing.Plain.Part("delivered per second   "), drawing.Green.Part(fmt.Sprintf("%-*s", chartWidth, drawing.Chart(s.rates))), drawing.Plain.Part(rate),
		})
	}
	if f.err != nil {
		lines = append(lines, drawing.Line{drawing.Red.Part("figures are missing: " + f.err.Error())})
	}
	shown := make([]string, len(lines))
	for i, l := range lines {
		shown[i] = l.Fit(s.pen, s.width-1)
	}
	return shown
}

// condition is the line with the current failures and the time.
func (s *screen) condition(f figures) drawing.Line {
	part := func(bad bool, name, worse string) drawing.Part {
		if bad {
			return drawing.Red.Part(worse)
		}
		return drawing.Dim.Part(name)
	}
	clock := fmt.Sprintf("%.0f of %.0f s", f.elapsed.Seconds(), s.length.Seconds())
	return drawing.Line{
		drawing.Plain.Part(fmt.Sprintf("%s · ", clock)), part(f.brokerAway, "broker up", "BROKER AWAY"), drawing.Dim.Part(" · "),
		part(f.relayDown, "relay up", "RELAY DOWN"), drawing.Dim.Part(" · " + drawing.Plural(f.orders, "order")),
	}
}

// groups are the figures in reading order: the flow, the failures, the guarantees.
func (f figures) groups() []drawing.Group {
	cell := func(label string, n int64, color func(int64) drawing.Color) drawing.Cell {
		return drawing.Cell{Label: label, Value: drawing.Number(n), Color: color(n)}
	}
	plain := func(int64) drawing.Color { return drawing.Plain }
	return []drawing.Group{
		{Heading: "MESSAGES", Cells: []drawing.Cell{
			cell("committed", f.committed, plain), cell("delivered", f.Received, plain), cell("duplicates", f.Duplicates, plain),
			{Label: "age", Value: drawing.Age(f.status.Age), Color: warn(max(0, int64(f.status.Age-time.Second)))},
		}},
		{Heading: "TROUBLE", Cells: []drawing.Cell{
			cell("held keys", f.status.Held.N, warn), cell("parked", f.status.Parked.N, warn), cell("dead letters", f.status.Dead.N, warn),
			cell("orders rolled back", f.rolledBack, plain),
		}},
		{Heading: "PROMISES", Cells: []drawing.Cell{
			cell("lost", f.Missing, judged), cell("order violations", f.Disorder, judged), cell("invented", f.Appeared, judged),
		}},
	}
}

// warn is the color of what needs attention if there is some.
func warn(n int64) drawing.Color {
	if n > 0 {
		return drawing.Yellow
	}
	return drawing.Plain
}

func judged(faults int64) drawing.Color {
	if faults > 0 {
		return drawing.Red
	}
	return drawing.Green
}
