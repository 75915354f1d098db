package drawing_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/drawing"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	got := strings.Join(drawing.Wrap("one two three four", 10), "|")
	if got != "one two|three four" {
		t.Errorf("wrapped to %q", got)
	}
}
