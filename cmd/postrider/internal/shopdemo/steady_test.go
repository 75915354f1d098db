//go:build !race

package shopdemo

import (
	"context"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/examples/shop"
)

// TestSteadyTorture runs the shop for hours of virtual time, in which no machine is slow: every order that can succeed does, within a
// second, the ledger is always exact, and neither memory nor tables grow once the first messages have been removed. It measures memory,
// so it does not run alongside other tests.
func TestSteadyTorture(t *testing.T) {
	runs := []steady{{rate: 3, length: 4 * time.Minute, keep: time.Minute}}
	if d, err := time.ParseDuration(os.Getenv("POSTRIDER_TORTURE")); err == nil { // 20m: a busy time, and a day at a booth
		runs = []steady{{rate: 200, length: d, keep: max(d/4, time.Minute)}, {rate: 3, length: 24 * d, keep: max(3*d, time.Minute)}}
	}
	for _, s := range runs {
		t.Run(strconv.Itoa(s.rate)+" per second for "+s.length.String(), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { s.run(t, dir) })
		})
	}
}

// steady is a load of requests per second, for a time. What was delivered is kept for a time.
type steady struct {
	rate         int
	length, keep time.Duration
}

func (s steady) run(t *testing.T, dir string) {
	cfg := Config{
		Dir: dir, Load: strconv.Itoa(s.rate), Seed: 1, Out: io.Discard,
		Limits: Limits{Keep: s.keep, Replenish: time.Second}, // more than 100 of a product are sold within 10 s
	}
	w := openVirtual(t, cfg)
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	l := newLoad(w, float64(s.rate))
	loading, end := context.WithTimeout(t.Context(), s.length)
	defer end()
	var working sync.WaitGroup
	working.Go(func() { l.run(loading) })
	early, late := s.watch(t, w)
	working.Wait()
	t.Logf("after %s and after %s: %+v, %+v", s.length/2, s.length, early, late)
	grows := late.rows > early.rows+early.rows/4 || late.heap > early.heap+early.heap/2+16<<20
	if grows && s.length >= 4*s.keep { // something has been removed
		t.Errorf("it grows: after %s %+v, after %s %+v", s.length/2, early, s.length, late)
	}
	s.judge(t, w, l)
}

// watch checks the ledger all the time, and returns sizes in the middle and at the end: the largest of the last minutes.
func (s steady) watch(t *testing.T, w *world) (early, late size) {
	begun := time.Now()
	for minute := 1; time.Since(begun) < s.length; minute++ {
		time.Sleep(time.Until(begun.Add(time.Duration(minute) * time.Minute)))
		tally, err := w.check(t.Context())
		if err != nil || !tally.Exact() || tally.Overdue > 0 {
			t.Fatalf("after %d minutes: %v, %+v", minute, err, tally)
		}
		if minute%60 == 0 {
			t.Logf("after %d hours: %q, %+v", minute/60, ledgerLines(tally), measure(t, w))
		}
		switch past := time.Since(begun); {
		case past > s.length/2-s.keep/2 && past <= s.length/2:
			early = early.max(measure(t, w))
		case past > s.length-s.keep/2:
			late = late.max(measure(t, w))
		}
	}
	return early, late
}

// judge waits until every order is final, and checks how they ended.
func (s steady) judge(t *testing.T, w *world, l *load) {
	tally, err := w.settle(t.Context())
	if err != nil || !tally.Exact() {
		t.Fatalf("the ledger: %v, %+v", err, tally)
	}
	broken, err := l.judgeOpen(t.Context())
	counts, p50, p95 := l.stats()
	t.Logf("%q: %+v; p50 %s, p95 %s", ledgerLines(tally), counts, p50, p95)
	if err != nil || len(broken) > 0 || counts.TimedOut+counts.SoldOut+counts.Failed > 0 {
		t.Errorf("%v, broken %q, %+v, last failure: %v", err, broken, counts, l.failure)
	}
	if want := int(s.length.Seconds()) * s.rate / 2; counts.Orders < want*9/10 || p95 >= time.Second {
		t.Errorf("%d orders that can succeed, want about %d; 95%% took less than %s", counts.Orders, want, p95)
	}
}

// size is what grows if something is never removed.
type size struct {
	rows int64 // in Postrider's tables
	heap uint64
}

func (s size) max(o size) size { return size{max(s.rows, o.rows), max(s.heap, o.heap)} }

// measure measures the shop. Records of steps are kept for 30 days at least, and orders for ever.
func measure(t *testing.T, w *world) (s size) {
	t.Helper()
	const tables = `SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'postrider\_%' ESCAPE '\' AND name <> 'postrider_saga_records'`
	for _, name := range shop.Names {
		db := w.dbs[name].DB
		rows, err := db.QueryContext(t.Context(), tables)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		for _, table := range names {
			var n int64
			if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			s.rows += n
		}
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	s.heap = m.HeapAlloc
	return s
}
