// Package plain writes numbers for people.
package plain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration writes a duration in two units at most: "0.4 s", "4 min 12 s", "3 d 2 h". Numbers and units are joined by space.
func Duration(d time.Duration, space string) string {
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

// Bytes writes a size: "412 B", "1.2 MiB".
func Bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for ; value >= 1024 && unit < len(units)-1; unit++ {
		value /= 1024
	}
	text := strconv.FormatFloat(value, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0") + " " + units[unit]
}

// Count writes a number and what it counts: "1 message", "18,402 messages".
func Count(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Grouped(n) + " " + one + "s"
}
