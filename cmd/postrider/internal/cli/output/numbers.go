package output

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// Ago formats a duration for people: two units at most, "-" for zero.
func Ago(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < 0:
		return "-" + Ago(-d)
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

// Since formats how long ago something was, "-" for zero.
func Since(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return Ago(d) + " ago"
}

// Moment formats a time, "-" for none.
func Moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// Minute formats a time for tables, "-" for none.
func Minute(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04Z")
}

// Second formats a time for tables of what is due soon, "-" for none.
func Second(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// CauseOf is the cell for what went wrong: the cause, and the reason after it.
func CauseOf(cause, reason string) string {
	if cause == "" {
		return reason
	}
	return cause + " (" + reason + ")"
}

// Count formats a count, with a plus when there are more.
func Count(c store.Count) string {
	if c.AtLeast {
		return Number(c.N) + "+"
	}
	return Number(c.N)
}

// Number formats a number with thousands separators.
func Number[T ~int | ~int64](n T) string {
	text := fmt.Sprint(int64(n))
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Bytes formats a size.
func Bytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/(1<<10), 0
	for size >= 1<<10 && unit < len(byteUnits)-1 {
		size, unit = size/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %s", size, byteUnits[unit])
}

var byteUnits = [...]string{"KiB", "MiB", "GiB", "TiB"}

// Plural formats a number and its noun.
func Plural[T ~int | ~int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}

// PluralOf is plural for a count, with a plus when there are more.
func PluralOf(c store.Count, noun string) string {
	if c.AtLeast {
		return Count(c) + " " + noun + "s"
	}
	return Plural(c.N, noun)
}
