package main

import (
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// summarise adds the events of one go test and closes the summary.
func summarise(events io.Reader, w io.Writer) bool {
	s := newSummary(w)
	s.read(events)
	return s.close()
}

func TestSummary(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		events string
		want   string // the last line
		good   bool
	}{
		"passes": {`
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA/sub"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":0.1}`, "2 passed, 0 failed", true},
		"one fails": {`
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}`, "1 passed, 1 failed", false},
		"package ends early": {`
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"exit status 2\n"}
{"Action":"fail","Package":"p"}`, "1 passed, 1 failed", false},
		"does not build": {`
{"ImportPath":"p [p.test]","Action":"build-output","Output":"undefined: x\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}
{"Action":"pass","Package":"q","Test":"TestA"}`, "1 passed, 1 failed", false},
		"nothing ran":  {`{"Action":"skip","Package":"p"}`, "0 passed, 0 failed", false},
		"only skipped": {`{"Action":"skip","Package":"p","Test":"TestA"}`, "0 passed, 0 failed", false},
		"no event":     {`pattern ./...: no modules`, "0 passed, 0 failed", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			good := summarise(strings.NewReader(strings.TrimSpace(tt.events)), &out)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; last != tt.want || good != tt.good {
				t.Errorf("good %t, want %t; want last line %q in:\n%s", good, tt.good, tt.want, out.String())
			}
		})
	}
}

// TestSiblingSummaries: two runs of go test have the same package. What one says of it does not end, excuse or hide what the
// other says.
func TestSiblingSummaries(t *testing.T) {
	t.Parallel()
	const failing = `{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"waited in vain\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}`
	tests := map[string]struct {
		other string
		want  string // the last line, after a second run that passes
	}{
		"it passed":      {`{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p","Elapsed":1}`, "3 passed, 0 failed"},
		"it broke":       {`{"Action":"fail","Package":"p"}`, "1 passed, 2 failed"},
		"it found races": {`{"Action":"output","Package":"p","Test":"TestA","Output":"WARNING: DATA RACE\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestA"}`, "1 passed, 2 failed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := newSummary(&out)
			one, other := s.sibling(), s.sibling()
			one.add(event{Action: "pass", Package: "p", Test: "TestC"})
			begun, ended := failing[:strings.LastIndex(failing, "\n")], failing[strings.LastIndex(failing, "\n"):]
			one.read(strings.NewReader(begun))
			other.read(strings.NewReader(tt.other))
			one.read(strings.NewReader(ended))
			s.include(one)
			s.include(other)
			if err := s.runAgain(func(_ []string, _ []listed, second *summary) error {
				second.read(strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestB"}`))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			s.close()
			if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); lines[len(lines)-1] != tt.want {
				t.Errorf("want last line %q in:\n%s", tt.want, out.String())
			}
		})
	}
}

// yielding lets other goroutines go on before it has written.
type yielding struct {
	strings.Builder
	mu sync.Mutex
}

func (s *yielding) Write(text []byte) (int, error) {
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Builder.Write(text)
}

// TestSummariesWriteOneAtATime: the lines of a failure stay together while another run of go test writes.
func TestSummariesWriteOneAtATime(t *testing.T) {
	t.Parallel()
	var out yielding
	s := newSummary(&out)
	var running sync.WaitGroup
	for range 2 {
		one := s.sibling()
		running.Go(func() {
			for range 100 {
				one.add(event{Action: "output", Package: "p", Test: "TestA", Output: "of A\n"})
				one.add(event{Action: "fail", Package: "p", Test: "TestA"})
			}
		})
	}
	running.Wait()
	want := "FAIL\tp\tTestA\nof A\n"
	if n := strings.Count(out.String(), want); n != 200 || len(out.String()) != 200*len(want) {
		t.Errorf("%d of 200 failures are whole in %d bytes", n, len(out.String()))
	}
}

func TestSummaryShowsRaces(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	summarise(strings.NewReader(`{"Action":"output","Package":"p","Test":"TestA","Output":"WARNING: DATA RACE\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestB"}`), &out)
	if !strings.Contains(out.String(), "TestA\nWARNING: DATA RACE") {
		t.Errorf("the race is missing in:\n%s", out.String())
	}
}

func TestSummaryShowsWhatHasNotEnded(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	summarise(strings.NewReader(`{"Action":"output","Package":"q","Test":"TestQ","Output":"elsewhere\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}`), &out)
	if got := out.String(); strings.Contains(got, "elsewhere") || !strings.Contains(got, "TestA\npanic: test timed out") {
		t.Errorf("want the output of TestA only, got:\n%s", got)
	}
}

func TestSummaryShowsTheOutputOfWhatFailed(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	summarise(strings.NewReader(`{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"loud\n"}
{"Action":"fail","Package":"p","Test":"TestB"}`), &out)
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
		t.Errorf("want the output of TestB only, got:\n%s", got)
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	const failing = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/sub"}
{"Action":"output","Package":"p","Test":"TestA/sub","Output":"%s\n"}
{"Action":"fail","Package":"p","Test":"TestA/sub"}
{"Action":"fail","Package":"p","Test":"TestA"}
`
	failed := `{"Action":"fail","Package":"p"}`
	late := strings.ReplaceAll(failing, "%s", "waited in vain")
	tests := map[string]struct {
		events, second string
		want           string
	}{
		"passes alone":    {late + failed, "pass", "2 passed, 0 failed"},
		"fails again":     {late + failed, "fail", "0 passed, 2 failed"},
		"is not there":    {late + failed, "skip", "0 passed, 2 failed"},
		"a race":          {strings.ReplaceAll(failing, "%s", "WARNING: DATA RACE") + failed, "pass", "0 passed, 2 failed"},
		"a promise":       {strings.ReplaceAll(failing, "%s", "a promise broke: 1 lost") + failed, "pass", "0 passed, 2 failed"},
		"the program":     {failed, "pass", "0 passed, 1 failed"},
		"has not ended":   {late + `{"Action":"run","Package":"p","Test":"TestB"}` + "\n" + failed, "pass", "0 passed, 2 failed"},
		"too many failed": {late + strings.ReplaceAll(late, "TestA", "TestB") + strings.ReplaceAll(late, "TestA", "TestC") + strings.ReplaceAll(late, "TestA", "TestD") + failed, "pass", "0 passed, 8 failed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := newSummary(&out)
			s.read(strings.NewReader(tt.events))
			if err := s.runAgain(func(_ []string, packages []listed, second *summary) error {
				second.read(strings.NewReader(`{"Action":"` + tt.second + `","Package":"` + packages[0].ImportPath + `","Test":"TestA"}`))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			good := s.close()
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; last != tt.want || good != strings.HasSuffix(tt.want, " 0 failed") {
				t.Errorf("want last line %q in:\n%s", tt.want, out.String())
			}
			if named := strings.Contains(out.String(), "passed when it ran alone: p TestA"); named != (tt.want == "2 passed, 0 failed") {
				t.Errorf("named %t in:\n%s", named, out.String())
			}
		})
	}
}
