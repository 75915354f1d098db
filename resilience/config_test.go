package resilience_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/resilience"
)

// waits returns the waits between the attempts of a call that fails.
func waits(t *testing.T, o *resilience.Operation) (out []time.Duration) {
	t.Helper()
	var last time.Time
	_ = o.Run(t.Context(), func(context.Context) error {
		if !last.IsZero() {
			out = append(out, time.Since(last))
		}
		last = time.Now()
		return errDown
	})
	return out
}

// TestEveryKeyChangesBehaviour: a configuration with one key behaves otherwise than one without.
//
// size: a table of the keys.
func TestEveryKeyChangesBehaviour(t *testing.T) {
	t.Parallel()
	failing := func(good, bad int) func(t *testing.T, o *resilience.Operation) string {
		return func(t *testing.T, o *resilience.Operation) string {
			t.Helper()
			end(t, o, good, nil)
			end(t, o, bad, errDown)
			return string(o.State().Breaker)
		}
	}
	for _, k := range []struct {
		name, config    string // the configuration of operation x
		without, with   string // what happens
		whatHappens     func(t *testing.T, o *resilience.Operation) string
		keepsRetryCount bool
	}{
		{name: "001.65 enabled", config: `{"disabled": true}`, without: "open", with: "closed", whatHappens: failing(0, 5)},
		{name: "001.66 failure rate", config: `{"breaker": {"failure_rate": 0.8}}`, without: "open", with: "closed", whatHappens: failing(5, 5)},
		{name: "001.67 wait in the open state", config: `{"breaker": {"open_for": "30s"}}`, without: "1", with: "0",
			whatHappens: func(t *testing.T, o *resilience.Operation) string {
				end(t, o, 5, errDown)
				pass(20 * time.Second)
				return fmt.Sprint(end(t, o, 1, nil))
			}},
		{name: "001.68 window size", config: `{"breaker": {"window_calls": 6}}`, without: "closed", with: "open", whatHappens: failing(10, 3)},
		{name: "001.69 window type", config: `{"breaker": {"window_time": "1m"}}`, without: "open", with: "closed",
			whatHappens: func(t *testing.T, o *resilience.Operation) string {
				for range 5 {
					pass(time.Minute)
					end(t, o, 1, errDown)
				}
				return string(o.State().Breaker)
			}},
		{name: "001.69 window type, in time", config: `{"breaker": {"window_time": "1m"}}`, without: "open", with: "open", whatHappens: failing(5, 5)},
		{name: "001.70 calls before it can open", config: `{"breaker": {"min_calls": 2}}`, without: "closed", with: "open", whatHappens: failing(0, 2)},
		{name: "001.71 calls in the half-open state", config: `{"breaker": {"probes": 1}}`, without: "half_open", with: "closed",
			whatHappens: func(t *testing.T, o *resilience.Operation) string {
				end(t, o, 5, errDown)
				pass(15 * time.Second)
				end(t, o, 1, nil)
				return string(o.State().Breaker)
			}},
		{name: "001.72 attempts", config: `{"retry": {"attempts": 5}}`, without: "2", with: "4", keepsRetryCount: true,
			whatHappens: func(t *testing.T, o *resilience.Operation) string { return fmt.Sprint(len(waits(t, o))) }},
		{name: "001.73 wait", config: `{"retry": {"base": "1h", "max": "1h"}, "total": "-1s"}`, without: "seconds", with: "minutes", keepsRetryCount: true,
			whatHappens: func(t *testing.T, o *resilience.Operation) string {
				longest := time.Duration(0)
				for range 4 {
					for _, w := range waits(t, o) {
						longest = max(longest, w)
					}
				}
				if longest <= time.Second { // 500 ms · 2 is the bound of the second wait
					return "seconds"
				}
				return "minutes"
			}},
		{name: "001.74 exponential waits", config: `{"retry": {"fixed": "2s"}}`, without: "other", with: "2s 2s", keepsRetryCount: true,
			whatHappens: func(t *testing.T, o *resilience.Operation) string {
				if w := waits(t, o); fmt.Sprint(w) != "[2s 2s]" {
					return "other"
				}
				return "2s 2s"
			}},
		{name: "001.75 multiplier", config: `{"retry": {"attempts": 12, "base": "1ms", "max": "1h"}, "total": "-1s"}`, without: "few", with: "doubling", keepsRetryCount: true,
			whatHappens: func(t *testing.T, o *resilience.Operation) string {
				w, longest := waits(t, o), time.Duration(0)
				if len(w) < 11 {
					return "few"
				}
				for range 20 {
					for i, d := range waits(t, o) {
						if d > time.Millisecond<<i {
							t.Errorf("wait %d is %s", i+1, d)
						}
						longest = max(longest, d)
					}
				}
				if longest > 100*time.Millisecond { // the bound of the last one is about a second
					return "doubling"
				}
				return "short"
			}},
		{name: "001.76 instances", config: `{"instances": {"eu": {"breaker": {"min_calls": 1}}}}`, without: "closed", with: "open",
			whatHappens: func(t *testing.T, o *resilience.Operation) string {
				if failing(0, 1)(t, o.Instance("us")) != "closed" || failing(0, 1)(t, o) != "closed" {
					t.Error("the key applies to others")
				}
				return failing(0, 1)(t, o.Instance("eu"))
			}},
	} {
		t.Run(k.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				run := func(config string) string {
					base := `"default": {"retry": {"attempts": 1}}, `
					if k.keepsRetryCount {
						base = ""
					}
					if strings.Contains(config, "disabled") {
						return k.whatHappens(t, parsed(t, `{`+base+strings.TrimPrefix(config, "{")).Operation("x"))
					}
					return k.whatHappens(t, parsed(t, `{`+base+`"operations": {"x": `+config+`, "y": {}}}`).Operation("x"))
				}
				if got := run(`{}`); got != k.without {
					t.Errorf("without the key: %s, want %s", got, k.without)
				}
				if got := run(k.config); got != k.with {
					t.Errorf("with it: %s, want %s", got, k.with)
				}
			})
		})
	}
}

// TestPoliciesAreMerged: of the default, two patterns, a name and an instance, the nearest one counts, field by field.
func TestPoliciesAreMerged(t *testing.T) {
	t.Parallel()
	s := parsed(t, `{
		"default": {"timeout": "1s", "total": "11s", "breaker": {"window_calls": 20, "probes": 7}},
		"operations": {
			"*": {"bulkhead": {"calls": 3}},
			"payment.*": {"timeout": "2s", "retry": {"attempts": 2}, "breaker": {"window_time": "1m"}},
			"payment.refund": {"timeout": "3s", "instances": {"eu": {"timeout": "4s"}, "us": {"breaker": {"off": true}}}}
		}
	}`)
	for _, want := range []struct {
		operation, instance      string
		timeout                  time.Duration
		attempts, calls, probes  int
		windowTime               time.Duration
		windowCalls, concurrency int
	}{
		{"order", "", time.Second, 3, 20, 7, 0, 20, 3},
		{"payment.charge", "", 2 * time.Second, 2, 20, 7, time.Minute, 0, 3},
		{"payment.refund", "", 3 * time.Second, 2, 20, 7, time.Minute, 0, 3},
		{"payment.refund", "eu", 4 * time.Second, 2, 20, 7, time.Minute, 0, 3},
	} {
		o := s.Operation(want.operation).Instance(want.instance)
		p := o.State().Policy
		if p.Timeout != want.timeout || p.Retry.Attempts != want.attempts || p.Breaker.Probes != want.probes || p.Total != 11*time.Second ||
			p.Breaker.WindowTime != want.windowTime || p.Breaker.WindowCalls != want.windowCalls || p.Bulkhead.Calls != want.concurrency {
			t.Errorf("%s %s: %+v", want.operation, want.instance, p)
		}
	}
	if !s.Operation("payment.refund").Instance("us").State().Policy.Breaker.Off {
		t.Error("the policy of an instance has no effect")
	}
}

// TestConfigurationErrors: all errors are reported, with their paths.
func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	_, err := resilience.Parse([]byte(`{"disable": true, "default": {"timeout": 5, "retry": {"base": "soon", "times": 3}}, "operations": {"x": {"Timeout": "1s"}}}`))
	for _, want := range []string{"disable: unknown key", "default.timeout: a duration is a text", "default.retry.base: ", "default.retry.times: unknown key", "operations.x.Timeout: unknown key"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse: %q is missing in %v", want, err)
		}
	}
	_, err = resilience.New(resilience.Config{MaxInstances: -1, Operations: map[string]resilience.Policy{
		"Payment": {}, "a": {
			Breaker: resilience.Breaker{FailureRate: 50, WindowCalls: 3, WindowTime: 1, MinCalls: 4}, RateLimit: resilience.RateLimit{PerSecond: -1},
			Retry:     resilience.Retry{Attempts: -1, Base: -1},
			Instances: map[string]resilience.Policy{"eu": {Bulkhead: resilience.Bulkhead{Calls: -1}}},
		},
	}})
	for _, want := range []string{
		"max_instances", "operations.Payment", "operations.a.breaker.failure_rate", "operations.a.breaker has window_calls", "operations.a.breaker.min_calls",
		"operations.a.rate_limit.per_second", "operations.a.retry.attempts", "operations.a.retry.base", "operations.a.instances.eu.bulkhead.calls",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %q is missing in %v", want, err)
		}
	}
}

// TestNamesAreBounded: names made of data end up in one operation, and instances in the number that is configured.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newSet(t, resilience.Config{MaxInstances: 3, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 5000 {
		end(t, s.Operation(fmt.Sprintf("order-%d", i)), 1, nil)
	}
	end(t, s.Operation("Order 17"), 1, nil)
	if n := len(s.Operations()); n != 1001 || s.Operation("order-4999").Name() != "_other" || s.Operation("order-17").Name() != "order-17" {
		t.Errorf("%d operations", n)
	}
	if n := strings.Count(log.String(), "_other"); n != 1 {
		t.Errorf("%d lines about names:\n%s", n, log.String())
	}
	o := s.Operation("order-1")
	first := o.Instance("a")
	for _, name := range []string{"b", "c", "a", "d"} {
		o.Instance(name)
	}
	if o.Instance("a") != first {
		t.Error("an instance in use was dropped")
	}
}

// TestDisable: the policies of a running process are switched off and on.
func TestDisable(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSet(t, once(resilience.Policy{}))
		o := s.Operation("x")
		end(t, o, 5, errDown)
		if end(t, o, 1, nil) != 0 {
			t.Fatal("the breaker is not open")
		}
		s.Disable(true)
		if end(t, o, 3, nil) != 3 || isOpen(o) {
			t.Error("a disabled set rejects calls")
		}
		s.Disable(false)
		if end(t, o, 1, nil) != 0 {
			t.Error("the breaker does not continue where it was")
		}
	})
}

// TestDisabledCostsNothing: a disabled operation allocates nothing.
func TestDisabledCostsNothing(t *testing.T) {
	o := newSet(t, resilience.Config{Disabled: true}).Operation("x")
	ctx, f := t.Context(), func(context.Context) error { return nil }
	if n := testing.AllocsPerRun(1000, func() { _ = o.Run(ctx, f) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRun compares a call without policies, with disabled ones, and with all of them.
func BenchmarkRun(b *testing.B) {
	f := func(context.Context) error { return nil }
	ctx := b.Context()
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			_ = f(ctx)
		}
	})
	for name, off := range map[string]bool{"disabled": true, "enabled": false} {
		b.Run(name, func(b *testing.B) {
			s, err := resilience.New(resilience.Config{Disabled: off})
			if err != nil {
				b.Fatal(err)
			}
			o := s.Operation("x")
			for b.Loop() {
				_ = o.Run(ctx, f)
			}
		})
	}
}
