// Package logmark creates the marks of positions, which identify the message at an offset of a broker's log.
package logmark

import (
	"crypto/sha256"
	"encoding/hex"
)

// Of is the mark of a message: what the log has recorded, e.g. when the message was stored, and a digest of its ID, or of
// its payload if it has no ID. It is the same wherever the message is read.
func Of(noted, id string, payload []byte) string {
	content := payload
	if id != "" {
		content = []byte(id)
	}
	sum := sha256.Sum256(content)
	return noted + "-" + hex.EncodeToString(sum[:8])
}
