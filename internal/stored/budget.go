package stored

// Budget limits how many bytes may still be returned. The first record is always taken.
type Budget struct {
	Left  int
	taken bool
}

// Take reports whether a record may be returned, and counts it.
func (b *Budget) Take(size int) bool {
	if b.taken && size > b.Left {
		return false
	}
	b.Left -= size
	b.taken = true
	return true
}
