package report

import (
	"strings"
	"testing"
)

const oldPage = `# Figures

<!-- bench: targets 1 2 -->

| | | measured | target | |
|---|---|---|---|---|
| 1 | drain | 9 | ≥ 0.8 | holds |
| 2 | idle | 2.5 | ≤ 3 | holds |

<!-- bench: drain -->

| | msg/s | min..max | of limit | of peer | WAL B |
|---|---|---|---|---|---|
| gone | 1 |  |  |  |  |

7 messages in a run.

<!-- bench: publish -->

| | tx/s |
|---|---|
| not measured | 8 |

The end.
`

const newPage = `# Figures

<!-- bench: targets 1 2 -->

| | | measured | target | |
|---|---|---|---|---|
| 1 | drain | 0.625 (0.5..0.75) | ≥ 0.8 | **missed** |
| 2 | idle | 2.5 | ≤ 3 | holds |

<!-- bench: drain -->

| | msg/s | min..max | of limit | of peer | WAL B |
|---|---|---|---|---|---|
| by hand | 3,000 | 2,000..4,000 |  |  |  |
| **Postrider** | 2,000 | 1,000..3,000 | 0.62 | 4.00 | 7 |
| other (quoted) | 500 |  |  |  |  |

20,000 messages in a run.

<!-- bench: publish -->

| | tx/s |
|---|---|
| not measured | 8 |

The end.
`

func TestUpdate(t *testing.T) {
	t.Parallel()
	suite := &Suite{
		Name: "drain", Unit: "msg/s", Figure: "rate", Messages: 20_000, Also: []Column{{"cpu", "client µs"}, {"wal", "WAL B"}},
		Rows: []*Row{
			{Name: "by hand", Role: Limit, Runs: []Figures{{"rate": 4000, "cpu": 1.5}, {"rate": 2000, "cpu": 1.5}}},
			{Name: "Postrider", Role: Ours, Limit: "by hand", Peer: "other", Runs: []Figures{{"rate": 3000, "wal": 7}, {"rate": 1000}}},
			{Name: "other", Role: Quoted, Runs: []Figures{{"rate": 500}}},
		},
	}
	r := &Report{Suites: []*Suite{suite}}
	r.Promises = r.Judge([]Promise{
		{Number: 1, Text: "drain", Suite: "drain", Row: "Postrider", With: "by hand", AtLeast: 0.8},
		{Number: 2, Text: "idle", Suite: "idle", Row: "relay", Figure: "cpu", AtMost: 3},
		{Number: 3, Text: "of another table", Suite: "drain", Row: "Postrider", Figure: "rate", AtLeast: 1},
	})
	got, err := r.Update(oldPage)
	if err != nil || got != newPage {
		t.Errorf("%v; got:\n%s\nwant:\n%s", err, got, newPage)
	}
	for page, want := range map[string]string{
		"<!-- bench: drain -->\n\n| | msg/s | no such |\n|---|---|---|\n": `no column "no such"`,
		"<!-- bench: drain -->\n\ntext\n":                                 "no table follows",
		"<!-- bench: targets 1 -->\n\n":                                   "no table follows",
	} {
		if _, err := r.Update(page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", page, err, want)
		}
	}
}
