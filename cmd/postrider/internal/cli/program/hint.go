package program

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/internal/address"
)

// Hint returns a command line of postrider that can be pasted into a shell: with the --config and --store that were given.
// A URL with a password is left out, because hints end up in logs and tickets.
func (p *Program) Hint(format string, args ...any) string {
	return p.Complete("postrider " + fmt.Sprintf(format, args...))
}

// Complete adds the --config and --store that were given to a command line of postrider.
func (p *Program) Complete(line string) string {
	if p.configFile != "" && p.configFile != p.Env(config.Prefix+"CONFIG") {
		line += " --config " + output.ShellQuote(p.configFile)
	}
	if p.StoreFlag != "" && (mayBeName(p.StoreFlag) || !address.HasSecret(p.StoreFlag)) {
		line += " --store " + output.ShellQuote(p.StoreFlag)
	}
	return line
}

// quotedCommand is a command line of postrider in the text of an error.
var quotedCommand = regexp.MustCompile("`postrider [^`]+`")

// completeAll completes the command lines of postrider in the text of an error, which does not know what was given.
func (p *Program) completeAll(text string) string {
	return quotedCommand.ReplaceAllStringFunc(text, func(quoted string) string {
		line := strings.Trim(quoted, "`")
		if strings.Contains(line, "--store") || strings.Contains(line, "--config") {
			return quoted
		}
		return "`" + p.Complete(line) + "`"
	})
}
