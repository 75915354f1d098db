package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/itest/process"
)

// document is a Markdown file of the repository.
type document struct{ path, text string }

func documents(t *testing.T) []document {
	t.Helper()
	var all []document
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all = append(all, document{path, string(text)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("only %d documents found under %s", len(all), root)
	}
	return all
}

func (d document) name() string {
	name, err := filepath.Rel(root, d.path)
	if err != nil {
		return d.path
	}
	return name
}

// TestFirstProgram: the program in the README is the Example, which is run.
func TestFirstProgram(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(filepath.Join(root, "itest/docs/example_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	program := strings.NewReplacer("package docs_test", "package main", "func Example()", "func main()",
		"\t// Output: ship order 42\n", "").Replace(string(example))
	if !strings.Contains(string(readme), "```go\n"+program+"```\n") {
		t.Errorf("README.md does not hold the program of itest/docs/example_test.go, which is:\n%s", program)
	}
}

var (
	block   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	link    = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	noSlug  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// TestLinks: the targets of links in documents exist. A link to Go code names its target: a test, or a case of a suite.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, d := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(block.ReplaceAllString(d.text, ""), -1) {
			text, target := m[1], m[2]
			if strings.Contains(target, "://") {
				continue
			}
			file, fragment, _ := strings.Cut(target, "#")
			path := d.path
			if file != "" {
				path = filepath.Join(filepath.Dir(d.path), file)
			}
			found, err := os.Stat(path)
			if err != nil {
				t.Errorf("%s: link to %s: %v", d.name(), target, err)
				continue
			}
			if found.IsDir() {
				continue
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if fragment != "" && !hasHeading(string(content), fragment) {
				t.Errorf("%s: link to %s: no such heading", d.name(), target)
			}
			if filepath.Ext(path) == ".go" && !names(string(content), text, file) {
				t.Errorf("%s: link to %s: it has no %q", d.name(), target, text)
			}
		}
	}
}

func hasHeading(text, fragment string) bool {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if slug == fragment {
			return true
		}
	}
	return false
}

// names says whether Go code contains the target that a link's text names: a function, any text, or the file itself.
func names(code, text, file string) bool {
	text = strings.Trim(text, "`")
	if strings.HasSuffix(file, text) {
		return true
	}
	if regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)\w*$`).MatchString(text) {
		return strings.Contains(code, "func "+text+"(")
	}
	return strings.Contains(code, text[strings.LastIndexByte(text, '.')+1:]) // outbox.Publish is in the code as Publish
}

var (
	fence  = regexp.MustCompile("(?ms)^ *```(?:sh|console|bash)\n(.*?)^ *```")
	inline = regexp.MustCompile("`((?:postrider|make) [^`]+)`")
	word   = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// commands are the command lines in a document, with shell continuation lines joined.
func (d document) commands() []string {
	var all []string
	for _, m := range fence.FindAllStringSubmatch(d.text, -1) {
		for line := range strings.SplitSeq(strings.ReplaceAll(m[1], "\\\n", " "), "\n") {
			all = append(all, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
		}
	}
	for _, m := range inline.FindAllStringSubmatch(d.text, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestCommands: the commands, subcommands, flags and make targets in documents exist.
func TestCommands(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	help := newHelp(t)
	seen := 0
	for _, d := range documents(t) {
		for _, line := range d.commands() {
			line = strings.Replace(line, "go run ./cmd/postrider", "postrider", 1)
			for call := range strings.SplitSeq(line, "|") {
				words := strings.Fields(call)
				if len(words) < 2 {
					continue
				}
				switch words[0] {
				case "make":
					if word.MatchString(words[1]) && !strings.Contains(string(makefile), "\n"+words[1]+":") {
						t.Errorf("%s: %q: the Makefile has no target %s", d.name(), line, words[1])
					}
				case "postrider":
					seen++
					if fault := help.check(words[1:]); fault != "" {
						t.Errorf("%s: %q: %s", d.name(), line, fault)
					}
				}
			}
		}
	}
	if seen == 0 {
		t.Error("the documents show no command of postrider")
	}
}

// help reads the binary's help, once per command.
type help struct {
	binary string
	mu     sync.Mutex
	texts  map[string]string
}

func newHelp(t *testing.T) *help {
	t.Helper()
	binary, err := process.Postrider(root)
	if err != nil {
		t.Fatal(err)
	}
	return &help{binary: binary, texts: map[string]string{}}
}

// check returns the error in the arguments of a command, "" if there is none.
func (h *help) check(args []string) string {
	command := []string{}
	text := h.of(nil)
	for len(args) > 0 && slices.Contains(subcommands(text), args[0]) {
		command, args = append(command, args[0]), args[1:]
		text = h.of(command)
	}
	if len(args) > 0 && len(subcommands(text)) > 0 && word.MatchString(args[0]) {
		return "no such command: " + strings.Join(append(command, args[0]), " ")
	}
	for _, arg := range args {
		flag, _, _ := strings.Cut(strings.Trim(arg, "[]…,;"), "=")
		if strings.HasPrefix(flag, "--") && len(flag) > 2 && !regexp.MustCompile(regexp.QuoteMeta(flag)+`\b[^-]`).MatchString(text) {
			return "no such flag: " + flag
		}
	}
	return ""
}

func (h *help) of(command []string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := strings.Join(command, " ")
	if text, ok := h.texts[key]; ok {
		return text
	}
	out, err := exec.Command(h.binary, append(slices.Clone(command), "--help")...).CombinedOutput()
	if err != nil {
		out = nil
	}
	h.texts[key] = string(out)
	return h.texts[key]
}

var available = regexp.MustCompile(`(?ms)^Available Commands:\n(.*?)(?:^\S|\z)`)

// subcommands are the subcommands that a help text lists.
func subcommands(text string) []string {
	var all []string
	if m := available.FindStringSubmatch(text); m != nil {
		for line := range strings.SplitSeq(m[1], "\n") {
			if fields := strings.Fields(line); len(fields) > 0 {
				all = append(all, fields[0])
			}
		}
	}
	return all
}
