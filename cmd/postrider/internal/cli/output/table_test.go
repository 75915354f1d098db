package output

import (
	"strings"
	"testing"
)

func TestLongTablesAreWrittenInPieces(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	tb := NewTable(&b, "N")
	for n := range 2*tablePiece + 1 {
		tb.Row(n)
	}
	if strings.Count(b.String(), "\n") < tablePiece {
		t.Error("nothing is written before the end")
	}
	if err := tb.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 2*tablePiece+2 {
		t.Errorf("%d lines", n)
	}
}

func TestLastCellsAreShortenedToFit(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	tb := NewTable(&b, "KEY", "CAUSE")
	tb.Row("order/1", strings.Repeat("ä", 200))
	tb.Row("order/2", "short")
	if err := tb.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if got := []rune(lines[1]); len(got) != tableWidth || got[len(got)-1] != '…' {
		t.Errorf("%d columns: %s", len(got), lines[1])
	}
	b.Reset()
	tb = NewTable(&b, "KEY", "CAUSE")
	key := strings.Repeat("k", 120)
	tb.Row(key, strings.Repeat("x", 50))
	if err := tb.Flush(); err != nil || !strings.Contains(b.String(), key+"  "+strings.Repeat("x", minLast-1)+"…\n") {
		t.Errorf("%v: %s", err, b.String())
	}
}
