package report

import (
	"html"
	"io"
)

// The dimensions of a chart, in pixels.
const (
	chartWidth = 860
	nameWidth  = 330
	valueWidth = 110
	barHeight  = 18
	rowHeight  = 28
	headHeight = 56
)

var colors = map[Role]string{Ours: "#1f6feb", Limit: "#8b949e", Peer: "#d29922", Quoted: "#e3c77b"}

// SVG writes the suite as a chart with a bar for each row that ends at the median; the thin line spans the rounds.
func (s *Suite) SVG(w io.Writer) error {
	var rows []*Row
	largest := 0.0
	for _, r := range s.Rows {
		if f, ok := r.Figure(s.Figure); ok {
			rows = append(rows, r)
			largest = max(largest, f.Max)
		}
	}
	p := &printer{w: w}
	height := headHeight + rowHeight*len(rows) + 12
	p.line(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="13">`,
		chartWidth, height)
	p.line(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	p.line(`<text x="12" y="22" font-size="15" font-weight="600" fill="#1f2328">%s</text>`, html.EscapeString(s.Title))
	p.line(`<text x="12" y="42" fill="#59636e">%s</text>`, html.EscapeString(s.caption()))
	for i, r := range rows {
		s.bar(p, r, headHeight+rowHeight*i, largest)
	}
	p.line(`</svg>`)
	return p.err
}

func (s *Suite) caption() string {
	if s.Lower {
		return s.Unit + ", less is better"
	}
	return s.Unit + ", more is better"
}

func (s *Suite) bar(p *printer, r *Row, top int, largest float64) {
	f, _ := r.Figure(s.Figure)
	x := func(v float64) float64 {
		if largest <= 0 {
			return nameWidth
		}
		return nameWidth + v/largest*(chartWidth-nameWidth-valueWidth)
	}
	middle := top + barHeight/2
	p.line(`<text x="%d" y="%d" text-anchor="end" fill="#1f2328">%s</text>`, nameWidth-10, middle+5, html.EscapeString(r.Name))
	p.line(`<rect x="%d" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/>`, nameWidth, top, max(x(f.Median)-nameWidth, 1), barHeight, colors[r.Role])
	if f.Max > f.Min {
		p.line(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%[3]d" stroke="#1f2328" stroke-width="1.5"/>`, x(f.Min), x(f.Max), middle)
	}
	p.line(`<text x="%.1f" y="%d" fill="#1f2328">%s</text>`, x(f.Max)+8, middle+5, Number(f.Median))
}
