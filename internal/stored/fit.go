package stored

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Fit returns a text of a message, or its stand-in if some database cannot store it.
func Fit(text string, limit int) string {
	if Holdable(text, limit) {
		return text
	}
	return StandIn(text, limit)
}

// Holdable says whether every database can store a text in a column with a limit.
func Holdable(text string, limit int) bool {
	return len(text) <= limit && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

// StandIn is the beginning of a text, as far as it is readable, and a digest that distinguishes it from others.
func StandIn(text string, limit int) string {
	sum := sha256.Sum256([]byte(text))
	digest := "~" + hex.EncodeToString(sum[:16])
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), limit-len(digest))], "") + digest
}
