package pages_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/internal/servertest"
)

var (
	anyBlock  = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	shortID   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-…`)
	idOfOrder = regexp.MustCompile(`"id":"([^"]+)"`)
	varying   = regexp.MustCompile(`<?[0-9](?:[0-9a-fmsTZ.,:-]*[0-9a-fmsZ])?`)
	// reading are commands that a reader repeats until they show what the page shows.
	reading = regexp.MustCompile(`^(curl http|\./postrider dead list|\./postrider saga show)`)
)

// reader follows the tutorial of the shop.
type reader struct {
	dir     string
	environ []string
	ports   *strings.Replacer
	ids     map[string]string // by what the page writes for them
	last    string            // ID of the newest order
}

// TestTutorial does what docs/shop.md says and sees what it shows, with numbers, times and identities of its own.
func TestTutorial(t *testing.T) {
	t.Parallel()
	first := servertest.Port(t)
	r := &reader{dir: t.TempDir(), environ: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "USER=anna", "TERM=xterm"), ids: map[string]string{}}
	var ports []string
	for i := range 4 {
		ports = append(ports, fmt.Sprint(":808", 1+i), fmt.Sprint(":", first+i))
	}
	r.ports = strings.NewReplacer(append(ports, "./postrider", "postrider", "/tmp/shop", "shop",
		"demo shop --load none", fmt.Sprint("demo shop --step-timeout 10m --deadline 10m --port ", first, " --load none"))...)
	text, err := os.ReadFile(filepath.Join(root, "docs/shop.md"))
	clitest.Must(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "examples/shop/README.md"))
	clitest.Must(t, err)

	main, _, found := strings.Cut(string(text), "\n## 8.")
	if !found { // which has demos to look at
		t.Fatal("the tutorial has no section 8")
	}
	all := anyBlock.FindAllStringSubmatch(main, -1)
	opening := blocksOf(all[0][0])[0]
	shop := open(t, r.dir, r.environ, r.ports.Replace(opening[len(opening)-1]))
	shop.await(t, regexp.MustCompile(`LATEST ORDERS`))
	for i := range 4 { // the screen may be drawn before all services listen
		awaitListener(t, fmt.Sprint("127.0.0.1:", first+i))
	}
	for i, block := range all[1:] {
		if block[1] == "sh" {
			r.follow(t, blocksOf(block[0])[0], shown(all, i+2))
		}
	}
	for _, commands := range blocksOf(string(readme)) {
		r.follow(t, slices.DeleteFunc(commands, func(c string) bool {
			return reason(c) != "" || strings.HasPrefix(c, "go run ./cmd/postrider demo shop") // which runs
		}), nil)
	}
	shop.typed(t, interrupt)
	if code := shop.end(t); code != 0 {
		t.Errorf("the shop ended with %d:\n%s", code, shop.tail())
	}
}

func awaitListener(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			clitest.Must(t, conn.Close())
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// shown are the lines that the page shows after a block.
func shown(all [][]string, next int) (lines []*regexp.Regexp) {
	if next >= len(all) || all[next][1] != "text" && all[next][1] != "json" {
		return nil
	}
	for line := range strings.Lines(all[next][2]) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "…" {
			continue
		}
		line = varying.ReplaceAllString(line, "\x00")
		line = regexp.QuoteMeta(line)
		line = strings.NewReplacer("\x00", `<?[0-9][0-9a-fµmsTZ.,:-]*`, "…", ".*", " ", ` +`).Replace(line)
		lines = append(lines, regexp.MustCompile(line))
	}
	return lines
}

// follow types the commands of a block. What the page shows is written in this order; a command that only reads is repeated until it
// writes more of it.
func (r *reader) follow(t *testing.T, commands []string, want []*regexp.Regexp) {
	t.Helper()
	for i, command := range commands {
		for begun := time.Now(); ; {
			wrote := r.types(t, command)
			missing := slices.DeleteFunc(slices.Clone(want), func(line *regexp.Regexp) bool { return line.MatchString(wrote) })
			last := i == len(commands)-1
			if len(missing) == 0 || !last && (len(missing) < len(want) || !reading.MatchString(command)) {
				want = missing
				break
			}
			if time.Since(begun) > patience || !reading.MatchString(command) {
				t.Fatalf("%s\nwrote:\n%s\nnot found: %q", command, wrote, missing)
			}
		}
	}
}

// types types a command that must succeed, and returns what it writes.
func (r *reader) types(t *testing.T, command string) string {
	t.Helper()
	here := r.ports.Replace(shortID.ReplaceAllStringFunc(command, func(short string) string {
		if r.ids[short] == "" {
			r.ids[short] = r.last
		}
		return r.ids[short]
	}))
	x := open(t, r.dir, r.environ, strings.Replace(here, "curl ", "curl --silent --show-error ", 1))
	if code := x.end(t); code != 0 {
		t.Fatalf("%s\ntyped as: %s\nended with %d and wrote:\n%s", command, here, code, x.tail())
	}
	if m := idOfOrder.FindStringSubmatch(x.text()); m != nil {
		r.last = m[1]
	}
	return x.text()
}
