package inboxtest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
)

// growingLog is a log that grows, and is read, after its state was looked at and before the answer arrives.
type growingLog struct {
	*memorybroker.Subscriber
	grow func()
}

func (l growingLog) Partitions(ctx context.Context, names ...string) ([]postrider.LogPartition, error) {
	out, err := l.Subscriber.Partitions(ctx, names...)
	l.grow()
	return out, err
}

func logGrows[Tx any](w *world[Tx]) {
	read, err := w.broker.Subscriber(memorybroker.SubscriberConfig{Topics: []string{topic}})
	w.must(err, "subscriber")
	s := logSetting[Tx]()
	var growing atomic.Bool
	var sent atomic.Int64
	s.reads = growingLog{read, func() {
		if !growing.Load() || sent.Load() >= 50 {
			return
		}
		sent.Add(1)
		m := *w.broker.Messages(topic)[0]
		m.ID = postrider.NewID()
		w.broker.Publish(w.ctx, []*postrider.Message{&m})
		w.elapse(50 * time.Millisecond)
	}}
	w.send("a")
	p := w.start(s)
	w.until("the first effect", func() bool { return len(w.effects()) == 1 })
	growing.Store(true)
	for range 5 {
		w.elapse(300 * time.Millisecond)
		w.send("b")
	}
	w.until("all effects", func() bool { return len(w.unsettled()) == 0 && len(w.effects()) >= 6+int(sent.Load()) })
	// On a busy database, a lease or the answer to a commit can be lost, and what was not settled is read again.
	if st := p.Stats(); st.LogsReplaced != 0 || st.Duplicates != 0 && w.h.Bubble || sent.Load() == 0 {
		w.t.Errorf("%d messages came in between; stats: %+v, want no other log", sent.Load(), st)
	}
}

// openedLog is the log of a single server that does something as a reader is opened.
type openedLog struct {
	*memorybroker.Subscriber
	opening func()
}

func (l openedLog) Partitions(ctx context.Context, names ...string) ([]postrider.LogPartition, error) {
	out, err := l.Subscriber.Partitions(ctx, names...)
	for i := range out {
		out[i].Term = ""
	}
	return out, err
}

func (l openedLog) ReadLog(ctx context.Context, p postrider.LogPartition, after int64) (postrider.LogReader, error) {
	l.opening()
	return l.Subscriber.ReadLog(ctx, p, after)
}

// logLostWhileOpened: the log loses its tail, and has other messages there, between the last look at it and the first read.
func logLostWhileOpened[Tx any](w *world[Tx]) {
	read, err := w.broker.Subscriber(memorybroker.SubscriberConfig{Topics: []string{topic}})
	w.must(err, "subscriber")
	s := logSetting[Tx]()
	var armed atomic.Bool
	added := make(chan []string, 1)
	s.reads = openedLog{read, func() {
		if armed.CompareAndSwap(true, false) {
			w.broker.LoseTail(topic, 5)
			added <- w.send("a", "b", "a", "b", "a", "b", "a", "b")
		}
	}}
	p := w.start(s)
	want := w.send("a", "b", "a", "b", "a", "b", "a", "b", "a", "b")
	w.untilEffects(want...)
	w.untilQuiet()
	p.stop()
	armed.Store(true)
	p = w.start(s)
	want = append(want, <-added...)
	w.untilEffects(want...)
	w.untilQuiet()
	if st := p.Stats(); st.LogsReplaced != 1 {
		w.t.Errorf("%d logs replaced, want 1", st.LogsReplaced)
	}
}

// narrowLog is a log that has some of its partitions only later.
type narrowLog struct {
	*memorybroker.Subscriber
	wide *atomic.Bool
}

func (l narrowLog) Partitions(ctx context.Context, names ...string) ([]postrider.LogPartition, error) {
	out, err := l.Subscriber.Partitions(ctx, names...)
	return slices.DeleteFunc(out, func(p postrider.LogPartition) bool { return p.Number >= 2 && !l.wide.Load() }), err
}

// logGetsPartitions: partitions that a log gets later are read from their beginning.
func logGetsPartitions[Tx any](w *world[Tx]) {
	if !w.h.Bubble {
		return // they are listed every ten seconds
	}
	read, err := w.broker.Subscriber(memorybroker.SubscriberConfig{Topics: []string{topic}, Partitions: 4})
	w.must(err, "subscriber")
	s := logSetting[Tx]()
	var wide atomic.Bool
	s.reads = narrowLog{read, &wide}
	p := w.start(s)
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint("key", i))
	}
	want := w.send(keys...)
	w.elapse(15 * time.Second)
	if n := len(w.effects()); n == 0 || n == len(want) {
		w.t.Errorf("%d effects of %d messages in twice as many partitions", n, len(want))
	}
	wide.Store(true)
	want = append(want, w.send(keys...)...)
	w.untilEffects(want...)
	w.untilQuiet()
	if st := p.Stats(); st.LogsReplaced != 0 || st.Duplicates != 0 || st.Missing != 0 {
		w.t.Errorf("stats: %+v, want no other log", st)
	}
}
