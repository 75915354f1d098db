// Package attempt has what relays and consumers do about a failed attempt: how long they wait, and what they record.
package attempt

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Backoff draws the wait after the nth failed attempt, at random between 1 ms and min(limit, base·2^(n−1)): full jitter, as
// in "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
func Backoff(base, limit time.Duration, attempts int) time.Duration {
	if shift := attempts - 1; shift < 40 {
		if d := base << shift; d > 0 {
			limit = min(limit, d)
		}
	}
	return max(rand.N(min(limit, math.MaxInt64-1)+1), time.Millisecond)
}

// CauseText is the text of an error that operators read; it is empty only for nil.
func CauseText(err error) string {
	if err == nil {
		return ""
	}
	if text := err.Error(); text != "" {
		return text
	}
	return fmt.Sprintf("error of type %T without a text", err)
}

// FirstLine leaves out the stack with which the cause of a panic continues.
func FirstLine(cause string) string {
	line, _, _ := strings.Cut(cause, "\n")
	return line
}
