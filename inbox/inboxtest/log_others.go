package inboxtest

import (
	"context"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
)

// othersKey is the key of messages that othersLog leaves out.
const othersKey = "others"

// othersLog is a log that shares its partition with messages for others, such as a stream of which some topics are read.
type othersLog struct{ *memorybroker.Subscriber }

func (l othersLog) ReadLog(ctx context.Context, p postrider.LogPartition, after int64) (postrider.LogReader, error) {
	r, err := l.Subscriber.ReadLog(ctx, p, after)
	return othersReader{r}, err
}

type othersReader struct{ postrider.LogReader }

// Read implements postrider.LogReader.
func (r othersReader) Read(ctx context.Context, limit, maxBytes int) (out []*postrider.Delivery, err error) {
	got, err := r.LogReader.Read(ctx, limit, maxBytes)
	for i, d := range got {
		if d.Message.Key == othersKey {
			d.Message = nil
			if i+1 < len(got) && got[i+1].Message.Key == othersKey {
				continue // the last one says it for all
			}
		}
		out = append(out, d)
	}
	return out, err
}

// logOfOthersExpired: the position passes messages for others, so their removal is no loss.
func logOfOthersExpired[Tx any](w *world[Tx]) {
	read, err := w.broker.Subscriber(memorybroker.SubscriberConfig{Topics: []string{topic}})
	w.must(err, "subscriber")
	s := logSetting[Tx]()
	s.reads, s.log = othersLog{read}, true
	untilQuietAt := func(offset int64) {
		w.t.Helper()
		w.untilQuiet()
		if at := w.position(); at.Offset != offset {
			w.t.Errorf("position %+v, want offset %d", at, offset)
		}
	}
	want := w.send("a", othersKey, othersKey, "b", othersKey, othersKey, othersKey)
	want = []string{want[0], want[3]}
	p := w.start(s)
	w.untilEffects(want...)
	untilQuietAt(6)
	w.send(othersKey, othersKey)
	untilQuietAt(8)
	w.broker.Expire(topic, 9)
	for range 2 { // the second time after a restart
		want = append(want, w.send("a")...)
		w.untilEffects(want...)
		w.untilQuiet()
		if st := p.Stats(); st.Missing != 0 || st.LogsReplaced != 0 || st.Duplicates != 0 {
			w.t.Errorf("stats: %+v, want that nothing is missing", st)
		}
		p.stop()
		p = w.start(s)
	}
}
