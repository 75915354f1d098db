package inboxtest

import (
	"testing"

	"github.com/postrider/postrider/inbox"
)

// FromGroup tests that a consumer that has read a broker in a group goes on when it reads it as a log. The sources that open returns
// are the same log, read in these two ways.
func FromGroup[Tx any](t *testing.T, h Harness[Tx], open func(t testing.TB) (group, log Source)) {
	group, log := open(t)
	b := &brokerTest[Tx]{
		world: newWorld(t, h), order: make(map[string][]string),
		source: group, caps: group.Join(t).Capabilities(),
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
	if st.Duplicates < int64(before) {
		t.Errorf("stats: %+v; want the %d messages of the group as duplicates", st, before)
	}
}
