package program

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// ParseTime reads a point in time: RFC 3339, a date, or how long before now.
func ParseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, Usagef("--%s %s is not a time; write 2026-01-31T15:04:05Z, 2026-01-31, or how long ago, e.g. 2h", flag, text)
}

// ParseInt reads a whole number.
func ParseInt(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

// ExactArgs is cobra.ExactArgs with a message that names the missing arguments.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return Usagef("%s takes %s, got %d", cmd.CommandPath(), cmp.Or(strings.Join(names, " and "), "no arguments"), len(args))
		}
		return nil
	}
}
