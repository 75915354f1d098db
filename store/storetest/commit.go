package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/store"
)

// contextEndsDuringTheCommit ends the callers' contexts at moments from before the commit to after it. The caller is told that the
// transaction was committed only if it was, and that it was not only if it was not: otherwise it loses a message or publishes it twice.
func contextEndsDuringTheCommit(e *env) {
	const rounds = 100
	var handed time.Time
	publish := func(end func(cancel func())) (string, error) {
		ctx, cancel := context.WithCancel(e.ctx)
		defer cancel()
		m := e.message("order/1")
		_, err := e.inTx(ctx, func(_ context.Context, publish publishFunc) error {
			if err := publish(m); err != nil {
				return err
			}
			end(cancel)
			handed = time.Now()
			return nil
		})
		return m.ID, err
	}
	w := e.worker("r", "a")
	var committed, undone []string
	took := time.Hour
	for range 5 {
		id, err := publish(func(func()) {})
		e.must(err, "publish with a context that does not end")
		committed, took = append(committed, id), min(took, time.Since(handed))
	}
	before, err := publish(func(cancel func()) { cancel() })
	if err == nil || errors.Is(err, store.ErrUncertain) {
		e.t.Errorf("the context ends before the commit: %v, want an error that is not ErrUncertain", err)
	}
	undone = append(undone, before)
	uncertain := 0
	for i := range int64(rounds) {
		id, err := publish(func(cancel func()) { time.AfterFunc(time.Duration(2*took.Nanoseconds()*i/rounds), cancel) })
		switch {
		case err == nil:
			committed = append(committed, id)
		case !errors.Is(err, store.ErrUncertain):
			undone = append(undone, id)
		default:
			uncertain++
		}
	}
	e.t.Logf("%d committed, %d not, %d uncertain", len(committed), len(undone), uncertain)
	there := make(map[string]bool)
	for _, id := range recordIDs(w.drain()) {
		there[id] = true
	}
	for _, id := range committed {
		if !there[id] {
			e.t.Errorf("%s is not there, and its publisher was told that it was committed", id)
		}
	}
	for _, id := range undone {
		if there[id] {
			e.t.Errorf("%s is there, and its publisher was told that it was not committed", id)
		}
	}
}
