package deadletter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

func TestReadLine(t *testing.T) {
	t.Parallel()
	in := bufio.NewReaderSize(strings.NewReader("short\n"+strings.Repeat("x", 99)+"\n"+strings.Repeat("y", 101)+"\nz"), 16)
	for _, want := range []int{6, 100} {
		if text, err := readLine(in, 100); len(text) != want || err != nil {
			t.Errorf("got %d bytes, %v; want %d", len(text), err, want)
		}
	}
	if text, err := readLine(in, 100); text != nil || err == nil || !strings.Contains(err.Error(), "longer than 100 bytes") {
		t.Errorf("got %q, %v", text, err)
	}
	if text, err := readLine(bufio.NewReader(strings.NewReader("z")), 100); string(text) != "z" || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, %v", text, err)
	}
}

// listed are records with these dead letters.
type listed struct {
	store.Records
	store.Reader
	all []store.DeadLetter
}

func (l listed) View(_ context.Context, _ store.Operation, f func(store.Reader) error) error {
	return f(l)
}

func (l listed) DeadLetters(_ context.Context, q store.DeadQuery) (found []store.DeadLetter, err error) {
	for _, d := range l.all {
		if d.Number > q.After {
			found = append(found, d)
		}
	}
	return found, nil
}

// TestExportSurvivesADeadLetterWithoutJSON: it is named, and the others follow.
func TestExportSurvivesADeadLetterWithoutJSON(t *testing.T) {
	t.Parallel()
	dead := func(number int64, year int) store.DeadLetter {
		return store.DeadLetter{Number: number, Relay: "r", Message: &postrider.Message{ID: "m"}, DiedAt: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), State: store.DeadOpen}
	}
	var out bytes.Buffer
	n, err := New(listed{all: []store.DeadLetter{dead(1, 2026), dead(2, 12026), dead(3, 2026)}}).Export(t.Context(), &out, store.DeadFilter{})
	if n != 2 || err == nil || !strings.Contains(err.Error(), "dead letter 2 is left out") || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("exported %d, %v:\n%s", n, err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if _, err := parseLine([]byte(line)); err != nil {
			t.Error(err)
		}
	}
}
