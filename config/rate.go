package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Rate is a number of messages per hour.
type Rate int64

// perHour is how often each unit of a rate fits into an hour.
var perHour = map[string]int64{"s": 3600, "m": 60, "h": 1}

// ParseRate reads a rate such as 100/s, 30/m or 500/h.
func ParseRate(text string) (Rate, error) {
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	factor := perHour[strings.TrimSpace(unit)]
	if err != nil || factor == 0 || n < 0 || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is not a rate; write messages per second, minute or hour, e.g. 100/s, 30/m or 500/h", text)
	}
	return Rate(n * factor), nil
}

// PerSecond is the number of messages per second.
func (r Rate) PerSecond() float64 { return float64(r) / 3600 }
