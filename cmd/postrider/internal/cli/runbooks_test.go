package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

var (
	inlineCode = regexp.MustCompile("`(postrider [^`]+)`")
	shellWords = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
)

// commandsIn returns the commands in the text of a runbook, as arguments. Package pages types those of blocks.
func commandsIn(text string) (commands [][]string) {
	for _, m := range inlineCode.FindAllStringSubmatch(text, -1) {
		var args []string
		for _, word := range shellWords.FindAllString(strings.TrimPrefix(m[1], "postrider "), -1) {
			args = append(args, strings.Trim(word, `"'`))
		}
		commands = append(commands, args)
	}
	return commands
}

// TestRunbookCommands: the commands in the text of runbooks are understood, in a database with what they are about. That they fix the fault
// is shown where the alert is provoked.
func TestRunbookCommands(t *testing.T) {
	t.Parallel()
	url := clitest.NewPostgres(t) // which has the most checks
	clitest.OK(t, "migrate", "up", "--store", url)
	clitest.PublishKeys(t, url, "order/42", "order/43")
	clitest.Hold(t, url, "to-nats")
	config := clitest.WriteFile(t, "store: {url: \""+url+"\"}\nrelays: [{name: to-nats, publisher: \"nats://127.0.0.1:1?stream=S\"}]\n")
	files, err := filepath.Glob("../../../../docs/operations/runbooks/*.md")
	clitest.Must(t, err)
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		clitest.Must(t, err)
		for _, args := range commandsIn(string(text)) {
			if len(args) == 1 && args[0] == "relay" { // the program, not a command to type
				continue
			}
			seen++
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "/etc/postrider.yaml", config)
			}
			if args[0] == "relay" && len(args) > 1 && strings.HasPrefix(args[1], "-") { // runs until it is ended
				args = append(args, "--help")
			}
			r := clitest.Invocation{Stdin: "yes\n", Terminal: true, Environ: []string{"POSTRIDER_STORE_URL=" + url}, Args: args}.Run(t)
			if r.Code == program.ExitUsage {
				t.Errorf("%s: postrider %s: %s", filepath.Base(file), strings.Join(args, " "), r.Err)
			}
		}
	}
	if seen < 5 {
		t.Errorf("%d commands were found", seen)
	}
}
