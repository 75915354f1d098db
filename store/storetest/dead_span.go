package storetest

import "github.com/postrider/postrider/store"

// deadAreSpanned: a part of the dead letters is the oldest or the newest of them, however many others there are.
func deadAreSpanned(e *env) {
	w, other := e.worker("r", "a"), e.worker("other", "a")
	for range 3 {
		w.deadLetter("rejected", e.message("order/1"))
		other.drain()
		other.deadLetter("rejected", e.message("order/2"))
		w.drain()
	}
	all := e.deadLetters(everyOpen)
	for _, c := range []struct {
		q      store.DeadQuery
		newest bool
		want   []int // of all, first to last
	}{
		{store.DeadQuery{}, false, []int{0, 1, 2, 3, 4, 5}},
		{store.DeadQuery{Limit: 2}, false, []int{0, 1}},
		{store.DeadQuery{Limit: 2}, true, []int{4, 5}},
		{store.DeadQuery{Limit: 2, UpTo: all[3].Number}, true, []int{2, 3}},
		{store.DeadQuery{Limit: 9, After: all[3].Number}, true, []int{4, 5}},
		{store.DeadQuery{Limit: 2, DeadFilter: store.DeadFilter{Relay: all[0].Relay}}, true, []int{2, 4}},
		{store.DeadQuery{Limit: 2, DeadFilter: store.DeadFilter{Relay: all[1].Relay}}, false, []int{1, 3}},
		{store.DeadQuery{Limit: 2, DeadFilter: store.DeadFilter{State: store.DeadDiscarded}}, true, nil},
	} {
		want := store.DeadSpan{N: int64(len(c.want))}
		if want.N > 0 {
			want.First, want.Last = all[c.want[0]].Number, all[c.want[len(c.want)-1]].Number
		}
		err := e.View(e.ctx, store.Operation{Method: "ListDead", Doing: "span dead letters"}, func(r store.Reader) error {
			if got, err := r.SpanDead(e.ctx, c.q, c.newest); err != nil || got != want {
				e.t.Errorf("%+v, newest %v: %+v, %v; want %+v", c.q, c.newest, got, err, want)
			}
			return nil
		})
		e.must(err, "view")
	}
}
