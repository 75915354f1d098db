package stored

import (
	"database/sql"
	"time"
)

// Duration returns a duration of n microseconds. One that a time.Duration cannot hold (292 years) is capped.
func Duration(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Microsecond)
	return time.Duration(max(-most, min(n, most))) * time.Microsecond
}

// Age returns the time since a stored time, 0 without one.
func Age(at sql.Null[int64], now int64) time.Duration {
	if !at.Valid {
		return 0
	}
	return Duration(now - at.V)
}

// Delay returns how long something that is due at a time (0: no time) still has to wait.
func Delay(at, now int64) time.Duration {
	if at <= 0 { // a program may have written any time before 1970, and the difference may overflow
		return 0
	}
	return Duration(at - now)
}
