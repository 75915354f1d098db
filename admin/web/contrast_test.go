package web_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
)

// color is red, green and blue, from 0 to 255.
type color [3]float64

var (
	definition = regexp.MustCompile(`--([a-z0-9-]+):light-dark\((#[0-9a-f]+),(#[0-9a-f]+)\)`)
	short      = regexp.MustCompile(`^#(.)(.)(.)$`)
)

// colors are those of the style sheet by name, in light or in dark.
func colors(t *testing.T, dark bool) map[string]color {
	t.Helper()
	sheet, err := os.ReadFile("assets/style.css")
	must(t, err)
	out := make(map[string]color)
	for _, m := range definition.FindAllStringSubmatch(string(sheet), -1) {
		text := m[2]
		if dark {
			text = m[3]
		}
		text = short.ReplaceAllString(text, "#$1$1$2$2$3$3")
		var c color
		for i := range c {
			n, err := strconv.ParseUint(text[1+2*i:3+2*i], 16, 8)
			must(t, err)
			c[i] = float64(n)
		}
		out[m[1]] = c
	}
	return out
}

// luminance is the relative luminance of WCAG.
func (c color) luminance() float64 {
	var linear [3]float64
	for i, v := range c {
		if v /= 255; v <= 0.04045 {
			linear[i] = v / 12.92
		} else {
			linear[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*linear[0] + 0.7152*linear[1] + 0.0722*linear[2]
}

// contrast is the contrast ratio of WCAG.
func contrast(a, b color) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// TestContrast: text has a contrast of 4.5 on every background on which pages show it, and lines of charts and the borders of controls have
// 3, in light and in dark.
func TestContrast(t *testing.T) {
	t.Parallel()
	backgrounds := []string{"bg", "surface", "sunken", "tint"}
	for _, dark := range []bool{false, true} {
		known, checked := colors(t, dark), 0
		check := func(front string, least float64, backs ...string) {
			for _, back := range backs {
				f, ok := known[front]
				b, too := known[back]
				if !ok || !too {
					t.Fatalf("the style sheet has no %s or no %s", front, back)
				}
				if got := contrast(f, b); got < least {
					t.Errorf("%s on %s has a contrast of %.2f, in dark %t; at least %.1f", front, back, got, dark, least)
				}
				checked++
			}
		}
		for _, text := range []string{"text", "muted", "accent", "accent-hover", "bad", "warn", "info", "ok", "held"} {
			check(text, 4.5, backgrounds...)
		}
		for _, tone := range []string{"bad", "warn", "info", "ok", "held"} {
			check(tone, 4.5, tone+"-bg")
			check("text", 4.5, tone+"-bg")
			check("muted", 4.5, tone+"-bg")
		}
		check("on-accent", 4.5, "accent", "accent-hover")
		check("surface", 4.5, "text") // the badge of production
		for i := range 4 {
			check(fmt.Sprintf("c%d", i+1), 3, "bg", "surface")
		}
		check("control", 3, "bg", "surface")
		if checked < 50 {
			t.Errorf("only %d pairs were checked", checked)
		}
	}
}

var shown = regexp.MustCompile(`<span class="status [a-z]+"><svg class="i" aria-hidden="true"><use href="#([a-z-]+)"/></svg>([^<]+)</span>`)

// TestStatusesWithoutColor: without color, what is bad has another shape than what is not, and each status has a word.
func TestStatusesWithoutColor(t *testing.T) {
	t.Parallel()
	icons := make(map[string]map[string]bool) // tones by icon
	for _, body := range serve(t, false, web.Config{}, rules).signIn(admin.Admin).crawl() {
		for _, m := range shown.FindAllStringSubmatch(body, -1) {
			tone := strings.Fields(m[0][len(`<span class="status `):])[0]
			tone = tone[:strings.IndexByte(tone, '"')]
			if icons[m[1]] == nil {
				icons[m[1]] = make(map[string]bool)
			}
			if icons[m[1]][tone] = true; strings.TrimSpace(m[2]) == "" {
				t.Errorf("a status has no word: %s", m[0])
			}
		}
	}
	tones := make(map[string]bool)
	for icon, of := range icons {
		for tone := range of {
			tones[tone] = true
		}
		if len(of) > 1 && of["bad"] {
			t.Errorf("the icon %s has the tones %v: without color, what is bad looks like what is not", icon, of)
		}
	}
	if len(tones) < 3 || len(icons) < 4 {
		t.Errorf("the pages show the tones %v with the icons %v", tones, icons)
	}
}
