package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Fingerprint is the same for causes that differ only in numbers and identifiers, as NormalizeCause replaces them: 16
// hexadecimal digits, "" for no cause.
func Fingerprint(cause string) string {
	if cause == "" {
		return ""
	}
	text := NormalizeCause(cause)
	sum := sha256.Sum256([]byte(text[:min(len(text), fingerprinted)]))
	return hex.EncodeToString(sum[:8])
}

// fingerprinted is how many bytes of a normalized cause count: stores truncate long causes, and two similar ones that
// were truncated at different places must still match.
const fingerprinted = 1_000

// NormalizeCause replaces the variable parts of a cause with "#", so that similar causes become equal. A word consists of
// letters, digits, "_" and "-":
//
//   - A word of eight or more characters that contains a digit or is hexadecimal (a UUID, a hash, an address, a date,
//     order-4711) becomes "#".
//   - A shorter hexadecimal word that begins with a digit becomes "#".
//   - In any other word, each run of digits becomes "#".
//   - White space becomes one space.
//
// So order-9 and order-4711 differ, because only the second has eight characters or more, while "order 9" and "order
// 4711" do not.
func NormalizeCause(cause string) string {
	var b strings.Builder
	for rest := cause; rest != ""; {
		n := wordLength(rest)
		switch {
		case n > 0:
			writeWord(&b, rest[:n])
		case isSpace(rest[0]):
			for n < len(rest) && isSpace(rest[n]) {
				n++
			}
			b.WriteByte(' ')
		default:
			n = 1
			b.WriteByte(rest[0])
		}
		rest = rest[n:]
	}
	return strings.TrimSpace(b.String())
}

func wordLength(text string) int {
	n := 0
	for n < len(text) && isWord(text[n]) {
		n++
	}
	return n
}

func writeWord(b *strings.Builder, word string) {
	digits := strings.IndexFunc(word, func(r rune) bool { return isDigit(byte(r)) })
	hexadecimal := strings.Trim(strings.TrimPrefix(word, "0x"), "0123456789abcdefABCDEF-") == ""
	switch {
	case len(word) >= 8 && (digits >= 0 || hexadecimal), hexadecimal && digits == 0:
		b.WriteByte('#')
	case digits < 0:
		b.WriteString(word)
	default:
		for i := 0; i < len(word); i++ {
			if !isDigit(word[i]) {
				b.WriteByte(word[i])
			} else if i == 0 || !isDigit(word[i-1]) {
				b.WriteByte('#')
			}
		}
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isWord(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '-'
}
