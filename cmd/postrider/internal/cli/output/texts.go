package output

import (
	"strings"
	"unicode"
)

// Capital returns a word in title case.
func Capital(word string) string { return string(word[0]-'a'+'A') + word[1:] }

// ShellQuote quotes a text so that a shell reads it as one word.
func ShellQuote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._:@%+=,-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(Printable(text), "'", `'\''`) + "'"
}

// Printable keeps external text (keys, causes) from moving a terminal's cursor or breaking a table.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '·'
		default:
			return r
		}
	}, text)
}

// PrintableLines is printable for multi-line text.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Shorten cuts a text to n characters.
func Shorten(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n-1]) + "…"
}
