package inboxtest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
)

// Restorable is a source with positions whose log can be replaced. All messages go to one partition.
type Restorable struct {
	Source
	// Shared says that other partitions share the offsets, and may notice it as well.
	Shared bool
	// Copy copies the server's stored data. Replace restores the copy, or recreates the log; the server is unavailable
	// meanwhile.
	Copy, Replace func(t testing.TB)
	// Kept says that Replace keeps the messages of Copy.
	Kept bool
}

// Restored tests consumers in a group, or from a log, whose source's log is replaced: new messages are processed, although their
// positions were consumed before; old messages are not processed again; and the event is logged and counted if the source is read as
// a log. The consumer runs during the replacement or starts after it. The new log ends before the position, or beyond it.
func Restored[Tx any](t *testing.T, h Harness[Tx], open func(t testing.TB) Restorable) {
	for name, c := range map[string]*restoredTest[Tx]{
		"LivedThrough": {added: 30}, "LivedThroughAndShort": {added: 3},
		"RestartedMeanwhile": {restart: true, added: 30}, "RestartedMeanwhileAndShort": {restart: true, added: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.world, c.source = newWorld(t, h), open(t)
			c.run()
		})
	}
}

type restoredTest[Tx any] struct {
	*world[Tx]
	source  Restorable
	restart bool
	added   int
	isLog   bool
	log     logText
}

func (r *restoredTest[Tx]) run() {
	process := r.join()
	want := r.publish(15)
	r.untilEffects(want...)
	r.source.Copy(r.t)
	want = append(want, r.publish(20)...)
	r.untilEffects(want...)
	r.must(process.Drain(r.ctx), "drain")
	if n := process.Stats().LogsReplaced; n != 0 {
		r.t.Errorf("%d logs replaced before any was", n)
	}
	if r.restart {
		process.stop()
	}
	r.source.Replace(r.t)
	before := inbox.Stats{}
	if r.restart {
		process = r.join()
	} else {
		before = process.Stats()
	}
	for range r.added {
		want = append(want, r.publish(1)...)
		if len(want)%2 == 0 { // some individually, some together
			r.untilEffects(want...)
		}
	}
	r.untilEffects(want...)
	want = append(want, r.publish(20)...) // past the old position, or further beyond it
	r.untilEffects(want...)
	r.must(process.Drain(r.ctx), "drain")
	r.wantSet("effects", r.effects(), want)
	st := process.Stats()
	if n := strings.Count(r.log.String(), "another incarnation"); int64(n) != st.LogsReplaced || r.isLog != (n > 0) || n > 1 && !r.source.Shared {
		r.t.Errorf("%d logs replaced, want 1 if it is read as a log, and one line that says so; stats %+v, log:\n%s", st.LogsReplaced, st, r.log.String())
	}
	// At most the messages that were unsettled at the copy: the broker may not have recorded their settlement.
	if n := st.Duplicates - before.Duplicates; n > 15 || n > 0 && !r.source.Kept {
		r.t.Errorf("%d duplicates", n)
	}
	process.stop()
}

// publish publishes messages of one key.
func (r *restoredTest[Tx]) publish(n int) []string {
	r.t.Helper()
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		msgs[i] = r.message("a")
		msgs[i].Topic = r.source.Topic
	}
	for _, err := range r.source.Publish(r.ctx, msgs) {
		r.must(err, "publish")
	}
	return ids(msgs)
}

func (r *restoredTest[Tx]) join() *process[Tx] {
	r.t.Helper()
	source := r.source.Join(r.t)
	cfg := inbox.ConsumerConfig{
		Batch: 7, LeaseTTL: r.keptLease(), // whoever loses its lease forgets what the log has lost since the last position
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	r.isLog = source.Capabilities().Log
	return r.start(setting[Tx]{cfg: cfg, reads: source})
}

// logText collects log output.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
