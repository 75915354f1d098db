package storetest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// blockedFor is how long a test watches an operation that must wait.
const blockedFor = 150 * time.Millisecond

func watermarkTests[Tx any]() []inboxTest[Tx] {
	return []inboxTest[Tx]{
		{name: "WatermarkMoves", run: watermarkMoves[Tx]},
		{name: "MarkMovesWithTheWatermark", run: markMoves[Tx]},
		{name: "WhatWasConsumedIsRemembered", run: consumedIsRemembered[Tx], statements: true},
		{name: "EveryEpochHasAWatermarkOfItsOwn", run: watermarkOfIncarnations[Tx]},
		{name: "WatermarkIsLocked", run: watermarkIsLocked[Tx], late: true},
		{name: "VersionMoves", run: versionMoves[Tx]},
		{name: "VersionIsLocked", run: versionIsLocked[Tx], late: true},
	}
}

// mark reads a watermark.
func (e *inboxEnv[Tx]) mark(tx Tx, consumer string, at postrider.Position) store.Watermark {
	e.t.Helper()
	w, err := e.store.Watermark(e.ctx, tx, consumer, at)
	e.must(err, "watermark")
	return w
}

func (e *inboxEnv[Tx]) setMark(tx Tx, consumer string, at postrider.Position) {
	e.t.Helper()
	e.must(e.store.SetWatermark(e.ctx, tx, consumer, at, nil), "set watermark")
}

func (e *inboxEnv[Tx]) wantMark(what string, got, want store.Watermark) {
	e.t.Helper()
	if got != want {
		e.t.Errorf("%s: watermark %+v, want %+v", what, got, want)
	}
}

func watermarkMoves[Tx any](e *inboxEnv[Tx]) {
	at := func(partition string, offset int64) postrider.Position {
		return postrider.Position{Incarnation: "e", Partition: partition, Offset: offset}
	}
	e.inTx(func(tx Tx) {
		e.wantMark("at first", e.mark(tx, "c", at("p/0", 7)), store.Watermark{})
		e.setMark(tx, "c", at("p/0", 0))
		e.wantMark("in the transaction", e.mark(tx, "c", at("p/0", 0)), store.Watermark{Known: true})
	})
	tx := e.begin()
	e.setMark(tx, "c", at("p/0", 9))
	e.setMark(tx, "c", at("p/1", 9))
	e.rollback(tx)
	e.inTx(func(tx Tx) {
		e.wantMark("after a rollback", e.mark(tx, "c", at("p/0", 7)), store.Watermark{Known: true})
		e.wantMark("other partition", e.mark(tx, "c", at("p/1", 7)), store.Watermark{})
		e.wantMark("other consumer", e.mark(tx, "d", at("p/0", 7)), store.Watermark{})
		e.setMark(tx, "c", at("p/0", 41))
		e.setMark(tx, "c", at("p/0", 1<<62))
	})
	e.inTx(func(tx Tx) {
		e.wantMark("moved", e.mark(tx, "c", at("p/0", 7)), store.Watermark{Offset: 1 << 62, Known: true})
	})
}

func watermarkOfIncarnations[Tx any](e *inboxEnv[Tx]) {
	at := func(incarnation string, offset int64) postrider.Position {
		return postrider.Position{Incarnation: incarnation, Partition: "p", Offset: offset}
	}
	for _, incarnation := range []string{"old", "older still"} {
		e.inTx(func(tx Tx) { e.setMark(tx, "c", at(incarnation, 100)) })
	}
	e.inTx(func(tx Tx) {
		e.wantMark("new log", e.mark(tx, "c", at("new", 1)), store.Watermark{Earlier: "older still"})
		e.wantMark("the same log of another partition",
			e.mark(tx, "c", postrider.Position{Incarnation: "new", Partition: "q"}), store.Watermark{})
	})
	e.inTx(func(tx Tx) { e.setMark(tx, "c", at("new", 1)) })
	e.inTx(func(tx Tx) { e.setMark(tx, "c", at("old", 101)) }) // a late message
	e.inTx(func(tx Tx) {
		e.wantMark("new log", e.mark(tx, "c", at("new", 1)), store.Watermark{Offset: 1, Known: true})
		e.wantMark("old log", e.mark(tx, "c", at("old", 1)), store.Watermark{Offset: 101, Known: true})
		e.wantMark("newer log", e.mark(tx, "c", at("newer", 1)), store.Watermark{Earlier: "old"})
	})
}

func watermarkIsLocked[Tx any](e *inboxEnv[Tx]) {
	at := postrider.Position{Incarnation: "e", Partition: "p", Offset: 5}
	for _, known := range []bool{false, true} {
		first, second := e.begin(), e.begin()
		if w := e.mark(first, "c", at); w.Known != known {
			e.t.Fatalf("watermark %+v, want known %v", w, known)
		}
		e.mark(second, "d", at) // another consumer has its own watermark
		at.Offset++
		e.setMark(first, "c", at)
		var got store.Watermark
		e.waits("watermark", func() (err error) {
			got, err = e.store.Watermark(e.ctx, second, "c", at)
			return err
		}, func() { e.commit(first) })
		e.wantMark("after the wait", got, store.Watermark{Offset: at.Offset, Known: true})
		e.commit(second)
	}
}

// wantVersion checks the last applied version.
func (e *inboxEnv[Tx]) wantVersion(tx Tx, consumer, key string, want int64) {
	e.t.Helper()
	got, err := e.store.Version(e.ctx, tx, consumer, key)
	e.must(err, "version")
	if got != want {
		e.t.Errorf("version of %s for %s is %d, want %d", key, consumer, got, want)
	}
}

func versionMoves[Tx any](e *inboxEnv[Tx]) {
	set := func(tx Tx, v int64) { e.must(e.store.SetVersion(e.ctx, tx, "c", "k", v), "set version") }
	e.inTx(func(tx Tx) {
		e.wantVersion(tx, "c", "k", 0)
		set(tx, 1)
		e.wantVersion(tx, "c", "k", 1)
		set(tx, 1<<40)
	})
	tx := e.begin()
	set(tx, 5)
	e.rollback(tx)
	e.inTx(func(tx Tx) {
		e.wantVersion(tx, "c", "k", 1<<40)
		e.wantVersion(tx, "d", "k", 0)
		e.wantVersion(tx, "c", "j", 0)
	})
}

func versionIsLocked[Tx any](e *inboxEnv[Tx]) {
	for v := range int64(2) {
		first, second := e.begin(), e.begin()
		e.wantVersion(first, "c", "k", v)
		e.wantVersion(second, "c", "j", 0)
		e.must(e.store.SetVersion(e.ctx, first, "c", "k", v+1), "set version")
		var got int64
		e.waits("version", func() (err error) {
			got, err = e.store.Version(e.ctx, second, "c", "k")
			return err
		}, func() { e.commit(first) })
		if got != v+1 {
			e.t.Errorf("version is %d after the wait, want %d", got, v+1)
		}
		e.commit(second)
	}
}

// markMoves: the mark is that of the last move, even if the last move went back or had no mark.
func markMoves[Tx any](e *inboxEnv[Tx]) {
	at := postrider.Position{Incarnation: "e", Partition: "p"}
	for _, to := range []store.Watermark{
		{Offset: 7, Mark: "seven"}, {Offset: 9, Mark: "nine"}, {Offset: 7, Mark: "other seven"}, {Offset: 8}, {Offset: 7},
		{Offset: 8, Mark: "eight"},
	} {
		tx := e.begin()
		e.setMark(tx, "c", postrider.Position{Incarnation: "e", Partition: "p", Offset: 100, Mark: "undone"})
		e.rollback(tx)
		to.Known = true
		e.inTx(func(tx Tx) {
			e.setMark(tx, "c", postrider.Position{Incarnation: "e", Partition: "p", Offset: to.Offset, Mark: to.Mark})
			e.wantMark("in the transaction", e.mark(tx, "c", at), to)
		})
		e.inTx(func(tx Tx) { e.wantMark("after it", e.mark(tx, "c", at), to) })
	}
}

// wantConsumed checks that the store remembers what the moves first to last after an offset consumed, as digests of their
// numbers; nothing if last is before first.
func wantConsumed[Tx any](e *inboxEnv[Tx], what string, tx Tx, consumer string, from postrider.Position, first, last int) {
	e.t.Helper()
	got, err := e.store.Consumed(e.ctx, tx, consumer, from)
	e.must(err, "consumed")
	found := make(map[string]bool)
	for one := range slices.Chunk(got, 8) {
		found[string(one)] = true
	}
	for n := first; n <= last; n++ {
		if !found[string(numberDigest(n))] {
			e.t.Fatalf("%s: %d of %d to %d is not among %d that were consumed", what, n, first, last, len(got)/8)
		}
	}
	if first > last && len(got) > 0 {
		e.t.Errorf("%s: %d were consumed, want none", what, len(got)/8)
	}
	if len(got)/8 > 2*store.RememberedMoves {
		e.t.Errorf("%s: %d are remembered", what, len(got)/8)
	}
}

func numberDigest(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// consumedIsRemembered: the store remembers what the last moves consumed, with the offsets that they moved to.
func consumedIsRemembered[Tx any](e *inboxEnv[Tx]) {
	at := func(offset int) postrider.Position {
		return postrider.Position{Incarnation: "e", Partition: "p", Offset: int64(offset), Mark: "m"}
	}
	want := func(what string, tx Tx, consumer string, from int, first, last int) {
		e.t.Helper()
		wantConsumed(e, what, tx, consumer, at(from), first, last)
	}
	move := func(tx Tx, n int) {
		e.must(e.store.SetWatermark(e.ctx, tx, "c", at(n), append(numberDigest(2*n), numberDigest(2*n+1)...)), "set watermark")
	}
	e.inTx(func(tx Tx) {
		e.mark(tx, "c", at(0))
		want("at first", tx, "c", 0, 1, 0)
		move(tx, 1)
		want("in the transaction", tx, "c", 0, 2, 3)
	})
	undone := e.begin()
	move(undone, 2)
	e.rollback(undone)
	e.inTx(func(tx Tx) {
		e.mark(tx, "c", at(0))
		want("after a rollback", tx, "c", 0, 2, 3)
		e.mark(tx, "d", at(0))
		want("another consumer", tx, "d", 0, 1, 0)
	})
	last := 2
	for round := range 3 { // more moves than are remembered, across transactions
		e.inTx(func(tx Tx) {
			for range store.RememberedMoves * 2 / 5 {
				last++
				move(tx, last)
			}
		})
		e.inTx(func(tx Tx) {
			e.mark(tx, "c", at(0))
			first := max(last-store.RememberedMoves+1, 3)
			want(fmt.Sprint("round ", round), tx, "c", first, 2*first, 2*last+1)
			want("the last", tx, "c", last, 2*last, 2*last+1)
		})
	}
	e.inTx(func(tx Tx) { move(tx, 5) }) // the log was recreated
	e.inTx(func(tx Tx) {
		e.mark(tx, "c", at(0))
		want("after a move back", tx, "c", last-10, 2*(last-10), 2*last+1)
		want("the move back", tx, "c", 5, 10, 11)
		e.mark(tx, "c", postrider.Position{Incarnation: "f", Partition: "p"})
		got, err := e.store.Consumed(e.ctx, tx, "c", postrider.Position{Incarnation: "f", Partition: "p"})
		if e.must(err, "consumed"); len(got) > 0 {
			e.t.Errorf("of another incarnation %d are remembered", len(got)/8)
		}
	})
}
