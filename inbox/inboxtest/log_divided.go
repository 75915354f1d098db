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
		set.Name, set.Number, set.Shared, set.Before = fmt.Sprint(whole.Name, "/", i), i, true, []string{whole.Name}
		whole.Before = append(whole.Before, set.Name)
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
