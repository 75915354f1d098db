package storetest

import (
	"time"
)

// blockedFor is how long a test watches an operation that must wait.
const blockedFor = 150 * time.Millisecond

func versionTests[Tx any]() []inboxTest[Tx] {
	return []inboxTest[Tx]{
		{name: "VersionMoves", run: versionMoves[Tx]},
		{name: "VersionIsLocked", run: versionIsLocked[Tx], late: true},
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
