// Recording makes the picture of the README: it reads what "postrider demo --plain" writes, and writes an animated SVG that shows each
// line at its time, without fonts, scripts or other files. "make recording" runs both.
package main

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	if err := record(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

const (
	lineHeight, charWidth, margin = 21, 7.85, 16 // pixels
	// afterEnd is for how many seconds the last lines stay before the recording begins again.
	afterEnd = 8
)

// line is a line of the output, and when it is written, in seconds.
type line struct {
	at    float64
	text  string
	state bool // of the shop: each replaces the one before
}

// timed is a line that begins with its time.
var timed = regexp.MustCompile(`^ *([0-9]+\.[0-9])s  (.*)$`)

// read reads the output up to its advice for other databases.
func read(from io.Reader) (lines []line, err error) {
	in, at := bufio.NewScanner(from), 0.0
	for in.Scan() {
		text := strings.TrimRight(in.Text(), " \r")
		if strings.HasPrefix(text, "With your own") {
			break
		}
		if m := timed.FindStringSubmatch(text); m != nil {
			if at, err = strconv.ParseFloat(m[1], 64); err != nil {
				return nil, err
			}
			lines = append(lines, line{at, text, strings.HasPrefix(m[2], "committed ")})
		} else if text != "" {
			lines = append(lines, line{at, text, false})
		}
	}
	if err = in.Err(); err == nil && len(lines) == 0 {
		err = fmt.Errorf("there is no output of postrider demo --plain")
	}
	return lines, err
}

const style = `text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#c9d1d9}
.state{fill:#58a6ff;opacity:0}.last{opacity:1}.result{fill:#3fb950}
@media (prefers-reduced-motion:reduce){text{animation:none!important}}
`

// record writes the picture.
func record(from io.Reader, to io.Writer) error {
	lines, err := read(from)
	if err != nil {
		return err
	}
	columns, rows, ends, last := 0, 1, lines[len(lines)-1].at, 0
	for i, l := range lines {
		columns = max(columns, len([]rune(l.text)))
		if l.state {
			last = i
		} else {
			rows++
		}
	}
	total := ends + afterEnd
	var styles, texts strings.Builder
	row, stateRow := 1, rows+1
	for i, l := range lines {
		class, at, until := "line", l.at, total
		switch {
		case l.state:
			class = "state"
			if i == last {
				class = "state last"
			} else {
				until = nextState(lines[i+1:])
			}
			writeText(&texts, stateRow, fmt.Sprintf("%s k%d", class, i), l.text)
		default:
			if i > 0 && !timed.MatchString(l.text) {
				class = "result"
			}
			row++
			writeText(&texts, row, fmt.Sprintf("%s k%d", class, i), l.text)
		}
		fmt.Fprintf(&styles, "@keyframes k%d{0%%{opacity:0}%.2f%%{opacity:1}%.2f%%,100%%{opacity:%d}}.k%d{animation:k%d %.1fs step-end infinite}\n",
			i, 100*at/total, 100*until/total, visible(until == total), i, i, total)
	}
	width, height := int(float64(columns)*charWidth)+2*margin, (stateRow+1)*lineHeight
	_, err = fmt.Fprintf(to, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="A run of postrider demo">
<style>%s%s</style>
<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>
<text x="%d" y="%d">$ postrider demo</text>
%s</svg>
`, width, height, style, styles.String(), margin, lineHeight+4, texts.String())
	return err
}

// nextState returns when the next state of the shop is written.
func nextState(lines []line) float64 {
	for _, l := range lines {
		if l.state {
			return l.at
		}
	}
	return 0
}

func visible(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func writeText(out *strings.Builder, row int, class, text string) {
	fmt.Fprintf(out, `<text class="%s" x="%d" y="%d">`, class, margin, row*lineHeight+4)
	_ = xml.EscapeText(out, []byte(text)) // a Builder returns no error
	out.WriteString("</text>\n")
}
