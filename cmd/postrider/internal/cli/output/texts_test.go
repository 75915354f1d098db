package output

import (
	"testing"
)

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"order/42": "order/42", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		if got := ShellQuote(text); got != want {
			t.Errorf("%q becomes %s, want %s", text, got, want)
		}
	}
}

func TestWhatStrangersWroteCannotMoveTheCursor(t *testing.T) {
	t.Parallel()
	if got := Printable("a\x1b[2Jb\nc\u202ed"); got != "a·[2Jb c·d" {
		t.Errorf("%q", got)
	}
	if got := Shorten("äöüß", 3); got != "äö…" {
		t.Errorf("%q", got)
	}
}
