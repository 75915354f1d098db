package inboxtest

import (
	"testing"

	"github.com/postrider/postrider/inbox"
)

// FromGroup tests that a consumer that has read a broker in a group goes on when it reads it as a log. The sources that open returns
// are the same log, read in these two ways.
func FromGroup[Tx any](t *testing.T, h Harness[Tx], open func(t testing.TB) (group, log Source)) {
	for name, dedup := range map[string]inbox.Dedup{"ByID": inbox.ByID, "ByPosition": inbox.ByPosition} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group, log := open(t)
			b := &brokerTest[Tx]{
				world: newWorld(t, h), order: make(map[string][]string),
				source: group, cfg: inbox.ConsumerConfig{Dedup: dedup}, caps: group.Join(t).Capabilities(),
			}
			b.calm.Store(true)
			before := b.publish() + b.publish()
			p := b.join()
			b.until("the group has read everything", func() bool { return len(b.effects()) >= before })
			p.stop()
			after := b.publish()

			b.source, b.cfg, b.caps = log, inbox.ConsumerConfig{}, log.Join(t).Capabilities()
			p = b.join()
			b.until("everything is read", func() bool { return len(b.effects()) >= before+after && p.Stats().Received >= int64(after) })
			p.stop()
			b.outcome(before + after)
			st := p.Stats()
			if st.LogsReplaced != 0 || st.Missing != 0 {
				t.Errorf("stats: %+v; the log is the same", st)
			}
			if dedup == inbox.ByPosition && (st.Duplicates != 0 || st.Received != int64(after)) {
				t.Errorf("stats: %+v; want the %d messages after the watermark", st, after)
			}
			if dedup == inbox.ByID && st.Duplicates < int64(before) {
				t.Errorf("stats: %+v; want the %d messages of the group as duplicates", st, before)
			}
		})
	}
}
