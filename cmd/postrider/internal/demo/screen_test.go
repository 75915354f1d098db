package demo

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/store"
)

func troubled() figures {
	return figures{
		elapsed: 3 * time.Second, committed: 12345, orders: 6000, rolledBack: 7, brokerAway: true, relayDown: true,
		tally: tally{Received: 12000, Duplicates: 3, Missing: 2, Disorder: 1, Appeared: 4},
		status: store.RelayStatus{
			Age: 1500 * time.Millisecond, Held: store.Count{N: 1}, Parked: store.Count{N: 20}, Dead: store.Count{N: 5},
		},
		err: errors.New("database is locked"),
	}
}

func TestPlainLineHasEveryFigure(t *testing.T) {
	t.Parallel()
	const want = "  3.0s  committed 12345  delivered 12000  age 1.5s  lost 2  duplicates 3  order violations 1  held keys 1  parked 20  dead letters 5"
	if got := plainLine(troubled()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDashboardFitsEveryWidth(t *testing.T) {
	t.Parallel()
	for _, width := range []int{minWidth, 45, 60, 80, 200} {
		s := newScreen(Config{Out: &bytes.Buffer{}, For: time.Minute, Shown: "S", ShownPublisher: "J", Width: func() int { return width }})
		s.wipe()
		for range 100 {
			s.rates = append(s.rates, 1)
		}
		s.rates = s.rates[:chartWidth]
		lines := s.dashboard(troubled())
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n >= width {
				t.Errorf("width %d: %d columns: %q", width, n, line)
			}
		}
		text := strings.Join(lines, "\n")
		for _, words := range []string{"12,345", "dead letters", "order violations"} {
			if !strings.Contains(text, words) {
				t.Errorf("width %d: %q is missing in\n%s", width, words, text)
			}
		}
	}
}

func TestColorsShowFaults(t *testing.T) {
	t.Parallel()
	s := newScreen(Config{Out: &bytes.Buffer{}, Color: true, Width: func() int { return 80 }})
	s.wipe()
	text := strings.Join(s.dashboard(troubled()), "\n")
	for _, part := range []string{"\x1b[31mlost", "\x1b[31morder violations", "\x1b[33mheld keys", "\x1b[33mdead letters"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in %q", part, text)
		}
	}
	if text := strings.Join(s.dashboard(figures{}), "\n"); !strings.Contains(text, "\x1b[32mlost") || strings.Contains(text, "\x1b[31m") {
		t.Errorf("without faults: %q", text)
	}
}
