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
