package inbox

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/postrider/postrider"
)

// digestSize is the size of a digest in bytes. A digest is compared only with those of messages in the same partition at
// the same and higher offsets.
const digestSize = 8

// digests identify consumed messages: digestSize bytes for each, computed from offset and mark. They are stored
// unchanged, and only appended to.
type digests []byte

// digestOf is the digest of a message with a mark.
func digestOf(p postrider.Position) []byte {
	sum := sha256.Sum256(append(strconv.AppendInt(nil, p.Offset, 10), " "+p.Mark...))
	return sum[:digestSize]
}

// with adds the digest of a message, unless it has no mark.
func (d digests) with(p postrider.Position) digests {
	if p.Mark == "" {
		return d
	}
	return append(d, digestOf(p)...)
}

// without removes each of others once.
func (d digests) without(others digests) digests {
	drop := make(map[string]int)
	for one := range slices.Chunk(others, digestSize) {
		drop[string(one)]++
	}
	var out digests
	for one := range slices.Chunk(d, digestSize) {
		if drop[string(one)] > 0 {
			drop[string(one)]--
			continue
		}
		out = append(out, one...)
	}
	return out
}

// has says whether the digests contain that of a message with a mark.
func (d digests) has(p postrider.Position) bool {
	if p.Mark == "" {
		return false
	}
	for want := digestOf(p); len(d) >= digestSize; d = d[digestSize:] {
		if bytes.Equal(d[:digestSize], want) {
			return true
		}
	}
	return false
}
