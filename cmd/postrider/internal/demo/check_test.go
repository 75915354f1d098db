package demo

import (
	"fmt"
	"strings"
	"testing"
)

// facts returns a ledger of three messages in each of two keys.
func facts() []fact {
	var out []fact
	for n := range int64(3) {
		for _, key := range []string{"customer/1", "customer/2"} {
			out = append(out, fact{ID: fmt.Sprintf("%s-%d", key, n+1), Key: key, N: n + 1})
		}
	}
	return out
}

func TestCheckerJudges(t *testing.T) {
	t.Parallel()
	ledger := facts()
	for name, test := range map[string]struct {
		received []fact
		dead     string
		want     Findings
		names    string
	}{
		"all in order": {ledger, "", Findings{Received: 6}, ""},
		"twice the same": {append(facts(), ledger[0], ledger[5]), "",
			Findings{Received: 6, Duplicates: 2}, ""},
		"lost": {append(facts()[:1], facts()[2:]...), "",
			Findings{Received: 5, Lost: 1}, "lost: customer/2 number 1"},
		"in the dead letters": {ledger[:5], ledger[5].ID, Findings{Received: 5, Dead: 1}, ""},
		"invented": {append(facts(), fact{"x", "customer/1", 4}), "",
			Findings{Received: 7, Invented: 1}, "invented: customer/1 number 4 (message x)"},
		"out of order": {[]fact{ledger[0], ledger[1], ledger[4], ledger[2], ledger[3], ledger[5]}, "",
			Findings{Received: 6, Disorder: 1}, "out of order: customer/1 number 2 came after number 3"},
		"altered": {append(facts()[:5], fact{ledger[5].ID, "customer/9", 3}), "",
			Findings{Received: 6, Altered: 1}, "altered: customer/2 number 3 arrived as customer/9 number 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChecker()
			for _, f := range test.received {
				c.receive(f)
			}
			got := c.compare(ledger, map[string]bool{test.dead: true})
			named := strings.Join(got.Named, "\n")
			if !strings.Contains(named, test.names) || (test.names == "") != (named == "") {
				t.Errorf("named %q, want %q", named, test.names)
			}
			held := test.names == ""
			if got.Held() != held {
				t.Errorf("held is %v", got.Held())
			}
			got.Named, test.want.Committed = nil, 6
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("found %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestTallyWhileItRuns(t *testing.T) {
	t.Parallel()
	c := newChecker()
	c.rolledBack("early")
	for _, f := range []fact{{"a", "k", 1}, {"c", "k", 3}, {"c", "k", 3}, {"early", "k", 4}, {"late", "k", 5}} {
		c.receive(f)
	}
	c.rolledBack("late")
	want := tally{Received: 4, Duplicates: 1, Missing: 1, Appeared: 2}
	if got := c.tally(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	c.receive(fact{"b", "k", 2})
	want = tally{Received: 5, Duplicates: 1, Disorder: 1, Appeared: 2}
	if got := c.tally(); got != want {
		t.Errorf("once it came: %+v, want %+v", got, want)
	}
}

func TestManyFaultsAreCountedAndAFewNamed(t *testing.T) {
	t.Parallel()
	var ledger []fact
	for n := range int64(100) {
		ledger = append(ledger, fact{fmt.Sprint(n), "k", n + 1})
	}
	f := newChecker().compare(ledger, nil)
	if f.Lost != 100 || len(f.Named) != maxNamed {
		t.Errorf("lost %d, named %d", f.Lost, len(f.Named))
	}
}
