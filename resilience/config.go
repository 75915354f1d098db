package resilience

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Config configures a Set. The zero value of each field means its default. Parse reads one from JSON.
type Config struct {
	// Disabled switches all policies off: operations call their function, and do nothing else. Set.Disable changes it later.
	Disabled bool `json:"disabled"`
	// Default is the policy of every operation.
	Default Policy `json:"default"`
	// Operations says what differs, by the operation's name, or by a pattern with one "*" at its end ("payment.*"). All that match
	// apply, field by field: the longest one first, the name itself before all patterns.
	Operations map[string]Policy `json:"operations"`
	// MaxInstances is how many instances of an operation have a breaker and limits of their own. Beyond it, the one that has not
	// been used for the longest time is dropped. Default: 100.
	MaxInstances int `json:"max_instances"`

	// Observer is told about calls and breakers, for metrics. telemetry.Telemetry.Operations returns one. Default: none.
	Observer Observer `json:"-"`
	// Logger receives the log. Default: slog.Default().
	Logger *slog.Logger `json:"-"`
	// Classify returns the class of an error of a dependency, and Unclassified for those that it does not know. It is asked before
	// the rules of Class. Default: none.
	Classify func(error) Class `json:"-"`
}

// Policy is what applies to an operation. Zero fields take the value of the next policy that matches, then that of Config.Default,
// then the default.
type Policy struct {
	Breaker   Breaker   `json:"breaker"`
	Retry     Retry     `json:"retry"`
	Bulkhead  Bulkhead  `json:"bulkhead"`
	RateLimit RateLimit `json:"rate_limit"`
	// Timeout bounds an attempt. Default: 10 s; negative: none.
	Timeout time.Duration `json:"timeout"`
	// Total bounds a call with its waits. In the handler of a message it is at most nine tenths of what is left of the handler's
	// attempt. Default: 30 s; negative: none.
	Total time.Duration `json:"total"`
	// AbandonOnTimeout returns at the timeout even if the function ignores its context. The function then continues to run, and
	// State.Abandoned counts it until it returns.
	AbandonOnTimeout bool `json:"abandon_on_timeout"`
	// Instances says what differs for instances of the operation, by name.
	Instances map[string]Policy `json:"instances"`
}

// Breaker configures a circuit breaker.
type Breaker struct {
	// Off: the operation has no breaker.
	Off bool `json:"off"`
	// FailureRate is the share of failed calls at which the breaker opens. Default: 0.5.
	FailureRate float64 `json:"failure_rate"`
	// MinCalls is how many calls must be in the window before it can open. Default: 5.
	MinCalls int `json:"min_calls"`
	// WindowCalls makes the window the last calls, WindowTime those of the last while, in tenths. Default: the last 10 calls.
	WindowCalls int           `json:"window_calls"`
	WindowTime  time.Duration `json:"window_time"`
	// SlowAfter makes a call that takes longer count as failed. Default: none.
	SlowAfter time.Duration `json:"slow_after"`
	// OpenFor is how long the breaker stays open, give or take a fifth, so that processes do not all probe at the same time. It
	// doubles up to OpenMax each time that a probe fails. Defaults: 10 s and 2 min.
	OpenFor time.Duration `json:"open_for"`
	OpenMax time.Duration `json:"open_max"`
	// Probes is how many calls the half-open breaker lets through; if all succeed, it closes. Default: 3.
	Probes int `json:"probes"`
	// ProbeTimeout is the time after which a probe that has not returned makes room for another. Default: twice Policy.Timeout.
	ProbeTimeout time.Duration `json:"probe_timeout"`
}

// Retry configures further attempts of a call.
type Retry struct {
	// Attempts is how often the function is called, the first time included. Default: 3.
	Attempts int `json:"attempts"`
	// InHandler applies instead in the handler of a message, which the relay or consumer retries anyway. Default: 1.
	InHandler int `json:"in_handler"`
	// Base and Max bound the wait before attempt n+1, which is random between 0 and min(Max, Base·2^(n−1)). Defaults: 500 ms and
	// 10 s.
	Base time.Duration `json:"base"`
	Max  time.Duration `json:"max"`
	// Fixed is the wait instead, the same each time.
	Fixed time.Duration `json:"fixed"`
	// MaxRetryAfter is the longest wait requested by the dependency that a call waits for; with a longer one it fails at once.
	// Default: 10 s.
	MaxRetryAfter time.Duration `json:"max_retry_after"`
}

// Bulkhead limits the calls at a time.
type Bulkhead struct {
	// Calls is how many there may be. Default: no limit.
	Calls int `json:"calls"`
	// Wait is how long a call waits for its turn. Default: not at all.
	Wait time.Duration `json:"wait"`
}

// RateLimit limits the attempts per second.
type RateLimit struct {
	// PerSecond is how many there may be. Default: no limit.
	PerSecond float64 `json:"per_second"`
	// Burst is how many may start at once after a pause. Default: those of one second, at least one.
	Burst int `json:"burst"`
	// Wait is how long an attempt waits for its turn. Default: not at all.
	Wait time.Duration `json:"wait"`
}

// defaults are those of a Policy.
var defaults = Policy{
	Breaker: Breaker{FailureRate: 0.5, MinCalls: 5, OpenFor: 10 * time.Second, OpenMax: 2 * time.Minute, Probes: 3},
	Retry:   Retry{Attempts: 3, InHandler: 1, Base: 500 * time.Millisecond, Max: 10 * time.Second, MaxRetryAfter: 10 * time.Second},
	Timeout: 10 * time.Second, Total: 30 * time.Second,
}

// policyOf returns the policy of an operation, or of an instance of it, "" for none, with all defaults.
func (c *Config) policyOf(operation, instance string) Policy {
	var matching []string
	for pattern := range c.Operations {
		prefix, isPattern := strings.CutSuffix(pattern, "*")
		if pattern == operation || isPattern && strings.HasPrefix(operation, prefix) {
			matching = append(matching, pattern)
		}
	}
	slices.SortFunc(matching, func(a, b string) int {
		switch operation {
		case a:
			return -1
		case b:
			return 1
		}
		return len(b) - len(a)
	})
	var p Policy
	for _, pattern := range matching {
		p = over(p, c.Operations[pattern].of(instance))
	}
	p = over(p, c.Default.of(instance))
	if p.Breaker.WindowTime == 0 && p.Breaker.WindowCalls == 0 {
		p.Breaker.WindowCalls = 10
	}
	p = over(p, defaults)
	p.Instances = nil
	if p.Breaker.ProbeTimeout == 0 {
		p.Breaker.ProbeTimeout = 2 * max(p.Timeout, defaults.Timeout/2)
	}
	if n := p.Breaker.WindowCalls; n > 0 {
		p.Breaker.MinCalls = min(p.Breaker.MinCalls, n)
	}
	p.Breaker.OpenMax = max(p.Breaker.OpenMax, p.Breaker.OpenFor)
	if p.RateLimit.Burst == 0 {
		p.RateLimit.Burst = max(int(p.RateLimit.PerSecond), 1)
	}
	return p
}

// of returns the policy with what it says about an instance.
func (p Policy) of(instance string) Policy {
	if in, ok := p.Instances[instance]; ok && instance != "" {
		return over(in, p)
	}
	return p
}

// over returns a policy with the zero fields filled in from another. Of the two windows, one excludes the other.
func over(p, base Policy) Policy {
	if p.Breaker.WindowCalls > 0 || p.Breaker.WindowTime > 0 {
		base.Breaker.WindowCalls, base.Breaker.WindowTime = p.Breaker.WindowCalls, p.Breaker.WindowTime
	}
	fill(reflect.ValueOf(&p).Elem(), reflect.ValueOf(base))
	return p
}

// fill sets the zero fields of v to those of base.
func fill(v, base reflect.Value) {
	for i := range v.NumField() {
		switch field := v.Field(i); {
		case field.Kind() == reflect.Struct:
			fill(field, base.Field(i))
		case field.IsZero():
			field.Set(base.Field(i))
		}
	}
}

// check returns the errors of a configuration.
func (c *Config) check() error {
	errs := c.Default.check("default")
	for _, pattern := range slices.Sorted(maps.Keys(c.Operations)) {
		if name := strings.TrimSuffix(pattern, "*"); pattern != "*" && !validName(name) {
			errs = append(errs, fmt.Errorf("operations.%s: a name has 1 to %d of a-z, 0-9, '.', '-' and '_', a pattern one '*' at its end", pattern, maxName))
		}
		p := c.Operations[pattern]
		errs = append(errs, p.check("operations."+pattern)...)
	}
	if c.MaxInstances < 0 {
		errs = append(errs, fmt.Errorf("max_instances must not be negative, is %d", c.MaxInstances))
	}
	return errors.Join(errs...)
}

// check returns the errors of a policy at a path of the configuration.
func (p *Policy) check(path string) (errs []error) {
	fault := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s %s", path, key, fmt.Sprintf(format, args...)))
	}
	if r := p.Breaker.FailureRate; !(r >= 0 && r <= 1) {
		fault("breaker.failure_rate", "is a share from 0 to 1, is %v", r)
	}
	if r := p.RateLimit.PerSecond; !(r >= 0) {
		fault("rate_limit.per_second", "must not be negative, is %v", r)
	}
	if p.Breaker.WindowCalls > 0 && p.Breaker.WindowTime > 0 {
		fault("breaker", "has window_calls and window_time; give one of them")
	}
	if b := p.Breaker; b.WindowCalls > 0 && b.MinCalls > b.WindowCalls {
		fault("breaker.min_calls", "is %d, more than the %d calls of the window", b.MinCalls, b.WindowCalls)
	}
	for key, n := range map[string]int{
		"breaker.min_calls": p.Breaker.MinCalls, "breaker.window_calls": p.Breaker.WindowCalls, "breaker.probes": p.Breaker.Probes,
		"retry.attempts": p.Retry.Attempts, "retry.in_handler": p.Retry.InHandler, "bulkhead.calls": p.Bulkhead.Calls,
		"rate_limit.burst": p.RateLimit.Burst,
	} {
		if n < 0 {
			fault(key, "must not be negative, is %d", n)
		}
	}
	for key, d := range map[string]time.Duration{
		"breaker.window_time": p.Breaker.WindowTime, "breaker.slow_after": p.Breaker.SlowAfter, "breaker.open_for": p.Breaker.OpenFor,
		"breaker.open_max": p.Breaker.OpenMax, "breaker.probe_timeout": p.Breaker.ProbeTimeout, "retry.base": p.Retry.Base, "retry.max": p.Retry.Max,
		"retry.fixed": p.Retry.Fixed, "retry.max_retry_after": p.Retry.MaxRetryAfter, "bulkhead.wait": p.Bulkhead.Wait, "rate_limit.wait": p.RateLimit.Wait,
	} {
		if d < 0 {
			fault(key, "must not be negative, is %s", d)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Instances)) {
		in := p.Instances[name]
		errs = append(errs, in.check(path+".instances."+name)...)
		if len(in.Instances) > 0 {
			fault("instances."+name, "has instances itself")
		}
	}
	return errs
}
