package scenariotest

import (
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider"
)

// repeats are the times, since a storm began, at which something was done for each instance.
type repeats map[string][]time.Duration

func (r repeats) add(m *postrider.Message, at time.Duration) {
	id := m.Headers["postrider-saga"]
	r[id] = append(r[id], at)
}

// even says if what happened in a time was not spread over it: no second may have more than three times the mean, and what chance adds to
// that.
func even(logf func(string, ...any), what string, done repeats, from, to int) error {
	bySecond := make(map[int]int)
	for _, times := range done {
		for _, at := range times {
			bySecond[int(at/time.Second)]++
		}
	}
	sum, most := 0, 0
	for second := from; second < to; second++ {
		sum, most = sum+bySecond[second], max(most, bySecond[second])
	}
	mean := float64(sum) / float64(to-from)
	logf("%s: %d, %.1f a second, at most %d", what, sum, mean, most)
	if allowed := atMost(mean); sum == 0 || float64(most) > allowed {
		return fmt.Errorf("%s: %d in one second, with a mean of %.1f; want at most %.0f", what, most, mean, allowed)
	}
	return nil
}

// atMost is three times what is expected, and what chance adds to that.
func atMost(expected float64) float64 { return 3*expected + 5*math.Sqrt(3*expected) }

// together is the time in which two repetitions happen together: relays look for due messages as often.
const together = 25 * time.Millisecond

// jittered says if the instances of a wave, which have failed together, are repeated together, from the nth time that something was done for
// each. even would not see it if each wave did so at other times. It counts the pairs of a wave whose nth times fall together: with k
// possible waits, these are one in k. narrowest is the shortest time over which jitter spreads those of a wave.
func jittered(logf func(string, ...any), what string, done repeats, wave map[string]int, n int, narrowest time.Duration) error {
	type nth struct{ wave, n int }
	type slot struct {
		nth
		at time.Duration
	}
	of, in := make(map[nth]int), make(map[slot]int)
	for id, times := range done {
		for n, at := range times {
			is := nth{wave[id], n}
			of[is]++
			in[slot{is, at / together}]++
		}
	}
	pairs, joint := make(map[int]int), make(map[int]int) // by n
	for is, k := range of {
		pairs[is.n] += k * (k - 1) / 2
	}
	for is, k := range in {
		joint[is.n] += k * (k - 1) / 2
	}
	all := 0
	for ; pairs[n] > 0; n++ {
		if allowed := atMost(float64(pairs[n]) * float64(together) / float64(narrowest)); float64(joint[n]) > allowed {
			return fmt.Errorf("%s: %d of %d pairs of a wave together at time %d; want at most %.0f", what, joint[n], pairs[n], n, allowed)
		}
		all += pairs[n]
	}
	if logf("%s: %d pairs of a wave", what, all); all == 0 {
		return fmt.Errorf("%s: nothing was repeated", what)
	}
	return nil
}
