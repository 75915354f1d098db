package store

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// Digest is the SHA-256 sum of a settlement's content, without its token and number. Stores keep it with the number, to tell
// a repeated settlement from another one.
func (s *Settlement) Digest() [sha256.Size]byte {
	d := digester{h: sha256.New()}
	d.bool(s.Moved)
	d.int(s.Cursor.Position)
	d.text(s.Cursor.Snapshot)
	d.ints(s.Delivered)
	d.ints(s.Removed)
	d.int(int64(len(s.Parked)))
	for i := range s.Parked {
		p := &s.Parked[i]
		d.int(p.Sequence)
		d.text(p.Key)
		d.bool(p.FromLog)
		d.text(string(p.Reason))
		d.bool(p.Waits)
		d.int(int64(p.After))
		d.int(int64(p.Attempts))
		d.text(p.Cause)
	}
	d.int(int64(len(s.Dead)))
	for i := range s.Dead {
		x := &s.Dead[i]
		d.int(x.Sequence)
		d.text(x.Key)
		d.bool(x.FromLog)
		d.text(x.Reason)
		d.text(x.Cause)
		d.int(int64(x.Attempts))
		d.bool(x.Discarded)
	}
	d.int(int64(len(s.Held)))
	for i := range s.Held {
		k := &s.Held[i]
		d.text(k.Key)
		d.int(k.Sequence)
		d.text(string(k.Reason))
		d.text(k.Cause)
		d.int(int64(k.Attempts))
		d.int(int64(k.After))
		d.bool(k.UntilDecided)
	}
	d.int(int64(len(s.Release)))
	for _, key := range s.Release {
		d.text(key)
	}
	d.int(s.DeliveredCount)
	d.int(s.FailedCount)
	d.int(int64(len(s.Unrouted)))
	for _, u := range s.Unrouted {
		d.text(u.Topic)
		d.int(u.Count)
	}
	d.flush()
	return [sha256.Size]byte(d.h.Sum(nil))
}

// digester writes values to a hash so that no two different series of values give the same bytes.
type digester struct {
	h   hash.Hash
	buf []byte
}

func (d *digester) int(v int64) {
	d.buf = binary.BigEndian.AppendUint64(d.buf, uint64(v))
	if len(d.buf) >= 4096 {
		d.flush()
	}
}

func (d *digester) bool(v bool) {
	if v {
		d.int(1)
	} else {
		d.int(0)
	}
}

func (d *digester) ints(v []int64) {
	d.int(int64(len(v)))
	for _, n := range v {
		d.int(n)
	}
}

func (d *digester) text(s string) {
	d.int(int64(len(s)))
	d.buf = append(d.buf, s...)
}

func (d *digester) flush() {
	_, _ = d.h.Write(d.buf) // never fails
	d.buf = d.buf[:0]
}
