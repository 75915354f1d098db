package admin

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/postrider/postrider/store"
)

// Duration writes a duration for people, in two units at most: "0.4 s", "4 min 12 s", "3 d 2 h".
func Duration(d time.Duration) string {
	const space = "\u00a0"
	d = max(d, 0)
	units := []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	switch {
	case d == 0:
		return "0" + space + "s"
	case d < 10*time.Second:
		return strconv.FormatFloat(max(0.1, math.Round(d.Seconds()*10)/10), 'f', -1, 64) + space + "s"
	}
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := fmt.Sprint(int64(d/u.of), space, u.name)
		if i+1 < len(units) {
			if rest := (d % u.of) / units[i+1].of; rest > 0 {
				text += fmt.Sprint(" ", int64(rest), space, units[i+1].name)
			}
		}
		return text
	}
	return ""
}

// Grouped writes a number with commas: "18,402".
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

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

func escape(segment string) string { return url.PathEscape(segment) }

// GroupPath is the path of the page of a group of dead letters.
func GroupPath(c store.CauseCount) string {
	return "/causes/" + escape(c.Fingerprint) + "?" + url.Values{"relay": {c.Relay}, "type": {c.Type}}.Encode()
}
