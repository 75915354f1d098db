package admin

import (
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/plain"
	"github.com/postrider/postrider/store"
)

// Duration writes a duration for people, in two units at most: "0.4 s", "4 min 12 s", "3 d 2 h". Its spaces do not break.
func Duration(d time.Duration) string { return plain.Duration(d, "\u00a0") }

// Grouped writes a number with commas: "18,402".
func Grouped(n int64) string { return plain.Grouped(n) }

// Number writes a count: "18,402", "10,000+" if there are more.
func Number(c store.Count) string {
	if c.AtLeast {
		return Grouped(c.N) + "+"
	}
	return Grouped(c.N)
}

// Rate writes a rate per second: "1,204/s", "12/min" below one per second.
func Rate(perSecond float64) string {
	switch {
	case perSecond < 0:
		return "unknown"
	case perSecond == 0:
		return "0/s"
	case perSecond >= 0.95:
		return Grouped(int64(math.Round(perSecond))) + "/s"
	}
	return Grouped(int64(math.Ceil(perSecond*60))) + "/min"
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Grouped(n) + " " + many
}

// Listed is a list in a sentence: "a, b and c".
func Listed(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

func escape(segment string) string { return url.PathEscape(segment) }

// GroupPath is the path of the page of a group of dead letters.
func GroupPath(c store.CauseCount) string {
	return "/causes/" + escape(c.Fingerprint) + "?" + url.Values{"relay": {c.Relay}, "type": {c.Type}}.Encode()
}
