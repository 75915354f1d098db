package dead

import (
	"slices"
	"testing"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		old, new string
		was, is  map[string]string
		want     []string
	}{
		{old: "a", new: "a"},
		{old: "{\n \"n\": 1,\n \"m\": 2\n}", new: "{\n \"n\": 3,\n \"m\": 2\n}", want: []string{`-  "n": 1,`, `+  "n": 3,`}},
		{was: map[string]string{"a": "1", "b": "2"}, is: map[string]string{"b": "3", "c": "4"}, want: []string{
			"- header a: 1", "- header b: 2", "+ header b: 3", "+ header c: 4",
		}},
		{old: "\xff", new: "ab", want: []string{"- payload of 1 bytes", "+ payload of 2 bytes"}},
	} {
		if got := diffOf([]byte(c.old), c.was, []byte(c.new), c.is); !slices.Equal(got, c.want) {
			t.Errorf("diff of %q and %q: %q, want %q", c.old, c.new, got, c.want)
		}
	}
}
