package crash

import "testing"

// TestChecker: a checker that cannot find errors proves nothing.
func TestChecker(t *testing.T) {
	t.Parallel()
	a1, a2, b1 := Fact{1, 1, 10}, Fact{1, 2, 11}, Fact{2, 1, 12}
	committed := []Fact{a1, a2, b1}
	tests := map[string]struct {
		stream []Fact
		want   Outcome
		kept   bool
	}{
		"all in order":            {[]Fact{a1, b1, a2}, Outcome{}, true},
		"keys may overtake":       {[]Fact{b1, a1, a2}, Outcome{}, true},
		"a second copy":           {[]Fact{a1, a2, a1, b1}, Outcome{Duplicates: 1}, true},
		"one lost":                {[]Fact{a1, b1}, Outcome{Lost: 1}, false},
		"a step overtaken":        {[]Fact{a2, a1, b1}, Outcome{Disordered: 1}, false},
		"a rolled back step":      {[]Fact{a1, {1, 2, 99}, a2, b1}, Outcome{Invented: 1}, false},
		"a step nobody took":      {[]Fact{a1, a2, {1, 3, 13}, b1}, Outcome{Invented: 1}, false},
		"nothing came":            {nil, Outcome{Lost: 3}, false},
		"overtaken and come back": {[]Fact{a2, a1, a2, b1}, Outcome{Disordered: 1, Duplicates: 1}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := NewChecker(committed)
			for _, f := range tt.stream {
				c.Receive(f)
			}
			got := c.Outcome()
			if got.Lost != tt.want.Lost || got.Invented != tt.want.Invented || got.Duplicates != tt.want.Duplicates ||
				got.Disordered != tt.want.Disordered || got.Kept() != tt.kept {
				t.Errorf("got %s; want %s", got, tt.want)
			}
			if faults := got.Lost + got.Invented + got.Disordered; len(got.Examples) != faults {
				t.Errorf("%d faults, but examples %q", faults, got.Examples)
			}
		})
	}
}
