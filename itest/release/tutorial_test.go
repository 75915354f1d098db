package release_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/release"
)

// patience is how long a page may wait for what it shows.
const patience = 3 * time.Minute

// testTutorial does what the two parts of the tutorial say, one after the other: it saves their programs, types their commands into one
// shell, and waits for what they show.
func testTutorial(t *testing.T, place *release.Place) {
	t.Helper()
	s := startShell(t, place)
	broker, serving := fmt.Sprint(servertest.Port(t)), fmt.Sprint(servertest.Port(t))
	for _, part := range []struct{ page, program string }{
		{"docs/start/tutorial.md", "shop/main.go"}, {"docs/start/consumer.md", "shop/warehouse/main.go"},
	} {
		page := strings.NewReplacer(":4222", ":"+broker, "nats-server --jet", "nats-server --addr 127.0.0.1 --port "+broker+" --jet",
			":8686", ":"+serving, "code=…", "code=").
			Replace(string(place.Release.Tree[part.page]))
		var last string // commands
		for _, b := range blocks(page) {
			switch {
			case b.kind == "go":
				if err := os.WriteFile(filepath.Join(s.dir, part.program), []byte(b.text), 0o600); err != nil {
					t.Fatal(err)
				}
			case b.kind == "sh" && strings.HasPrefix(b.text, "postrider serve"): // $! stays that of the command before
				s.run(t, "("+strings.TrimSpace(b.text)+" --print-code --listen 127.0.0.1:"+serving+" &)\n")
			case b.kind == "sh":
				s.run(t, b.text)
				last = b.text
			case b.kind == "text" && strings.HasPrefix(last, "postrider inbox status"): // a reader looks again
				s.repeat(t, last, b.text)
			case b.kind == "text":
				s.await(t, b.text)
			}
		}
	}
}

// block is a code block of a page.
type block struct{ kind, text string }

func blocks(page string) (all []block) {
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		all = append(all, block{m[1], m[2]})
	}
	return all
}

// shell is a shell into which a test types.
type shell struct {
	dir   string
	stdin interface{ Write([]byte) (int, error) }
	out   *transcript
}

func startShell(t *testing.T, place *release.Place) *shell {
	t.Helper()
	s := &shell{dir: t.TempDir(), out: &transcript{changed: make(chan struct{})}}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := place.Command(ctx, s.dir, "bash")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = s.out, s.out
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdin = stdin
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	return s
}

// run types commands and waits until they have ended. They must succeed.
func (s *shell) run(t *testing.T, commands string) {
	t.Helper()
	s.out.clear()
	for line := range strings.Lines(commands) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasSuffix(line, "&") {
			line += ` || echo "failed with $?: ` + strings.NewReplacer(`"`, "", "$", "", "`", "").Replace(line) + `"`
		}
		if _, err := s.stdin.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.stdin.Write([]byte("echo the block has ended\n")); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the block has ended")
	if text := s.out.String(); strings.Contains(text, "failed with") {
		t.Fatalf("%s\nwrote:\n%s", commands, text)
	}
}

// repeat types commands that only read until they write each line.
func (s *shell) repeat(t *testing.T, commands, lines string) {
	t.Helper()
	for begun := time.Now(); ; s.run(t, commands) {
		missing := notIn(s.out.String(), lines)
		if missing == "" {
			return
		}
		if time.Since(begun) > patience {
			t.Fatalf("%q was not written; this was:\n%s", missing, s.out.String())
		}
	}
}

// await waits until each line was written.
func (s *shell) await(t *testing.T, lines string) {
	t.Helper()
	limit := time.After(patience)
	for {
		text, changed := s.out.now()
		missing := notIn(text, lines)
		if missing == "" {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%q was not written; this was:\n%s", missing, text)
		}
	}
}

// notIn returns the first of some lines that a text does not have, with anything between its words; "" if it has all.
func notIn(text, lines string) string {
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		var words []string
		for _, w := range strings.Fields(line) {
			words = append(words, regexp.QuoteMeta(w))
		}
		if !regexp.MustCompile(strings.Join(words, `.*\s`)).MatchString(text) {
			return line
		}
	}
	return ""
}

// transcript is what a shell writes.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

// Write implements io.Writer.
func (o *transcript) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(p)
}

func (o *transcript) String() string {
	text, _ := o.now()
	return text
}

func (o *transcript) now() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.changed
}

func (o *transcript) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Reset()
}
