package inboxtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// DividedLog is a broker's log that can be divided into partitions, and be whole again.
type DividedLog struct {
	// Whole and Parts publish as long as the log is whole or divided. Both join it as it is.
	Whole, Parts Source
	// Name is the name of the whole.
	Name string
	// Divide divides the log, Join makes it whole, without its messages in parts, and Recreate replaces it by a divided one.
	Divide, Join, Recreate func(t testing.TB)
}

// blindLog is a log whose partitions a process cannot ask for while it is blind, as over a slow network.
type blindLog struct {
	logTap
	blind   atomic.Bool
	readers *readers
}

// readers says which process began to read each partition last.
type readers struct {
	mu   sync.Mutex
	last map[string]*blindLog
}

// count is the number of partitions that l reads.
func (r *readers) count(l *blindLog) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reader := range r.last {
		if reader == l {
			n++
		}
	}
	return n
}

func (r *readers) of(partition string) *blindLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[partition]
}

func (l *blindLog) Partitions(ctx context.Context, names ...string) ([]postrider.LogPartition, error) {
	if l.blind.Load() {
		return nil, postrider.Unavailable(errors.New("inboxtest: no answer"))
	}
	return l.Log.Partitions(ctx, names...)
}

func (l *blindLog) ReadLog(ctx context.Context, p postrider.LogPartition, after int64) (postrider.LogReader, error) {
	l.readers.mu.Lock()
	l.readers.last[p.Name] = l
	l.readers.mu.Unlock()
	return l.Log.ReadLog(ctx, p, after)
}

// DividedAgain tests what becomes of the positions in a log that is divided, recreated, joined and divided again, when one of two processes
// does not notice that it was whole: all of them count in the end, and nothing is read again from where it was divided before.
func DividedAgain[Tx any](t *testing.T, h Harness[Tx], log DividedLog) {
	b := &brokerTest[Tx]{world: newWorld(t, h), order: make(map[string][]string), source: log.Parts}
	total := 0
	publish := func(s Source) (n int) {
		b.source = s
		n = b.publish()
		total += n
		b.until("every message has its effect", func() bool { return len(b.effects()) >= total })
		return n
	}
	b.calm.Store(true)
	log.Divide(t)
	readers := &readers{last: make(map[string]*blindLog)}
	var views []*blindLog
	var processes []*process[Tx]
	join := func() {
		sub := log.Parts.Join(t)
		views = append(views, &blindLog{logTap: logTap{&tap{Subscriber: sub}, sub.(postrider.Log)}, readers: readers})
		processes = append(processes, b.start(setting[Tx]{reads: views[len(views)-1]}))
	}
	join()
	join()
	b.until("both share the log", func() bool {
		n := readers.count(views[0])
		return n > 0 && n == readers.count(views[1])
	})
	publish(log.Parts)
	log.Recreate(t)
	publish(log.Parts)
	b.until("the positions are in the new log", func() bool { return b.allCount(true) })

	blind := views[0]
	if readers.of(log.Name+"/0") == blind { // the lease of the first part is that of the whole
		blind = views[1]
	}
	blind.blind.Store(true)
	log.Join(t)
	b.until("one process reads the whole", func() bool { return b.allCount(false) })
	publish(log.Whole)
	log.Divide(t)
	blind.blind.Store(false)
	publish(log.Parts)
	b.until("all positions count", func() bool { return b.allCount(true) })
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	b.must(processes[0].CatchUp(ctx), "catch up")
	for _, p := range processes {
		p.stop()
	}
	b.caps = postrider.SubscriberCapabilities{Ordered: true}
	b.outcome(total)
	join()
	n := publish(log.Parts)
	last := processes[len(processes)-1]
	last.stop()
	if st := last.Stats(); st.Received > int64(2*n) || st.LogsReplaced != 0 { // some are published twice
		t.Errorf("stats: %+v, want that only the last messages are read", st)
	}
}

// allCount reports whether the log is read in parts, or as a whole, and all positions in what is read count.
func (b *brokerTest[Tx]) allCount(divided bool) bool {
	b.t.Helper()
	all, err := b.store.LogPositions(b.ctx, consumer)
	b.must(err, "positions")
	return len(all) > 0 && !slices.ContainsFunc(all, func(p store.LogPosition) bool {
		if p.Whole == "" {
			return p.Divided != divided
		}
		return divided && !p.IsCurrent(all)
	})
}
