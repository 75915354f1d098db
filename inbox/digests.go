package inbox

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/postrider/postrider"
)

// RememberedMoves is how many moves of a watermark a store remembers what they consumed: one for each transaction.
const RememberedMoves = 1000

// digestSize is how many bytes a digest has. One is compared only with those of messages at the same offset and above, of one
// partition.
const digestSize = 8

// Digests say which messages were consumed: digestSize bytes for each, made of its offset and its mark. They are stored as
// they are, and only added to.
type Digests []byte

// digestOf is the digest of a message with a mark.
func digestOf(p postrider.Position) []byte {
	sum := sha256.Sum256(append(strconv.AppendInt(nil, p.Offset, 10), " "+p.Mark...))
	return sum[:digestSize]
}

// with adds the digest of a message, unless it has no mark.
func (d Digests) with(p postrider.Position) Digests {
	if p.Mark == "" {
		return d
	}
	return append(d, digestOf(p)...)
}

// without leaves out each of others once.
func (d Digests) without(others Digests) Digests {
	drop := make(map[string]int)
	for one := range slices.Chunk(others, digestSize) {
		drop[string(one)]++
	}
	var out Digests
	for one := range slices.Chunk(d, digestSize) {
		if drop[string(one)] > 0 {
			drop[string(one)]--
			continue
		}
		out = append(out, one...)
	}
	return out
}

// has says whether a message with a mark is among them.
func (d Digests) has(p postrider.Position) bool {
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
