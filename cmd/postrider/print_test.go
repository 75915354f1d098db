package main

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
)

func TestAgoHasTwoUnitsAtMost(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "-", 500: "<1ms", 12 * time.Millisecond: "12ms", 1234 * time.Millisecond: "1.2s", 90 * time.Second: "1m30s",
		3 * time.Hour: "3h0m", 26*time.Hour + 31*time.Second: "26h1m", 75 * time.Hour: "3d3h", -time.Minute: "-1m0s",
	} {
		if got := ago(d); got != want {
			t.Errorf("%s is written %s, want %s", d, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		if got := number(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
	for got, want := range map[string]string{
		plural(1, "dead letter"): "1 dead letter", plural(0, "dead letter"): "0 dead letters", plural(2000, "key"): "2,000 keys",
		count(relay.Count{N: 10_000, AtLeast: true}): "10,000+", count(relay.Count{N: 3}): "3",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhatStrangersWroteCannotMoveTheCursor(t *testing.T) {
	t.Parallel()
	if got := printable("a\x1b[2Jb\nc\u202ed"); got != "a·[2Jb c·d" {
		t.Errorf("%q", got)
	}
	if got := shorten("äöüß", 3); got != "äö…" {
		t.Errorf("%q", got)
	}
}

func TestPayloadsAreShownAsWhatTheyAre(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"a":[1]}`:                  "  {\n    \"a\": [\n      1\n    ]\n  }",
		"plain\ntext":                "  plain\n  text",
		"\xff\x00":                   "  00000000  ff 00 ",
		strings.Repeat("ä", 3000):    "… and 1,904 bytes more (--payload writes all)",
		"\x1b" + `]0;title` + "\x07": "  ·]0;title·",
	} {
		if got := showPayload([]byte(payload)); !strings.Contains(got, want) {
			t.Errorf("%q is shown as %q, want %q", payload, got, want)
		}
	}
}

func TestLongTablesAreWrittenInPieces(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	tb := newTable(&b, "N")
	for n := range 2*tablePiece + 1 {
		tb.row(n)
	}
	if strings.Count(b.String(), "\n") < tablePiece {
		t.Error("nothing is written before the end")
	}
	must(t, tb.flush())
	if n := strings.Count(b.String(), "\n"); n != 2*tablePiece+2 {
		t.Errorf("%d lines", n)
	}
}
