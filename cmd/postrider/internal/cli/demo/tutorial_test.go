package demo_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

var (
	pageBlocks = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```")
	shellWords = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
	pageIDs    = regexp.MustCompile(`01a20848-[0-9a-f]{4}-…`)
	answerID   = regexp.MustCompile(`"id":"([^"]+)"`)
	// varying are what differs from run to run: IDs and the beginnings of IDs, times, and durations.
	varying = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?|\d{4}-\d\d-\d\dT[\d:.]+Z|<?[\d.]+m?s\b`)
)

// TestTutorial follows docs/tutorial.md until its load begins: each command does what the page says. A command that only looks is repeated
// until it sees that, as by a reader who waits.
func TestTutorial(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../../docs/tutorial.md")
	clitest.Must(t, err)
	text, _, found := strings.Cut(string(page), "\n## 8.")
	if !found {
		t.Fatal("the page has no section 8")
	}
	r := &reader{T: t, dir: t.TempDir(), port: freePorts(t)}
	blocks := pageBlocks.FindAllStringSubmatch(text, -1)
	for i, block := range blocks {
		if block[1] != "sh" {
			continue
		}
		var shown []string
		if i+1 < len(blocks) && (blocks[i+1][1] == "text" || blocks[i+1][1] == "json") {
			shown = slices.DeleteFunc(strings.Split(blocks[i+1][2], "\n"), func(line string) bool { return line == "" || line == "…" })
		}
		for line := range strings.Lines(block[2]) {
			shown = r.follow(strings.TrimSpace(line), shown)
		}
		if len(shown) > 0 {
			t.Errorf("not printed, but on the page:\n%s", strings.Join(shown, "\n"))
		}
	}
	if r.commands < 15 || r.shop == nil {
		t.Fatalf("the page has %d commands", r.commands)
	}
	if code := r.shop.End(t); code != program.ExitDone {
		t.Errorf("the shop ended with %d:\n%s", code, r.shop.Err.String())
	}
	clitest.Contains(t, r.shop.Out.String(), "Every promise was kept.", "ledger exact")
}

// reader follows a page.
type reader struct {
	*testing.T
	dir      string
	port     int
	shop     *clitest.Process
	order    string // the ID of the last one
	commands int
}

// freePorts returns the first of four ports that no connection has.
func freePorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		first, free := 10_000+rand.IntN(20_000), 0
		for i := range 4 {
			if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", first+i)); err == nil {
				free++
				clitest.Must(t, l.Close())
			}
		}
		if free == 4 {
			return first
		}
	}
	t.Fatal("there are no free ports")
	return 0
}

// follow runs a command of the page and returns those of the shown lines that come after what it prints.
func (r *reader) follow(command string, shown []string) (left []string) {
	r.Helper()
	command = pageIDs.ReplaceAllString(strings.ReplaceAll(command, "/tmp/shop", r.dir), r.order)
	for i := range 4 {
		command = strings.ReplaceAll(command, fmt.Sprint(":", 8081+i), fmt.Sprint(":", r.port+i))
	}
	args := shellWords.FindAllString(command, -1)
	for i := range args {
		args[i] = strings.Trim(args[i], `'`)
	}
	r.commands++
	looks := slices.Contains([]string{"list", "show"}, args[min(2, len(args)-1)])
	run := func() string {
		if !looks {
			return clitest.OK(r.T, args[1:]...)
		}
		return clitest.Run(r.T, args[1:]...).Out // which is empty until there is something
	}
	switch {
	case args[0] == "go":
		return shown
	case len(args) > 2 && args[1] == "demo":
		r.shop = clitest.Start(r.T, nil, append(args[1:], "--port", fmt.Sprint(r.port), "--step-timeout", "30m", "--deadline", "1h")...) // on any machine
		return shown
	case args[0] == "curl":
		looks = len(args) == 2
		run = func() string { return r.curl(args[1:]) }
	}
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		printed := run()
		left = remaining(shown, printed)
		if len(shown) == 0 || len(left) == 0 || len(left) < len(shown) && args[min(2, len(args)-1)] != "show" {
			return left
		}
		if !looks || time.Since(begun) > clitest.Patience {
			r.Fatalf("%s printed\n%s\nthe page says\n%s", command, printed, strings.Join(shown, "\n"))
		}
	}
}

// curl sends a request as curl does. The shop may still be starting. A machine on which an order takes longer than the shop lets callers
// wait is asked again.
func (r *reader) curl(args []string) string {
	r.Helper()
	var method, body, url string
	var status, cancelled bool
	header := make(http.Header)
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-i":
			status = true
		case "-d", "-X", "-H":
			i++
			switch name, value, _ := strings.Cut(args[i], ": "); args[i-1] {
			case "-d":
				method, body = http.MethodPost, args[i]
			case "-X":
				method = args[i]
			default:
				header.Set(name, value)
			}
		default:
			url = args[i]
		}
	}
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		request, err := http.NewRequestWithContext(r.Context(), method, url, strings.NewReader(body))
		clitest.Must(r.T, err)
		request.Header = header
		answer, err := http.DefaultClient.Do(request)
		if err != nil && time.Since(begun) < clitest.Patience {
			r.shop.Works(r.T)
			continue
		}
		clitest.Must(r.T, err)
		text, err := io.ReadAll(answer.Body)
		clitest.Must(r.T, err)
		clitest.Must(r.T, answer.Body.Close())
		if late := answer.StatusCode == http.StatusAccepted && header.Get("Prefer") == "" && !strings.HasSuffix(url, "/orders"); late {
			if method == http.MethodPatch {
				method, url, cancelled = http.MethodGet, strings.TrimSuffix(url, "/cancel"), true
			}
			continue
		}
		if cancelled && !strings.Contains(string(text), "CANCELLED") && time.Since(begun) < clitest.Patience {
			continue
		}
		if id := answerID.FindStringSubmatch(string(text)); id != nil {
			r.order = id[1]
		}
		if status {
			return answer.Proto + " " + answer.Status + "\n" + string(text)
		}
		return string(text)
	}
}

// remaining returns the lines of the page that do not stand in what was printed, in this order.
func remaining(page []string, printed string) []string {
	for line := range strings.Lines(printed) {
		if len(page) > 0 && says(line, page[0]) {
			page = page[1:]
		}
	}
	return page
}

// says reports whether a line is what the page shows of it: … stands for anything.
func says(line, page string) bool {
	normal := func(text string) string {
		return strings.Join(strings.Fields(varying.ReplaceAllString(text, "*")), " ")
	}
	line = normal(line)
	for _, part := range strings.Split(page, "…") {
		before, after, found := strings.Cut(line, normal(part))
		if !found && strings.TrimSpace(part) != "" {
			return false
		}
		if line = after; !found {
			line = before
		}
	}
	return true
}
