package store

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
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
//   - A status code of HTTP from 400 to 599 stays where it can be nothing else: after HTTP, status, status code or answered, or before its
//     reason phrase ("HTTP 503", "status code: 404", "400 Bad Request").
//
// So order-9 and order-4711 differ, because only the second has eight characters or more, while "order 9" and "order
// 4711" do not.
func NormalizeCause(cause string) string {
	var b strings.Builder
	for rest := cause; rest != ""; {
		n := wordLength(rest)
		switch {
		case n == 3 && isStatusCode(b.String(), rest):
			b.WriteString(rest[:n])
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

// reasons are the reason phrases of status codes of HTTP, in lower case.
var reasons = map[string]string{
	"400": "bad request", "401": "unauthorized", "402": "payment required", "403": "forbidden", "404": "not found", "405": "method not allowed",
	"406": "not acceptable", "408": "request timeout", "409": "conflict", "410": "gone", "411": "length required", "412": "precondition failed",
	"413": "request entity too large", "415": "unsupported media type", "422": "unprocessable", "423": "locked", "424": "failed dependency",
	"425": "too early", "428": "precondition required", "429": "too many requests", "451": "unavailable for legal reasons",
	"500": "internal server error", "501": "not implemented", "502": "bad gateway", "503": "service unavailable", "504": "gateway timeout",
}

// statusBefore are the words before a status code, which are within statusWithin bytes.
var statusBefore = []string{"http", "http/#", "http/#.#", "status", "statuscode", "status_code", "status-code", "http_status", "answered"}

const statusWithin = 32

// isStatusCode reports whether the word of three bytes that rest begins with is a status code of HTTP after the normalized text before.
func isStatusCode(before, rest string) bool {
	if code := rest[:3]; code[0] != '4' && code[0] != '5' || !isDigit(code[1]) || !isDigit(code[2]) {
		return false
	}
	after := strings.TrimLeft(rest[3:], " ")
	if phrase := reasons[rest[:3]]; phrase != "" && len(after) >= len(phrase) && strings.EqualFold(after[:len(phrase)], phrase) {
		return true
	}
	words := strings.Fields(strings.ToLower(strings.TrimRight(before[max(0, len(before)-statusWithin):], " :=(\"'")))
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	if last == "code" { // of a status or of HTTP, and of nothing else
		return len(words) > 1 && slices.Contains(statusBefore, words[len(words)-2])
	}
	return slices.Contains(statusBefore, last)
}
