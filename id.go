package postrider

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// ids is the package's only state: IDs rise within a process only if they all come from one clock.
var ids idClock

// idClock issues the time parts of IDs: Unix milliseconds in the upper 48 of 60 bits, 1/4096ths of a millisecond in the
// lower 12.
type idClock struct{ last atomic.Uint64 }

// NewID returns a new UUIDv7 (RFC 9562) in its usual form, e.g. "0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a".
//
// Within a process IDs rise strictly, as text too, even when many goroutines call NewID at once or the clock is set back:
// the twelve bits after the milliseconds hold the fraction of the millisecond (RFC 9562, section 6.2, method 3) and are
// incremented when the clock has not advanced. The other 62 bits are random, from crypto/rand.
func NewID() string {
	var id [16]byte
	rand.Read(id[8:]) // never fails: the program crashes if the system has no randomness
	t := ids.next(time.Now())
	binary.BigEndian.PutUint64(id[:8], t>>12<<16|0x7000|t&0xfff)
	id[8] = id[8]&0x3f | 0x80

	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

// next turns now into a time part that is greater than every earlier one.
func (c *idClock) next(now time.Time) uint64 {
	ns := max(now.UnixNano(), 0)
	ms := ns / int64(time.Millisecond)
	fraction := (ns - ms*int64(time.Millisecond)) << 12 / int64(time.Millisecond)
	t := uint64(ms)<<12 | uint64(fraction)
	for {
		last := c.last.Load()
		t = max(t, last+1)
		if c.last.CompareAndSwap(last, t) {
			return t
		}
	}
}
