package attempt

import (
	"sync"
	"time"
)

// logLines is the maximum number of failed attempts that are logged one by one per second.
const logLines = 10

// LogLimit allows 10 lines in each second, counted from the first one. The zero value is ready.
type LogLimit struct {
	mu         sync.Mutex
	since      time.Time
	lines      int
	suppressed int
}

// Allow reports whether a line may be written now. If some may not, it calls rest a second after the first of them, with their
// number.
func (l *LogLimit) Allow(rest func(suppressed int)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) >= time.Second {
		l.since, l.lines = now, 0
	}
	if l.lines++; l.lines <= logLines {
		return true
	}
	if l.suppressed++; l.suppressed == 1 {
		time.AfterFunc(time.Second, func() {
			l.mu.Lock()
			n := l.suppressed
			l.suppressed = 0
			l.mu.Unlock()
			rest(n)
		})
	}
	return false
}
