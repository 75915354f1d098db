package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const output = `postrider demo: SQLite to JetStream
  0.0s  the shop opens: 1 < 2 & more
  0.0s  committed 0  lost 0
  1.0s  committed 324  lost 0
  3.0s  the broker is taken away
  4.0s  committed 1437  lost 0

Every promise was kept.
  6,958 messages

With your own database and broker:
  postrider migrate up
`

// TestRecording: the picture is XML, each line appears at its time, and states of the shop replace each other.
func TestRecording(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := record(strings.NewReader(output), &out); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"1 &lt; 2 &amp; more", "@keyframes k3{0%{opacity:0}8.33%{opacity:1}33.33%,100%{opacity:0}}.k3{animation:k3 12.0s ", // from 1 s to 4 s of 12 s
		"@keyframes k4{0%{opacity:0}25.00%{opacity:1}100.00%,100%{opacity:1}}", `class="state last k5"`, `class="result k6"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the picture has no %s:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "With your own") {
		t.Error("the picture has the advice at the end")
	}
	if err := record(strings.NewReader("\n"), io.Discard); err == nil {
		t.Error("no output makes a picture")
	}
}
