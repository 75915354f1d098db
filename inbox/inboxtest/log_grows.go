package inboxtest

import (
	"context"
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

func (l growingLog) Partitions(ctx context.Context) ([]postrider.LogPartition, error) {
	out, err := l.Subscriber.Partitions(ctx)
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
	if st := p.Stats(); st.LogsReplaced != 0 || st.Duplicates != 0 || sent.Load() == 0 {
		w.t.Errorf("%d messages came in between; stats: %+v, want no other log", sent.Load(), st)
	}
}
