package pages_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// notRun are the beginnings of commands that are not run here, each with the test that runs what they do, and the reason.
var notRun = map[string]struct{ test, reason string }{
	"kubectl create":                     {"TestChart", "needs a Kubernetes cluster; the test checks what is installed in it"},
	"helm install":                       {"TestChart", "as kubectl"},
	"docker run":                         {"TestImage", "needs a container daemon; the test runs what is in the image"},
	"skopeo copy":                        {"TestImage", "needs a container registry; the test reads the layout that is copied"},
	"systemctl":                          {"TestUnit", "changes the system; the test checks the unit"},
	"go get":                             {"TestInstallable", "needs a release; the test makes one and gets it"},
	"go install":                         {"TestInstallable", "as go get"},
	"export GOPROXY":                     {"TestInstallable", "as go get"},
	"promtool":                           {"TestRules", "takes ten seconds"},
	"postrider demo shop --scenario":     {"TestScenarios", "takes half a minute"},
	"postrider demo --publisher amqp":    {"TestDemoOnEveryBroker", "needs a RabbitMQ server"},
	".cache/bin/withservers":             {"TestCommands", "runs tests"},
	"POSTRIDER_TORTURE=20m go test":      {"TestSteadyTorture", "takes an hour; the test runs for minutes"},
	"POSTRIDER_SEED=":                    {"TestSagaModel", "runs tests"},
	"go run ./telemetry/":                {"TestAlertsUnderFaults", "takes minutes"},
	"go run ./caseapproval/":             {"TestTheReadModelIsRight", "is a service; the test starts it"},
	"curl -d by=":                        {"TestTheReadModelIsRight", "asks such a service"},
	"curl http://127.0.0.1:8082/tenants": {"TestTheReadModelIsRight", "asks such a service"},
}

// elsewhere are pages that another test types from the beginning to the end.
var elsewhere = map[string]string{
	"docs/start/consumer.md":  "TestInstallable",
	"docs/start/tutorial.md":  "TestInstallable", // with modules as a release has them
	"docs/shop.md":            "TestTutorial",
	"examples/shop/README.md": "TestTutorial",
}

// following are commands that end when the reader ends them, with what they have written by then.
var following = []struct {
	command *regexp.Regexp
	wrote   *regexp.Regexp
	keys    string
}{
	{regexp.MustCompile(`^postrider relay -`), regexp.MustCompile(`relay works`), interrupt},
	{regexp.MustCompile(`^postrider serve`), regexp.MustCompile(`http`), interrupt},
	{regexp.MustCompile(`^postrider mcp`), regexp.MustCompile(``), endOfInput},
	{tailing, regexp.MustCompile(`order\.placed`), interrupt},
	{regexp.MustCompile(`^postrider maintain --every`), regexp.MustCompile(`\n`), interrupt},
	{regexp.MustCompile(`^postrider status --watch`), regexp.MustCompile(`to-nats`), interrupt},
	{regexp.MustCompile(`^postrider demo shop[^&]*$`), regexp.MustCompile(`LATEST ORDERS`), interrupt},
	{regexp.MustCompile(`^postrider demo`), regexp.MustCompile(`delivered`), interrupt},
}

// ending are the commands that end with another exit code than 0, with the reason.
var ending = []struct {
	command *regexp.Regexp
	code    int
	reason  string
}{
	{regexp.MustCompile(`^postrider doctor --strict`), program.ExitNo, "there are dead letters"},
	{regexp.MustCompile(`--continue-on-error`), program.ExitPartly, "a line is bad"},
}

// tailing are commands that write what is published meanwhile.
var tailing = regexp.MustCompile(`^postrider tail( --from 10m.*)?$`)

var (
	shellBlock = regexp.MustCompile("(?ms)^( *)```sh\n(.*?)^ *```")
	joined     = regexp.MustCompile(`\s*\\\n\s*|(\s*\|)\n\s*`)
	remark     = regexp.MustCompile(`\s+# .*`)
)

// page is a document with the commands of its blocks.
type page struct {
	name   string
	blocks [][]string
}

// documents are the paths of all documents in the repository.
func documents(t *testing.T) []string {
	t.Helper()
	return filesOf(t, ".md")
}

// filesOf are the paths of all files in the repository whose names end so.
func filesOf(t *testing.T, suffix string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, suffix) {
			return nil
		}
		name, err := filepath.Rel(root, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	clitest.Must(t, err)
	return names
}

// pages are all documents that have commands.
func pages(t *testing.T) (all []page) {
	t.Helper()
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		clitest.Must(t, err)
		if blocks := blocksOf(string(text)); len(blocks) > 0 {
			all = append(all, page{name, blocks})
		}
	}
	return all
}

// blocksOf are the commands in the blocks of a page.
func blocksOf(text string) (blocks [][]string) {
	for _, m := range shellBlock.FindAllStringSubmatch(text, -1) {
		var commands []string
		for line := range strings.Lines(joined.ReplaceAllString(m[2], "$1 ")) {
			if line = strings.TrimSpace(remark.ReplaceAllString(line, "")); line != "" {
				commands = append(commands, line)
			}
		}
		blocks = append(blocks, commands)
	}
	return blocks
}

// TestCommands types every command of every page. Each block finds everything as the page describes it; in the reference, where the lines
// of a block are alternatives, each line does.
func TestCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	found, left := 0, map[string]bool{}
	for _, p := range pages(t) {
		if elsewhere[p.name] != "" {
			continue
		}
		blocks, kind := p.blocks, "postgres"
		if p.name == "docs/cli.md" {
			blocks = slices.Collect(slices.Chunk(slices.Concat(blocks...), 1))
		}
		if p.name == "docs/cli.md" || strings.HasSuffix(p.name, "/sagas.md") {
			kind = "sqlite"
		}
		for _, block := range blocks {
			found += len(block)
			block = slices.DeleteFunc(block, func(command string) bool {
				why := reason(command)
				left[why] = true
				return why != ""
			})
			if len(block) > 0 {
				t.Run(p.name+": "+block[0], func(t *testing.T) {
					t.Parallel()
					d := w.desk(t, kind)
					for _, command := range block {
						d.types(t, command)
					}
				})
			}
		}
	}
	if found < 350 {
		t.Errorf("only %d commands were found", found)
	}
	tests := allTests(t)
	for begins, n := range notRun {
		if !left[begins] {
			t.Errorf("no page has a command that begins with %s: remove it from notRun", begins)
		}
		if !tests[n.test] {
			t.Errorf("there is no %s, which notRun names for %s (%s)", n.test, begins, n.reason)
		}
	}
	for name, test := range elsewhere {
		if !tests[test] {
			t.Errorf("there is no %s, which elsewhere names for %s", test, name)
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// allTests are the names of all tests in the repository.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	for _, name := range filesOf(t, "_test.go") {
		text, err := os.ReadFile(filepath.Join(root, name))
		clitest.Must(t, err)
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
	}
	return tests
}

// reason is the beginning in notRun of a command.
func reason(command string) string {
	for begins := range notRun {
		if strings.HasPrefix(command, begins) {
			return begins
		}
	}
	return ""
}

// types types a command and checks how it ends.
func (d *desk) types(t *testing.T, command string) {
	t.Helper()
	command = strings.Replace(command, "go run ./cmd/postrider", "postrider", 1) // built already
	here := d.here(t, command)
	x := open(t, d.dir, d.environ, here)
	for tailing.MatchString(command) && !strings.Contains(x.text(), "order.placed") {
		clitest.OK(t, "publish", "--type", "order.placed", "--key", "order/42", "--payload", "{}", "--store", d.store)
		select {
		case <-x.ended:
			t.Fatalf("%s ended and wrote:\n%s", command, x.tail())
		default:
		}
	}
	x.ends(t, command, here)
}

// ends lets a command run as long as a reader would, and checks how it ends.
func (x *terminal) ends(t *testing.T, command, here string) {
	t.Helper()
	for _, f := range following {
		if f.command.MatchString(command) {
			if x.await(t, f.wrote) {
				x.typed(t, f.keys)
			}
			break
		}
	}
	want := program.ExitDone
	for _, e := range ending {
		if e.command.MatchString(command) {
			want = e.code
		}
	}
	if code := x.end(t); code != want && !(code == program.ExitNo && strings.HasPrefix(command, "postrider doctor")) {
		t.Errorf("%s\ntyped as: %s\nended with %d, want %d, and wrote:\n%s", command, here, code, want, x.tail())
	}
}

// TestBlocks: commands are found, without their remarks, and lines that belong together are one.
func TestBlocks(t *testing.T) {
	t.Parallel()
	const text = "a\n```sh\none  # first\ntwo \\\n  three\nfour |\n  five\n```\n  ```sh\n  six\n  ```\n```text\nseven\n```\n"
	want := "[[one two three four | five] [six]]"
	if got := fmt.Sprint(blocksOf(text)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
