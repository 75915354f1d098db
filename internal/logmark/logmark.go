// Package logmark makes the marks of positions: what a broker's log says about the message at an offset.
package logmark

import (
	"crypto/sha256"
	"encoding/hex"
)

// Of is the mark of a message: what the log itself has noted, e.g. when the message was stored, and a digest of its ID, or of
// its payload when it has none. It is the same wherever the message is read.
func Of(noted, id string, payload []byte) string {
	content := payload
	if id != "" {
		content = []byte(id)
	}
	sum := sha256.Sum256(content)
	return noted + "-" + hex.EncodeToString(sum[:8])
}
