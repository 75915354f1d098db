package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Action      string  `json:"Action"`
	Package     string  `json:"Package"`
	Test        string  `json:"Test"`
	ImportPath  string  `json:"ImportPath"`
	FailedBuild string  `json:"FailedBuild"`
	Output      string  `json:"Output"`
	Elapsed     float64 `json:"Elapsed"` // seconds
}

// unit is a test, or with an empty Test its whole package.
type unit struct{ Package, Test string }

// summary counts results, and keeps output until it is known whether it is needed.
type summary struct {
	w              io.Writer
	writing        *sync.Mutex // shared with its siblings: what belongs together is written together
	output         map[unit]*strings.Builder
	tests          map[string]int // passed tests, by package
	broken         map[string]bool
	skipped        []string
	passed, failed int
	again          retry
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, writing: &sync.Mutex{}, output: map[unit]*strings.Builder{}, tests: map[string]int{}, broken: map[string]bool{}, again: newRetry()}
}

// sibling returns an empty summary of another go test, which may run the same packages at the same time and writes to the same place.
func (s *summary) sibling() *summary {
	other := newSummary(s.w)
	other.writing = s.writing
	return other
}

// include adds the results of a sibling.
func (s *summary) include(other *summary) {
	s.passed += other.passed
	s.failed += other.failed
	s.skipped = append(s.skipped, other.skipped...)
	s.again.include(other.again)
}

// read adds the events of one go test.
func (s *summary) read(events io.Reader) {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20) // a test may print a long line
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			s.write("%s\n", lines.Bytes()) // go test prints some of its own errors as plain text
			continue
		}
		s.add(e)
	}
	if err := lines.Err(); err != nil {
		s.write("reading the results of go test: %v\n", err)
		s.failed++
	}
}

func (s *summary) write(format string, args ...any) {
	s.writing.Lock()
	defer s.writing.Unlock()
	fmt.Fprintf(s.w, format, args...)
}

func (s *summary) add(e event) {
	s.writing.Lock()
	defer s.writing.Unlock()
	u := unit{cmp.Or(e.Package, e.ImportPath), e.Test}
	switch e.Action {
	case "run":
		s.again.begins(u)
	case "output", "build-output":
		s.keep(u, e.Output)
	case "build-fail":
		s.fail(u)
	case "pass", "skip", "fail":
		s.again.ends(u, e.Action == "fail", s.output[u])
		s.showRace(e, u)
		s.result(e, u)
		delete(s.output, u)
	}
}

// showRace shows a report of the race detector in the output of a test that passed: it fails another one.
func (s *summary) showRace(e event, u unit) {
	if out := s.output[u]; e.Action != "fail" && out != nil && strings.Contains(out.String(), "WARNING: DATA RACE") {
		fmt.Fprintf(s.w, "race\t%s\t%s\n%s", u.Package, u.Test, out.String())
	}
}

func (s *summary) keep(u unit, text string) {
	if s.output[u] == nil {
		s.output[u] = &strings.Builder{}
	}
	s.output[u].WriteString(text)
}

func (s *summary) result(e event, u unit) {
	switch {
	case e.FailedBuild != "": // counted when the build failed
	case e.Action == "fail" && (u.Test != "" || !s.broken[u.Package]):
		s.fail(u) // a package without a failed test failed by itself: it panicked, exited or timed out
	case u.Test == "" && e.Action == "pass":
		fmt.Fprintf(s.w, "ok  \t%s\t%.1fs\t%d tests\n", u.Package, e.Elapsed, s.tests[u.Package])
	case u.Test == "":
	case e.Action == "pass":
		s.passed++
		s.tests[u.Package]++
	case e.Action == "skip":
		s.skipped = append(s.skipped, u.Package+" "+u.Test)
	}
}

func (s *summary) fail(u unit) {
	s.failed++
	s.broken[u.Package] = true
	fmt.Fprintf(s.w, "FAIL\t%s\t%s\n", u.Package, u.Test)
	if out := s.output[u]; out != nil {
		fmt.Fprint(s.w, out.String())
	}
	if u.Test != "" {
		return
	}
	for v, out := range s.output { // of tests that have not ended; a panic is in that of the last one that wrote
		if v.Package == u.Package && v.Test != "" {
			fmt.Fprintf(s.w, "not ended\t%s\t%s\n%s", v.Package, v.Test, out.String())
			delete(s.output, v)
		}
	}
}

// close prints the summary, and reports whether at least one test ran and none failed.
func (s *summary) close() bool {
	for _, name := range s.skipped {
		fmt.Fprintln(s.w, "skipped:", name)
	}
	if s.passed+s.failed == 0 {
		fmt.Fprintln(s.w, "no test ran")
	}
	fmt.Fprintf(s.w, "%d passed, %d failed\n", s.passed, s.failed)
	return s.passed > 0 && s.failed == 0
}
