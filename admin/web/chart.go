package web

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/store"
)

// Ages are drawn on a log scale between these.
const (
	lowest  = 300 * time.Millisecond
	highest = 24 * time.Hour
)

// height is where an age is on the log scale: 0 for lowest, 1 for top.
func height(age, top time.Duration) float64 {
	of := func(d time.Duration) float64 { return math.Log(float64(max(d, lowest)) / float64(lowest)) }
	return min(1, of(age)/of(max(top, 2*lowest)))
}

// drawing is a line in a plot.
type drawing struct{ Tone, Path, Label string }

// spark draws the ages of a relay's oldest undelivered message.
func spark(r admin.RelayInfo) (d drawing) {
	if len(r.Ages) < 2 {
		return d
	}
	d.Tone = string(r.Status.Tone())
	top := time.Duration(0)
	for i, p := range r.Ages {
		top = max(top, p.Value)
		d.Path += fmt.Sprintf("%s%.1f,%.1f", map[bool]string{true: "M", false: " L"}[i == 0], 96*float64(i)/float64(len(r.Ages)-1), 22-20*height(p.Value, 10*time.Minute))
	}
	d.Label = "at most " + admin.Duration(top)
	return d
}

// plot is a chart of ages.
type plot struct {
	Label, Area, Line string
	Grid              []gridLine
	// Target is the height of the line of the target, "" if it is outside.
	Target, TargetText string
	TargetY            float64
	Times              []timeLabel
}

type gridLine struct {
	Y, TextY float64
	Text     string
	Base     bool
}

type timeLabel struct{ X, Anchor, Text string }

// chart draws ages over time.
func chart(points []admin.Point, target time.Duration) (p plot) {
	top := 2 * target
	for _, at := range points {
		top = max(top, at.Value)
	}
	top = min(highest, top*3/2)
	y := func(age time.Duration) float64 { return math.Round(10*(104-104*height(age, top))) / 10 }
	var line strings.Builder
	for i, at := range points {
		fmt.Fprintf(&line, "%s%.1f,%.1f", map[bool]string{true: "M", false: " "}[i == 0], 1000*float64(i)/float64(len(points)-1), y(at.Value))
	}
	p.Line = line.String()
	p.Area = p.Line + " 1000,104 0,104Z"
	p.Grid = []gridLine{{Y: 122, Base: true}}
	for _, tick := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour} {
		if tick < top && (len(p.Grid) < 2 || p.Grid[len(p.Grid)-1].Y-18-y(tick) > 16) {
			p.Grid = append(p.Grid, gridLine{Y: 18 + y(tick), TextY: 22 + y(tick), Text: admin.Duration(tick)})
		}
	}
	p.Target, p.TargetText, p.TargetY = fmt.Sprint(18+y(target)), "target "+admin.Duration(target), 13+y(target)
	p.Label = chartLine(points)
	layout := "15:04"
	if points[len(points)-1].At.Sub(points[0].At) < 10*time.Minute {
		layout = "15:04:05"
	}
	for i, x := range []string{"0", "50%", "100%"} {
		text := points[i*(len(points)-1)/2].At.UTC().Format(layout)
		p.Times = append(p.Times, timeLabel{x, []string{"start", "middle", "end"}[i], text})
	}
	p.Times[2].Text = "now"
	return p
}

// chartLine says what a chart shows.
func chartLine(points []admin.Point) string {
	most := points[0]
	for _, p := range points {
		if p.Value > most.Value {
			most = p
		}
	}
	return "now " + admin.Duration(points[len(points)-1].Value) + " · max " + admin.Duration(most.Value) + " at " + most.At.UTC().Format("15:04")
}

// chartRows are up to 30 of the points, for the table.
func chartRows(points []admin.Point) (out []admin.Point) {
	step := max(1, len(points)/30)
	for i := len(points) - 1; i >= 0; i -= step {
		out = append(out, points[i])
	}
	return out
}

// bar is the progress of a redrive.
type bar struct {
	Label string
	Parts []barPart
}

type barPart struct {
	Class    string
	X, Width int64
}

// meter draws what became of the messages of a redrive; without its outcome, what was sent.
func meter(r store.Redrive) (b bar) {
	total := max(1, r.Selected)
	sent := []int64{0, r.Done, 0}
	b.Label = fmt.Sprintf("%d of %d sent", r.Done, r.Selected)
	if o := r.Outcome; o != nil {
		sent = []int64{o.Delivered, o.Waiting, o.Failed}
		b.Label = fmt.Sprintf("%d delivered, %d waiting, %d failed again, of %d", o.Delivered, o.Waiting, o.Failed, r.Selected)
	}
	x := int64(0)
	for i, n := range sent {
		width := n * 1000 / total
		b.Parts = append(b.Parts, barPart{[]string{"m1", "m2", "m3"}[i], x, width})
		x += width
	}
	return b
}
