package prometheustest

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// scrapes is the interval of scrapes, and how long one may take, which is why it is longer than evaluations, that of rules: a process that
// waits for the processor would seem to be gone. faster is by how much the times of alerts are divided: two minutes are four seconds.
const (
	scrapes     = 8 * time.Second
	evaluations = time.Second
	faster      = 30
)

// windows are the ranges of rules, and thresholds the bounds of ages in seconds, which would still be too long. An increase over 15 minutes
// needs more than two scrapes.
var (
	windows = map[string]time.Duration{
		"5m": 10 * time.Second, "15m": 30 * time.Second, "30m": 20 * time.Second, "1h": 25 * time.Second, "6h": 30 * time.Second,
		"3d": time.Minute,
	}
	thresholds = map[string]int{"120": 10, "600": 20, "900": 20, "1800": 20, "86400": 20}

	averages = regexp.MustCompile(`\[(\d+[mhd])\]\) / \d+`) // of a flag: by the number of evaluations in the range
	ranges   = regexp.MustCompile(`\[(\d+[mhd])\]`)
	waits    = regexp.MustCompile(`(for|interval|group_wait|group_interval): (\d+[sm])`)
	ages     = regexp.MustCompile(`(_seconds(?:\{[^}]*\})?\)) > (\d+)`)
)

// Shortened returns the text of rules, or of a configuration of Alertmanager, with shorter times.
func Shortened(t testing.TB, text string) string {
	t.Helper()
	window := func(name string) time.Duration {
		w, known := windows[name]
		if !known {
			t.Fatalf("no shorter range for %s", name)
		}
		return w
	}
	text = averages.ReplaceAllStringFunc(text, func(r string) string {
		name := averages.FindStringSubmatch(r)[1]
		return fmt.Sprintf("[%s]) / %d", name, window(name)/evaluations)
	})
	text = ranges.ReplaceAllStringFunc(text, func(r string) string {
		return fmt.Sprintf("[%dms]", window(ranges.FindStringSubmatch(r)[1]).Milliseconds())
	})
	text = waits.ReplaceAllStringFunc(text, func(r string) string {
		m := waits.FindStringSubmatch(r)
		d, err := time.ParseDuration(m[2])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s: %dms", m[1], (d / faster).Milliseconds())
	})
	return ages.ReplaceAllStringFunc(text, func(r string) string {
		m := ages.FindStringSubmatch(r)
		seconds, known := thresholds[m[2]]
		if !known {
			t.Fatalf("no shorter time for %s", r)
		}
		return m[1] + " > " + strconv.Itoa(seconds)
	})
}
