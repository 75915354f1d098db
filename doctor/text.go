package doctor

import (
	"fmt"
	"strings"
	"time"

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

// command is a Fix with a command line of postrider.
func command(text, format string, args ...any) Fix {
	return Fix{Text: text, Command: "postrider " + fmt.Sprintf(format, args...)}
}
