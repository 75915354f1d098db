package inbox

import "testing"

// TestBatchesShrinkFromTheirMaximum: however many messages are allowed, also if not a power of two, transactions grow to that
// number while they are quick, and become smaller when they are slow.
func TestBatchesShrinkFromTheirMaximum(t *testing.T) {
	t.Parallel()
	for _, most := range []int{20, 64, 100, 1000} {
		var s batchSize
		s.fits.Store(firstFit)
		for range 20 {
			s.fitted(min(s.limit(), most), growBelow/2, most)
		}
		if s.limit() != most {
			t.Errorf("at most %d: quick transactions take %d", most, s.limit())
		}
		for range 20 {
			s.fitted(min(s.limit(), most), 2*shrinkAbove, most)
		}
		if s.limit() != firstFit {
			t.Errorf("at most %d: slow transactions still take %d", most, s.limit())
		}
	}
}
