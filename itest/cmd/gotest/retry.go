package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A busy machine fails a few of some thousand tests that wait for servers. These run once more, alone. The report names
// those that pass, because each is a defect of a test.

// retryable is the largest number of tests that run again: if more fail, the machine is not the reason.
const retryable = 3

// decisive are texts of failures that no second run excuses: a race, a crash, and a message lost, doubled or out of order.
var decisive = []string{"DATA RACE", "race detected during execution", "panic:", "a promise broke"}

// retry says which tests may run again.
type retry struct {
	running  map[unit]bool
	failures map[unit]int // failed tests by the test that contains them, itself included
	refused  bool
}

func newRetry() retry { return retry{running: map[unit]bool{}, failures: map[unit]int{}} }

// include adds what another run of go test failed.
func (r *retry) include(other retry) {
	for u, n := range other.failures {
		r.failures[u] += n
	}
	r.refused = r.refused || other.refused
}

func (r *retry) begins(u unit) {
	if u.Test != "" {
		r.running[u] = true
	}
}

// ends takes the end of a test, or of its package if u.Test is empty.
func (r *retry) ends(u unit, failed bool, output *strings.Builder) {
	delete(r.running, u)
	for _, text := range decisive {
		r.refused = r.refused || output != nil && strings.Contains(output.String(), text)
	}
	if failed && u.Test != "" {
		r.failures[u.top()]++
	}
	if failed && u.Test == "" && (!r.failedIn(u.Package) || r.runningIn(u.Package)) {
		r.refused = true // the program did not end as one whose tests failed
	}
}

func (r *retry) failedIn(pkg string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(r.failures)), func(u unit) bool { return u.Package == pkg })
}

func (r *retry) runningIn(pkg string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(r.running)), func(u unit) bool { return u.Package == pkg })
}

// tests are those that may run again.
func (r *retry) tests() []unit {
	if r.refused || len(r.failures) > retryable {
		return nil
	}
	return slices.SortedFunc(maps.Keys(r.failures), func(a, b unit) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Test, b.Test))
	})
}

// top is the test that contains a subtest.
func (u unit) top() unit {
	name, _, _ := strings.Cut(u.Test, "/")
	return unit{u.Package, name}
}

// runAgain runs what failed a second time, one test after the other, with run, and counts what passes as passed.
func (s *summary) runAgain(run func(flags []string, packages []listed, results *summary) error) error {
	var passed []unit
	for _, u := range s.again.tests() {
		fmt.Fprintf(s.w, "again\t%s\t%s\n", u.Package, u.Test)
		second := newSummary(s.w)
		if err := run([]string{"-count=1", "-run=^" + regexp.QuoteMeta(u.Test) + "$"}, []listed{{ImportPath: u.Package}}, second); err != nil {
			return err
		}
		if second.failed == 0 && second.passed > 0 {
			s.failed -= s.again.failures[u]
			s.passed += s.again.failures[u]
			passed = append(passed, u)
		}
	}
	for _, u := range passed {
		fmt.Fprintln(s.w, "failed, and passed when it ran alone:", u.Package, u.Test)
	}
	return nil
}
