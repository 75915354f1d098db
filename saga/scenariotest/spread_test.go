package scenariotest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestLockstepIsFound: the checks of the scenario of payments that are down pass for jitter, and jittered finds what repeats waves in
// lockstep, in waves as small as those of the short scenario, and also what even does not see.
func TestLockstepIsFound(t *testing.T) {
	t.Parallel()
	const every = 20 * time.Second
	upTo := func(n int) time.Duration { return min(limit*every, every<<n) }
	ofWaves := make(map[[2]int]time.Duration)
	faults := map[string]func(wave, n int) time.Duration{
		"jitter":      func(_, n int) time.Duration { return rand.N(upTo(n)) },
		"half jitter": func(_, n int) time.Duration { return upTo(n)/2 + rand.N(upTo(n)/2) },
		"no jitter":   func(_, n int) time.Duration { return upTo(n) },
		"the same wait for a wave": func(wave, n int) time.Duration {
			at := [2]int{wave, n}
			if ofWaves[at] == 0 {
				ofWaves[at] = 1 + rand.N(upTo(n))
			}
			return ofWaves[at]
		},
		"one of four waits": func(_, n int) time.Duration { return upTo(n) * time.Duration(1+rand.N(4)) / 4 },
		"one of ten waits":  func(_, n int) time.Duration { return upTo(n) * time.Duration(7+11*rand.N(10)) / 117 },
	}
	spread := map[string]bool{"jitter": true, "half jitter": true}
	uneven := map[string]bool{"no jitter": true, "one of four waits": true, "one of ten waits": false}
	const waves, end = 33, 33 * every
	for name, wait := range faults {
		for _, size := range []int{10, 100} {
			done, wave := make(repeats), make(map[string]int)
			for w := range waves {
				for i := range size {
					id := fmt.Sprint(w, " ", i)
					wave[id] = w
					at := time.Duration(w)*every + wait(w, 0)
					for n := 1; at < end; n++ {
						done[id] = append(done[id], at)
						at += wait(w, n)
					}
				}
			}
			if err := jittered(t.Logf, name, done, wave, 0, every/2); (err == nil) != spread[name] {
				t.Errorf("waves of %d with %s: jittered says %v", size, name, err)
			}
			err := even(t.Logf, name, done, int((end-3*limit*every)/time.Second), int(end/time.Second))
			if want, known := uneven[name]; (known || spread[name]) && (err != nil) != want {
				t.Errorf("waves of %d with %s: even says %v", size, name, err)
			}
		}
	}
}
