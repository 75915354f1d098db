package inboxtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
)

// dividedLog is a log of one partition that can be read in sets of keys, which share its offsets.
type dividedLog struct {
	*memorybroker.Subscriber
	divided *atomic.Bool
}

const logSets = 3

func setOfKey(m *postrider.Message) int { return postrider.PartitionOf(m.Key, m.ID, logSets) }

func (l dividedLog) Partitions(ctx context.Context, names ...string) ([]postrider.LogPartition, error) {
	divided := l.divided.Load()
	parts, err := l.Subscriber.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	whole := parts[0]
	var sets []postrider.LogPartition
	for i := range logSets {
		set := whole
		set.Name, set.Number, set.Shared, set.Whole, set.Parts = fmt.Sprint(whole.Name, "/", i), i, true, whole.Name, nil
		whole.Parts = append(whole.Parts, set.Name)
		sets = append(sets, set)
	}
	if parts = sets; !divided {
		parts = []postrider.LogPartition{whole}
	}
	return slices.DeleteFunc(parts, func(p postrider.LogPartition) bool { return len(names) > 0 && !slices.Contains(names, p.Name) }), nil
}

// whole is the name of the only partition of the log.
const whole = topic + "/0"

func (l dividedLog) ReadLog(ctx context.Context, p postrider.LogPartition, after int64) (postrider.LogReader, error) {
	set := p
	p.Name, p.Number = whole, 0
	r, err := l.Subscriber.ReadLog(ctx, p, after)
	if set.Name == whole {
		return r, err
	}
	return setReader{r, set}, err
}

func (l dividedLog) VerifyPosition(ctx context.Context, at postrider.Position) (postrider.PositionState, error) {
	at.Partition = whole
	return l.Subscriber.VerifyPosition(ctx, at)
}

// setReader reads one set.
type setReader struct {
	postrider.LogReader
	set postrider.LogPartition
}

func (r setReader) Read(ctx context.Context, limit, maxBytes int) ([]*postrider.Delivery, error) {
	out, err := r.LogReader.Read(ctx, limit, maxBytes)
	for _, d := range out {
		d.Position.Partition = r.set.Name
		if setOfKey(d.Message) != r.set.Number {
			d.Message = nil
		}
	}
	return out, err
}

// logDivided: a log is divided while processes read it, one of them dies, and later it is whole again. Everything is read once.
//
// size: one history, step by step.
func logDivided[Tx any](w *world[Tx]) {
	if !w.h.Bubble {
		return // partitions are listed every ten seconds
	}
	var divided atomic.Bool
	join := func() *process[Tx] {
		read, err := w.broker.Subscriber(memorybroker.SubscriberConfig{Topics: []string{topic}, Partitions: 1})
		w.must(err, "subscriber")
		return w.start(setting[Tx]{reads: dividedLog{read, &divided}})
	}
	keys := strings.Split("abcdefgh", "")
	order := make(map[string][]string)
	total := 0
	send := func() {
		for _, id := range w.send(append(keys, keys...)...) {
			order[keyOf(id)] = append(order[keyOf(id)], id)
			total++
		}
	}
	settled := func() {
		w.until("every message has its effect", func() bool { return len(w.effects()) >= total })
		w.elapse(2 * time.Second) // the position moves
	}
	processes := []*process[Tx]{join(), join()}
	send()
	settled()
	divided.Store(true)
	send() // some of it is read before the processes notice
	w.elapse(15 * time.Second)
	send()
	settled()
	if a, b := processes[0].Stats().Received, processes[1].Stats().Received; a == 0 || b == 0 {
		w.t.Errorf("processes received %d and %d messages, want that they share the log", a, b)
	}
	processes[0].kill()
	send()
	settled()
	processes = []*process[Tx]{processes[1], join()}
	send()
	settled()
	divided.Store(false)
	send()
	w.elapse(15 * time.Second)
	send()
	settled()
	for _, p := range processes {
		if st := p.Stats(); st.LogsReplaced != 0 || st.Missing != 0 {
			w.t.Errorf("stats: %+v, want no other log", st)
		}
		p.stop()
	}
	for _, again := range []bool{true, false} {
		divided.Store(again)
		p := join() // begins where they ended, whether the log is divided or not
		send()
		settled()
		if st := p.Stats(); st.Received != int64(2*len(keys)) {
			w.t.Errorf("divided %v: %d messages received, want the %d new ones", again, st.Received, 2*len(keys))
		}
		p.stop()
	}
	for _, key := range keys {
		w.want("order of key "+key, w.effectsOf(key), order[key])
	}
}

// likeParts is a log whose partitions have the names that the parts of another log have, such as those of a Kafka topic and of a stream
// with its name.
type likeParts struct{ dividedLog }

func (l likeParts) Partitions(ctx context.Context, names ...string) ([]postrider.LogPartition, error) {
	parts, err := l.dividedLog.Partitions(ctx, names...)
	for i := range parts {
		parts[i].Whole = ""
	}
	return parts, err
}

// logLikeParts: a consumer has read another broker, which called its partitions as a divided log calls its parts. It reads the divided log
// from its beginning, and goes on from there.
func logLikeParts[Tx any](w *world[Tx]) {
	var divided atomic.Bool
	divided.Store(true)
	log := func(b *memorybroker.Broker) dividedLog {
		read, err := b.Subscriber(memorybroker.SubscriberConfig{Topics: []string{topic}, Partitions: 1})
		w.must(err, "subscriber")
		return dividedLog{read, &divided}
	}
	before := w.broker
	after, err := memorybroker.New(memorybroker.Config{})
	w.must(err, "broker")
	keys := strings.Split("abcdefgh", "")
	var want []string
	for _, reads := range []postrider.Subscriber{likeParts{log(before)}, log(after), log(after)} {
		p := w.start(setting[Tx]{reads: reads})
		want = append(want, w.send(keys...)...)
		w.untilEffects(want...)
		p.stop()
		if st := p.Stats(); st.Received != int64(len(keys)) {
			w.t.Errorf("stats %+v, want that only the new messages are read", st)
		}
		w.broker = after
	}
	for _, key := range keys {
		w.want("order of key "+key, w.effectsOf(key), slices.DeleteFunc(slices.Clone(want), func(id string) bool { return keyOf(id) != key }))
	}
}

// logDividedAndReplaced: after a log was divided, or made whole, it is recreated or loses its tail. The positions from before the division
// are those of another log, and nobody goes back to them: what is read again later has been forgotten.
func logDividedAndReplaced[Tx any](w *world[Tx]) {
	if !w.h.Bubble || w.oneWriter() {
		return // IDs are removed once a minute
	}
	for name, replace := range map[string]func(b *memorybroker.Broker){
		"recreated":     func(b *memorybroker.Broker) { b.Recreate(topic) },
		"lost its tail": func(b *memorybroker.Broker) { b.LoseTail(topic, 16) },
	} {
		for _, first := range []bool{false, true} {
			w := newWorld(w.t, w.h)
			var divided atomic.Bool
			divided.Store(first)
			join := func() *process[Tx] {
				read, err := w.broker.Subscriber(memorybroker.SubscriberConfig{Topics: []string{topic}, Partitions: 1})
				w.must(err, "subscriber")
				s := setting[Tx]{reads: dividedLog{read, &divided}}
				s.cfg.KeepIDs = time.Second
				return w.start(s)
			}
			var want []string
			send := func(keys string) {
				want = append(want, w.send(strings.Split(keys, "")...)...)
				w.untilEffects(want...)
				w.elapse(2 * time.Minute) // the positions move, and IDs are removed
			}
			p := join()
			for range 8 { // each position has anchors in what is not lost
				send("abcdefgh")
			}
			divided.Store(!first)
			w.elapse(15 * time.Second)
			replace(w.broker)
			w.elapse(15 * time.Second)
			send("abcd")
			for _, now := range []bool{!first, first, !first} {
				p.stop()
				divided.Store(now)
				p = join()
				send("ab")
				if st := p.Stats(); st.LogsReplaced != 0 || st.Received != 2 {
					w.t.Errorf("%s, first divided %v, now %v: stats %+v, want that only the two new messages are read", name, first, now, st)
				}
			}
			p.stop()
			w.wantSet("effects", w.effects(), want)
		}
	}
}
