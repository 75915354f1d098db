package resilience

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Observer is told what operations do. Its methods must return at once. Its arguments are plain, so that it needs no import of this
// package: telemetry.Telemetry.Operations returns an Observer.
type Observer interface {
	// Called is told about the end of a call: result is one of Results, attempts how often the function was called.
	Called(ctx context.Context, operation, instance, result string, attempts int, took time.Duration)
	// BreakerChanged is told about each state of a breaker, the first one too; see BreakerStates.
	BreakerChanged(operation, instance, state string)
}

// Result is how a call ended.
type Result string

// The results of calls: a class, or the limit that rejected it.
const (
	ResultSuccess     Result = "success"
	ResultFailure     Result = "failure"
	ResultThrottled   Result = "throttled"
	ResultDeclined    Result = "declined"
	ResultCancelled   Result = "cancelled"
	ResultOpen        Result = "open"
	ResultAtCapacity  Result = "at_capacity"
	ResultRateLimited Result = "rate_limited"
)

// Results lists all of them.
var Results = []Result{
	ResultSuccess, ResultFailure, ResultThrottled, ResultDeclined, ResultCancelled, ResultOpen, ResultAtCapacity, ResultRateLimited,
}

func (c *call) result() Result {
	switch {
	case c.class != Rejected:
		return Result(c.class.String())
	case errors.Is(c.err, ErrAtCapacity):
		return ResultAtCapacity
	case errors.Is(c.err, ErrRateLimited):
		return ResultRateLimited
	}
	return ResultOpen
}

// called reports the end of a call.
func (o *Operation) called(c *call) {
	if ob := o.set.cfg.Observer; ob != nil {
		ob.Called(c.caller, o.name, o.instance, string(c.result()), c.attempts, time.Since(c.began))
	}
	switch {
	case c.class == Success && c.attempts > 1:
		o.set.log.write(o, slog.LevelInfo, "call succeeded after several attempts", "attempts", c.attempts)
	case (c.class == Failure || c.class == Throttled) && c.attempts > 1:
		o.set.log.write(o, slog.LevelError, "call failed in all attempts", "attempts", c.attempts, "error", c.err)
	case c.class == Declined:
		o.set.log.write(o, slog.LevelInfo, "call was declined", "error", c.err)
	}
}

// retrying reports that another attempt follows.
func (o *Operation) retrying(c *call, wait time.Duration) {
	o.set.log.write(o, slog.LevelWarn, "attempt failed, another follows", "attempt", c.attempts, "after", wait, "error", c.err)
}

// breakerChanged reports a new state of the breaker.
func (o *Operation) breakerChanged(from, to BreakerState, s State) {
	if ob := o.set.cfg.Observer; ob != nil {
		ob.BreakerChanged(o.name, o.instance, string(to))
	}
	switch to {
	case BreakerOpen:
		o.set.log.write(o, slog.LevelWarn, "breaker is open", "failures", s.Failures, "calls", s.Calls, "retry_in", s.RetryIn, "error", s.Cause)
	case BreakerClosed:
		o.set.log.write(o, slog.LevelInfo, "breaker is closed again", "was", string(from))
	case BreakerHalfOpen:
	}
}

// logLimit writes at most one line for each operation, message and second.
type logLimit struct {
	logger *slog.Logger

	mu    sync.Mutex
	lines map[logLine]*loggedLine
}

type logLine struct {
	operation *Operation
	text      string
}

type loggedLine struct {
	at         time.Time
	suppressed int
}

func newLogLimit(l *slog.Logger) *logLimit {
	return &logLimit{logger: l, lines: make(map[logLine]*loggedLine)}
}

func (l *logLimit) write(o *Operation, level slog.Level, text string, args ...any) {
	if !l.logger.Enabled(context.Background(), level) {
		return
	}
	line, now := logLine{o, text}, time.Now()
	l.mu.Lock()
	last := l.lines[line]
	if last == nil {
		last = &loggedLine{}
		l.lines[line] = last
	}
	if !last.at.IsZero() && now.Sub(last.at) < time.Second {
		last.suppressed++
		l.mu.Unlock()
		return
	}
	suppressed := last.suppressed
	last.at, last.suppressed = now, 0
	l.mu.Unlock()
	args = append([]any{"operation", o.name}, args...)
	if o.instance != "" {
		args = append(args, "instance", o.instance)
	}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	l.logger.Log(context.Background(), level, text, args...)
}
