package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Level says how serious a finding is.
type Level string

// The levels.
const (
	// Fault: messages are not delivered, may be lost, or soon will be.
	Fault Level = "fault"
	// Warning: nothing is lost or late yet.
	Warning Level = "warning"
)

// Finding is one thing that is wrong.
type Finding struct {
	// Check is the name of the check that found it; Run sets it.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Target is what it is about: a relay, a table, a process of the database.
	Target string `json:"target"`
	// Message says what is wrong, with numbers; Impact what happens if nobody does anything.
	Message string `json:"message"`
	Impact  string `json:"impact"`
	// Fix is what to do, safest first.
	Fix []Fix `json:"fix"`
	// Evidence says how it was found out.
	Evidence string `json:"evidence"`
}

// Fix is one way to fix a finding. Nothing runs it.
type Fix struct {
	Text string `json:"text"`
	// Command can be pasted: a command line, or SQL. It is "" if there is none.
	Command string `json:"command,omitempty"`
	// Key is the key that Command names, for those who show findings to people who may not see keys.
	Key string `json:"-"`
}

// Check looks for one kind of fault.
type Check struct {
	// Name is the area and the subject, e.g. "db.clock"; Title says what it checks.
	Name, Title string
	// Run returns what is wrong, nothing if all is well. It only reads. An error means that it could not find out; a *MissingError
	// says how it can.
	Run func(ctx context.Context) ([]Finding, error)
	// Silence is what it means that Run does not answer in time. If it is nil, nothing: the check could not check.
	Silence func() []Finding
}

// Checker is implemented by stores with checks of their database.
type Checker interface {
	Checks() []Check
}

// named is what Named chooses from.
type named interface{ name() string }

func (c Check) name() string { return c.Name }

func (r Result) name() string { return r.Check }

// Named returns the checks, or the results, with one of the names or in one of the areas such as "db", each once, in the order of
// names.
func Named[T Check | Result](all []T, names []string) (out []T, err error) {
	nameOf := func(v T) string { return any(v).(named).name() }
	chosen := make(map[string]bool)
	for _, name := range names {
		found := false
		for _, v := range all {
			at := nameOf(v)
			if at != name && !strings.HasPrefix(at, name+".") {
				continue
			}
			if found = true; !chosen[at] {
				chosen[at], out = true, append(out, v)
			}
		}
		if !found {
			known := make([]string, len(all))
			for i, v := range all {
				known[i] = nameOf(v)
			}
			return nil, fmt.Errorf("there is no check %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return out, nil
}

// MissingError says that a check needs something, such as a right in the database.
type MissingError struct {
	Reason string
	Fix    Fix
}

// Error is the reason.
func (e *MissingError) Error() string { return e.Reason }

// Outcome is how a check ended.
type Outcome string

// The outcomes, worst first.
const (
	Faulty        Outcome = "fault"
	Warned        Outcome = "warning"
	CouldNotCheck Outcome = "could not check"
	Passed        Outcome = "passed"
)

// Result is how one check ended.
type Result struct {
	Check   string  `json:"check"`
	Title   string  `json:"title"`
	Outcome Outcome `json:"outcome"`
	// Findings are those of Faulty and Warned, worst first.
	Findings []Finding `json:"findings,omitempty"`
	// Reason says why it could not check, and Fix what helps. Missing: it needs something, and did not fail. Err is the error as it is.
	Reason  string `json:"reason,omitempty"`
	Fix     *Fix   `json:"fix,omitempty"`
	Missing bool   `json:"missing,omitempty"`
	Err     error  `json:"-"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

// Report has the results of all checks.
type Report struct {
	At      time.Time `json:"at"`
	Results []Result  `json:"results"`
}

// Options configure Run. The zero value of each field means its default.
type Options struct {
	// PerCheck limits one check, Total all of them. Defaults: a fifth of Total, and 20 s.
	PerCheck, Total time.Duration
	// Command completes the command lines of postrider in fixes, e.g. with the flags that name the store. Default: as they are.
	Command func(line string) string
}

// Run runs checks one after another. A check that takes too long could not check, unless its silence means something; so could one
// that is not reached in time.
func Run(ctx context.Context, checks []Check, o Options) Report {
	o.Total = cmp.Or(o.Total, 20*time.Second)
	o.PerCheck = cmp.Or(o.PerCheck, o.Total/5)
	if o.Command == nil {
		o.Command = func(line string) string { return line }
	}
	ctx, cancel := context.WithTimeout(ctx, o.Total)
	defer cancel()
	report := Report{At: time.Now().UTC(), Results: make([]Result, 0, len(checks))}
	for _, c := range checks {
		began := time.Now()
		r := c.result(ctx, o)
		r.Seconds = time.Since(began).Seconds()
		report.Results = append(report.Results, r)
	}
	return report
}

// result runs one check.
func (c Check) result(ctx context.Context, o Options) Result {
	r := Result{Check: c.Name, Title: c.Title, Outcome: CouldNotCheck}
	if ctx.Err() != nil {
		r.Reason = fmt.Sprintf("not reached within %s", o.Total)
		return r
	}
	limited, cancel := context.WithTimeout(ctx, o.PerCheck)
	defer cancel()
	findings, err := c.finish(limited)
	// The client that Run uses may notice before limited does that its time is up.
	silent := err != nil && (limited.Err() != nil || errors.Is(err, context.DeadlineExceeded))
	if silent && c.Silence != nil && ctx.Err() == nil {
		findings, err = c.Silence(), nil
	}
	missing, isMissing := errors.AsType[*MissingError](err)
	switch {
	case isMissing:
		r.Reason, r.Missing = missing.Reason, true
		if fix := o.complete(missing.Fix); fix != (Fix{}) {
			r.Fix = &fix
		}
		return r
	case err != nil && silent:
		r.Reason = "no answer in time"
		return r
	case err != nil:
		r.Reason, r.Err = err.Error(), err
		return r
	case len(findings) == 0:
		r.Outcome = Passed
		return r
	}
	r.Outcome, r.Findings = Warned, findings
	for i := range findings {
		if findings[i].Check = c.Name; findings[i].Level == Fault {
			r.Outcome = Faulty
		}
		for n := range findings[i].Fix {
			findings[i].Fix[n] = o.complete(findings[i].Fix[n])
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return a.Level.rank() - b.Level.rank() })
	return r
}

func (o Options) complete(f Fix) Fix {
	if strings.HasPrefix(f.Command, "postrider ") {
		f.Command = o.Command(f.Command)
	}
	return f
}

// finish returns what the check finds, at the latest when ctx ends, even if the check ignores that.
func (c Check) finish(ctx context.Context) ([]Finding, error) {
	type answer struct {
		findings []Finding
		err      error
	}
	answered := make(chan answer, 1)
	go func() {
		findings, err := c.Run(ctx)
		answered <- answer{findings, err}
	}()
	select {
	case a := <-answered:
		return a.findings, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l Level) rank() int {
	if l == Fault {
		return 0
	}
	return 1
}

// Findings are those of all checks, worst first.
func (r Report) Findings() []Finding {
	out := []Finding{}
	for _, result := range r.Results {
		out = append(out, result.Findings...)
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return a.Level.rank() - b.Level.rank() })
	return out
}

// Count is how many checks ended with an outcome.
func (r Report) Count(o Outcome) (n int) {
	for _, result := range r.Results {
		if result.Outcome == o {
			n++
		}
	}
	return n
}

// Failed reports whether a check could not check for another reason than a missing right or setting: it was too slow, or failed.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Results, func(result Result) bool { return result.Outcome == CouldNotCheck && !result.Missing })
}

// Summary is a sentence: "24 checks: 1 fault, 2 warnings, 1 could not check, 20 passed".
func (r Report) Summary() string {
	levels := map[Level]int{}
	for _, f := range r.Findings() {
		levels[f.Level]++
	}
	return fmt.Sprintf("%s: %s, %s, %d could not check, %d passed", plural(len(r.Results), "check"), plural(levels[Fault], "fault"),
		plural(levels[Warning], "warning"), r.Count(CouldNotCheck), r.Count(Passed))
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
