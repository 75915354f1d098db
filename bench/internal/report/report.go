// Package report keeps what the benchmarks measured and shows it: as a table, as JSON, as charts, and as ratios that are
// compared with what was promised and with an earlier run.
package report

import (
	"fmt"
	"runtime"
	"time"
)

// Report is what one run of the benchmarks found.
type Report struct {
	Started  time.Time         `json:"started"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	// Settings are those of the servers, by name, that bear on the figures.
	Settings map[string]string `json:"settings"`
	// Rounds is how often each row was run.
	Rounds int      `json:"rounds"`
	Suites []*Suite `json:"suites"`
	// Promises are the figures that are to hold, with what was found.
	Promises []Verdict `json:"promises"`
}

// Machine is where the benchmarks ran.
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

// ThisMachine describes the machine that this process runs on, given what the operating system says of it.
func ThisMachine(processor string, memoryMiB int) Machine {
	return Machine{
		Processor: processor, Cores: runtime.NumCPU(), MemoryMiB: memoryMiB,
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
	}
}

// Suite is a set of rows that were measured in turn, so that what befalls the machine befalls all of them.
type Suite struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Figure names the figure that the rows are compared by, Unit what it is in.
	Figure string `json:"figure"`
	Unit   string `json:"unit"`
	// Lower: a smaller figure is the better one.
	Lower bool `json:"lower"`
	// Messages is the number of messages of a run, unless the names of the rows say otherwise.
	Messages int `json:"messages"`
	// Also names further figures to show.
	Also []Column `json:"also,omitempty"`
	Rows []*Row   `json:"rows"`
}

// Column is a figure that is shown beside the one that is compared.
type Column struct {
	Figure string `json:"figure"`
	Title  string `json:"title"`
}

// Role says what a row is there for.
type Role string

// The roles of rows.
const (
	// Ours is Postrider.
	Ours Role = "postrider"
	// Limit is the same work by hand, or what the server can do at all.
	Limit Role = "limit"
	// Peer is another library.
	Peer Role = "peer"
	// Quoted is another library that cannot be run here: its figure was measured once on a machine of the same kind.
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

// Figure summarises a figure over the rounds; ok is false when no round has it.
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
// run, as a quoted one has, is compared with every round. ok is false when there is nothing to compare.
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
