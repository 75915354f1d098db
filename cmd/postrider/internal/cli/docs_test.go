package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

var update = flag.Bool("update", false, "write the reference in docs/cli.md")

const (
	cliPage       = "../../../../docs/cli.md"
	referenceMark = "<!-- The rest is written by: go test ./cmd/postrider/internal/cli -run TestCLIPage -update -->\n"
)

// TestCLIPage checks docs/cli.md against the commands: everything after the mark is generated from their help.
func TestCLIPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(cliPage)
	if err != nil {
		t.Fatal(err)
	}
	head, reference, found := strings.Cut(string(page), referenceMark)
	if !found {
		t.Fatalf("%s has no line %q", cliPage, referenceMark)
	}
	var b strings.Builder
	writeReference(&b, command(&program.Program{}))
	if *update {
		if err := os.WriteFile(cliPage, []byte(head+referenceMark+b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if reference != b.String() {
		t.Errorf("%s is not what the commands say; run: go test ./cmd/postrider/internal/cli -run TestCLIPage -update", cliPage)
	}
	for code := range strings.Lines(rootLong[strings.Index(rootLong, "Exit codes:\n")+len("Exit codes:\n"):]) {
		if number := strings.Fields(code)[0]; !strings.Contains(head, "| "+number+" |") {
			t.Errorf("%s does not explain exit code %s", cliPage, number)
		}
	}
}

func writeReference(b *strings.Builder, c *cobra.Command) {
	if c.Name() == "help" || c.Name() == "completion" {
		return
	}
	if c.HasParent() {
		fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
		if c.Long != "" {
			fmt.Fprintf(b, "\n%s\n", c.Long)
		}
	}
	if c.Runnable() && (!c.HasSubCommands() || c.HasLocalFlags() && c.Example != "") {
		fmt.Fprintf(b, "\n```text\n%s\n\n%s```\n", c.UseLine(), c.LocalFlags().FlagUsages())
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimSpace(c.Example), "\n  ", "\n"))
	}
	for _, sub := range c.Commands() {
		writeReference(b, sub)
	}
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q", c.CommandPath(), c.Short)
		}
		if !c.HasSubCommands() && !strings.Contains(c.Example, "postrider") {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Long + "\n" + c.Example + "\n" + c.LocalFlags().FlagUsages()) {
			if len([]rune(line)) > 125 {
				t.Errorf("%s: line of help is %d long: %s", c.CommandPath(), len([]rune(line)), line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(command(&program.Program{}))
}
