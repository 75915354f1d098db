package clitest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience limits every wait for something that must happen.
const Patience = 3 * time.Minute

// Lacks is the opposite of contains.
func Lacks(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if strings.Contains(text, w) {
			t.Errorf("%q must not be in:\n%s", w, text)
		}
	}
}

// Contains checks that a text contains words.
func Contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

// Must ends the test at an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WriteFile writes a text to a new file and returns its name.
func WriteFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	Must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// Buffer is a buffer for concurrent use that can be waited on.
type Buffer struct {
	mu      sync.Mutex
	buffer  bytes.Buffer
	changed chan struct{}
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return b.buffer.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// Await waits until the buffer contains a text.
func (b *Buffer) Await(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		b.mu.Lock()
		found := strings.Contains(b.buffer.String(), text)
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("waited for %q in:\n%s", text, b.String())
		}
	}
}
