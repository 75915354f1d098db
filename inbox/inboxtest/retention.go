package inboxtest

import (
	"slices"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
)

// Expirable is a log that loses messages to retention. All messages go to one partition.
type Expirable struct {
	Source
	// Expire removes all messages but the last n.
	Expire func(t testing.TB, n int)
}

// Retention tests a consumer of a log that is away while retention removes messages that it has not read: it reports them, once, and
// reads on.
func Retention[Tx any](t *testing.T, h Harness[Tx], source Expirable) {
	w := newWorld(t, h)
	parts := int64(1)
	join := func() (*process[Tx], bool) {
		log := source.Join(t).(postrider.Log)
		w.log = log
		all, err := log.Partitions(t.Context())
		w.must(err, "list the partitions")
		parts = int64(len(all))
		return w.start(setting[Tx]{reads: source.Join(t), cfg: inbox.ConsumerConfig{LeaseTTL: w.keptLease()}}), all[0].Sparse || all[0].Shared
	}
	publish := func(n int) (msgs []*postrider.Message) {
		for range n {
			m := w.message("a")
			m.Topic = source.Topic
			msgs = append(msgs, m)
		}
		for _, err := range source.Publish(t.Context(), msgs) {
			w.must(err, "publish")
		}
		return msgs
	}
	want := ids(publish(6))
	p, sparse := join()
	w.untilEffects(want...)
	p.stop()
	want = append(want, ids(publish(6))[3:]...)
	source.Expire(t, 3)
	missing := int64(3)
	if sparse {
		missing = 1
	}
	for _, missing := range []int64{missing, 0} {
		p, _ = join()
		want = append(want, ids(publish(1))...)
		w.untilEffects(want...)
		p.stop()
		most := missing
		if parts > 1 { // they cannot tell whose messages are missing, and some notice it only now
			most = parts
		}
		if st := p.Stats(); st.Missing < missing || st.Missing > most || st.LogsReplaced != 0 || st.Duplicates != 0 {
			t.Errorf("stats: %+v, want %d to %d missing", st, missing, most)
		}
	}
	w.want("order", w.effectsOf("a"), want)
	positions, err := w.store.LogPositions(t.Context(), consumer)
	w.must(err, "read the positions")
	if i := slices.IndexFunc(positions, func(at store.LogPosition) bool { return at.Missing > 0 }); i < 0 {
		t.Errorf("positions %+v do not say what is missing", positions)
	}
}

// GroupRetention tests a consumer in a group that is away while retention removes messages that it has not read: it reports them,
// once, and reads on.
func GroupRetention[Tx any](t *testing.T, h Harness[Tx], source Expirable) {
	w := newWorld(t, h)
	publish := func(n int) (msgs []*postrider.Message) {
		for range n {
			m := w.message("a")
			m.Topic = source.Topic
			msgs = append(msgs, m)
		}
		for _, err := range source.Publish(t.Context(), msgs) {
			w.must(err, "publish")
		}
		return msgs
	}
	join := func() *process[Tx] { return w.start(setting[Tx]{reads: source.Join(t)}) }
	p := join()
	want := ids(publish(6))
	w.untilEffects(want...)
	p.stop()
	want = append(want, ids(publish(6))[3:]...)
	source.Expire(t, 3)
	for _, missing := range []int64{3, 0} {
		p = join()
		want = append(want, ids(publish(1))...)
		w.untilEffects(want...)
		p.stop()
		if st := p.Stats(); st.Missing != missing || st.LogsReplaced != 0 || st.Duplicates != 0 {
			t.Errorf("stats: %+v, want %d missing", st, missing)
		}
	}
	w.want("order", w.effectsOf("a"), want)
}
