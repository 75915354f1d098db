package doctor

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/postrider/postrider/internal/plain"
)

// quote makes a name an argument of a command line for a POSIX shell.
func quote(name string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@", r)
	}
	if name != "" && !strings.ContainsFunc(name, func(r rune) bool { return !safe(r) }) && name[0] != '-' {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

func lasting(d time.Duration) string { return plain.Duration(d, " ") }

// command is a Fix with a command line of postrider, whose arguments are names. It has none if one of them cannot be pasted: it would
// be taken for a flag, or is not shown as it is.
func command(text, format string, names ...string) Fix {
	args := make([]any, len(names))
	for i, name := range names {
		if strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
			return Fix{Text: strings.TrimSuffix(text, ":")}
		}
		args[i] = quote(name)
	}
	return Fix{Text: text, Command: "postrider " + fmt.Sprintf(format, args...)}
}
