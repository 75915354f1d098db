package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/drawing"
)

// chartWidth is the number of columns of the delivery chart.
const chartWidth = 40

// cell is one figure of the dashboard.
type cell struct {
	label, value string
	color        drawing.Color
}

// dashboard returns the dashboard's lines for figures, none wider than the terminal.
func (s *screen) dashboard(f figures) []string {
	cells := s.cells(f)
	const cellWidth = 27
	columns := max(1, (s.width-1)/cellWidth)
	lines := []string{"", s.pen.Paint(drawing.Bold, drawing.Cut(s.title, s.width-1)), drawing.Cut(s.progress(f), s.width-1)}
	for i := 0; i < len(cells); i += columns {
		var line strings.Builder
		for _, c := range cells[i:min(i+columns, len(cells))] {
			text := fmt.Sprintf("%-18s %7s ", c.label, c.value)
			line.WriteString(s.pen.Paint(c.color, drawing.Cut(text, min(cellWidth, s.width-1))))
		}
		lines = append(lines, line.String())
	}
	if s.width > chartWidth+24 {
		lines = append(lines, "arriving            "+s.pen.Paint(drawing.Dim, drawing.Chart(s.rates)))
	}
	if f.err != nil {
		lines = append(lines, s.pen.Paint(drawing.Red, drawing.Cut("figures are missing: "+f.err.Error(), s.width-1)))
	}
	return lines
}

// progress is the line with the time and the current failures.
func (s *screen) progress(f figures) string {
	broker, work := "broker up", "relay up"
	if f.brokerAway {
		broker = "BROKER AWAY"
	}
	if f.relayDown {
		work = "RELAY DOWN"
	}
	return fmt.Sprintf("%.1f s of %.0f s · %s · %s · %s", f.elapsed.Seconds(), s.length.Seconds(), broker, work, drawing.Plural(f.orders, "order"))
}

// cells are the figures in reading order: the flow, the failures, the guarantees.
func (s *screen) cells(f figures) []cell {
	return []cell{
		{"committed", drawing.Number(f.committed), ""},
		{"delivered", drawing.Number(f.Received), ""},
		{"age", drawing.Age(f.status.Age), warn(f.status.Age > time.Second)},
		{"held keys", drawing.Number(f.status.Held.N), warn(f.status.Held.N > 0)},
		{"parked", drawing.Number(f.status.Parked.N), warn(f.status.Parked.N > 0)},
		{"dead letters", drawing.Number(f.status.Dead.N), warn(f.status.Dead.N > 0)},
		{"lost", drawing.Number(f.Missing), judged(f.Missing)},
		{"order violations", drawing.Number(f.Disorder), judged(f.Disorder)},
		{"duplicates", drawing.Number(f.Duplicates), ""},
		{"rolled back", drawing.Number(f.rolledBack), ""},
		{"of those, appeared", drawing.Number(f.Appeared), judged(f.Appeared)},
	}
}

func warn(yes bool) drawing.Color {
	if yes {
		return drawing.Yellow
	}
	return ""
}

func judged(faults int64) drawing.Color {
	if faults > 0 {
		return drawing.Red
	}
	return drawing.Green
}
