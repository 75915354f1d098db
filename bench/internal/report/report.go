// Package report stores the benchmarks' results and presents them: as a table, as JSON, as charts, and as ratios that are
// compared with the promises and with an earlier run.
package report

import (
	"fmt"
	"runtime"
	"time"
)

// Report is the result of one run of the benchmarks.
type Report struct {
	Started  time.Time         `json:"started"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	// Settings are the server settings, by name, that affect the figures.
	Settings map[string]string `json:"settings"`
	// Rounds is how often each row was run.
	Rounds int      `json:"rounds"`
	Suites []*Suite `json:"suites"`
	// Promises are the required figures and the measured ones.
	Promises []Outcome `json:"promises"`
}

// Machine is the machine on which the benchmarks ran.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	MemoryMiB int    `json:"memory_mib"`
	System    string `json:"system"`
	Go        string `json:"go"`
}

// String is the machine in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %d MiB, %s, %s", m.Processor, m.Cores, m.MemoryMiB, m.System, m.Go)
}

// ThisMachine describes the current machine, given information from the operating system.
func ThisMachine(processor string, memoryMiB int) Machine {
	return Machine{
		Processor: processor, Cores: runtime.NumCPU(), MemoryMiB: memoryMiB,
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
	}
}

// Suite is a set of rows that were measured in turn, so that changes in machine load affect all of them.
type Suite struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Figure is the figure by which the rows are compared, Unit its unit.
	Figure string `json:"figure"`
	Unit   string `json:"unit"`
	// Lower: smaller is better.
	Lower bool `json:"lower"`
	// Messages is the number of messages per run, unless a row's name says otherwise.
	Messages int `json:"messages"`
	// Also names further figures to show.
	Also []Column `json:"also,omitempty"`
	Rows []*Row   `json:"rows"`
}

// Column is an additional figure to show.
type Column struct {
	Figure string `json:"figure"`
	Title  string `json:"title"`
}

// Role is the purpose of a row.
type Role string

// The roles of rows.
const (
	// Ours is Postrider.
	Ours Role = "postrider"
	// Limit is the same work by hand, or the server's maximum.
	Limit Role = "limit"
	// Peer is another library.
	Peer Role = "peer"
	// Quoted is another library that cannot be run here: its figure was measured once on a similar machine.
	Quoted Role = "quoted"
)

// Figures are the results of one run, by name: "rate" is messages per second.
type Figures map[string]float64

// Row is one way of doing the work of a suite.
type Row struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Limit and Peer name the rows of the same suite that this one is compared with; empty for none.
	Limit string `json:"limit,omitempty"`
	Peer  string `json:"peer,omitempty"`
	// Runs has the figures of each round.
	Runs []Figures `json:"runs"`
}

// Row returns the row of that name, or nil.
func (s *Suite) Row(name string) *Row {
	for _, r := range s.Rows {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// Suite returns the suite of that name, or nil.
func (r *Report) Suite(name string) *Suite {
	for _, s := range r.Suites {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Figure summarizes a figure over the rounds; ok is false if no round has it.
func (r *Row) Figure(name string) (s Summary, ok bool) {
	var values []float64
	for _, run := range r.Runs {
		if v, there := run[name]; there {
			values = append(values, v)
		}
	}
	return Summarise(values), len(values) > 0
}

// Ratio compares a row with another of the suite, round by round: the two figures of a round were measured within seconds
// of each other, so their ratio suffers less from a busy machine than the ratio of two medians would. A row with a single
// run, as a quoted one has, is compared with every round. ok is false if there is nothing to compare.
func (s *Suite) Ratio(r *Row, with string) (ratio Summary, ok bool) {
	other := s.Row(with)
	if with == "" || other == nil || len(other.Runs) == 0 {
		return Summary{}, false
	}
	var ratios []float64
	for i, run := range r.Runs {
		j := i
		if len(other.Runs) == 1 {
			j = 0
		}
		if j >= len(other.Runs) {
			break
		}
		mine, there := run[s.Figure]
		theirs := other.Runs[j][s.Figure]
		if there && theirs > 0 {
			ratios = append(ratios, mine/theirs)
		}
	}
	return Summarise(ratios), len(ratios) > 0
}
