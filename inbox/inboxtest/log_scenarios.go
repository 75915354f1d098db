package inboxtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

func logScenarios[Tx any]() []scenario[Tx] {
	return []scenario[Tx]{
		{"LogThatLostItsTailIsReadFromWhereItIsTheSame", logLostTail[Tx]},
		{"LogThatLosesItsTailAsItIsOpened", logLostWhileOpened[Tx]},
		{"LogThatGrowsWhileItIsComparedIsTheSame", logGrows[Tx]},
		{"PartitionsThatComeLaterAreRead", logGetsPartitions[Tx]},
		{"DividedLogIsReadOnceInOrder", logDivided[Tx]},
		{"PartsNamedAsPartitionsOfAnotherLogAreRead", logLikeParts[Tx]},
		{"DividedLogThatIsReplacedIsReadOnce", logDividedAndReplaced[Tx]},
		{"RecreatedLogIsReadFromItsBeginning", logRecreated[Tx]},
		{"RetentionBelowThePositionIsReported", logExpired[Tx]},
		{"RetentionDuringReadingIsReported", logExpiredWhileReading[Tx]},
		{"RetentionOfWhatOthersReadIsNotReported", logOfOthersExpired[Tx]},
		{"ProcessThatDiesIsReplaced", logTakenOver[Tx]},
		{"TakeoverTakesTheLeaseAndASecond", logTakeoverInTime[Tx]},
		{"ProcessWithoutItsLeaseCommitsNothing", logFenced[Tx]},
		{"ProcessesShareTheLog", logShared[Tx]},
		{"SlowHandlersOfKeysRunAtOnce", logSlowHandlers[Tx]},
		{"FailedMessageDoesNotStopThePosition", logFailureMovesOn[Tx]},
		{"OpenMessageStopsThePosition", logOpenStops[Tx]},
		{"IDsBeyondThePositionAreKept", logKeepsIDs[Tx]},
		{"StopStoresThePosition", logStopStores[Tx]},
		{"ConsumerByWatermarkGoesOnFromThere", logFromWatermark[Tx]},
		{"ConsumerByIDKnowsWhatItHasProcessed", logFromIDs[Tx]},
	}
}

// logSetting reads a log of one partition.
func logSetting[Tx any]() setting[Tx] {
	s := setting[Tx]{log: true}
	s.source.Partitions = 1
	return s
}

// position is the consumer's position in the only partition of its log.
func (w *world[Tx]) position() store.LogPosition {
	w.t.Helper()
	all, err := w.store.LogPositions(w.ctx, consumer)
	w.must(err, "read the positions")
	if len(all) != 1 {
		w.t.Fatalf("positions: %+v, want one", all)
	}
	return all[0]
}

// logLostTail: the broker loses messages that were processed, and reuses their offsets. The consumer runs meanwhile or starts after
// it, and notices it before the new log has reached its position, at it, or beyond it.
func logLostTail[Tx any](w *world[Tx]) {
	for _, restart := range []bool{false, true} {
		for _, added := range []int{2, 5, 9} {
			w := newWorld(w.t, w.h)
			s := logSetting[Tx]()
			p := w.start(s)
			want := w.send("a", "b", "a", "b", "a", "b", "a", "b", "a", "b")
			w.untilEffects(want...)
			w.untilQuiet()
			if restart {
				p.stop()
			}
			w.broker.LoseTail(topic, 5)
			for range added {
				want = append(want, w.send("a")...)
			}
			if restart {
				p = w.start(s)
			}
			w.untilEffects(want...)
			w.untilQuiet()
			w.wantSet("effects", w.effects(), want)
			if st := p.Stats(); st.LogsReplaced != 1 {
				w.t.Errorf("%d logs replaced, want 1", st.LogsReplaced)
			}
			if at := w.position(); at.Replaced != 1 || at.Missing != 0 || at.Offset != int64(4+added) {
				w.t.Errorf("position %+v, want offset %d and that the log was replaced once", at, 4+added)
			}
			p.stop()
		}
	}
}

func logRecreated[Tx any](w *world[Tx]) {
	for _, restart := range []bool{false, true} {
		w := newWorld(w.t, w.h)
		s := logSetting[Tx]()
		p := w.start(s)
		want := w.send("a", "b", "a")
		w.untilEffects(want...)
		w.untilQuiet()
		if restart {
			p.stop()
		}
		w.broker.Recreate(topic)
		want = append(want, w.send("a", "b", "a", "b", "a")...)
		if restart {
			p = w.start(s)
		}
		w.untilEffects(want...)
		w.untilQuiet()
		if st := p.Stats(); st.LogsReplaced != 1 || st.Duplicates != 0 {
			w.t.Errorf("%d logs replaced, %d duplicates, want 1 and none", st.LogsReplaced, st.Duplicates)
		}
		p.stop()
	}
}

// logExpired: retention removes messages that the consumer, which is away, has not read.
func logExpired[Tx any](w *world[Tx]) {
	s := logSetting[Tx]()
	p := w.start(s)
	want := w.send("a", "b")
	w.untilEffects(want...)
	w.untilQuiet()
	p.stop()
	want = append(want, w.send("a", "b", "a", "b", "a", "b")[4:]...)
	w.broker.Expire(topic, 6)
	p = w.start(s)
	w.untilEffects(want...)
	w.untilQuiet()
	if st := p.Stats(); st.Missing != 4 || st.LogsReplaced != 0 {
		w.t.Errorf("stats: %+v, want 4 missing", st)
	}
	if at := w.position(); at.Missing != 4 || at.MissingFrom != 2 || at.MissingTo != 5 {
		w.t.Errorf("position %+v, want that 2 to 5 are missing", at)
	}
	p.stop()
	p = w.start(s)
	w.untilEffects(append(want, w.send("a")...)...)
	w.untilQuiet()
	if st := p.Stats(); st.Missing != 0 {
		w.t.Errorf("%d are missing again", st.Missing)
	}
}

// logExpiredWhileReading: retention overtakes a consumer that is busy.
func logExpiredWhileReading[Tx any](w *world[Tx]) {
	s := logSetting[Tx]()
	s.cfg.MaxInFlight, s.cfg.Batch = 2, 1
	begun, release := make(chan struct{}, 100), make(chan struct{})
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		begun <- struct{}{}
		<-release
		return w.effect(ctx, tx, m)
	}
	var keys []string
	for range 40 {
		keys = append(keys, "a")
	}
	all := w.send(keys...)
	p := w.start(s)
	<-begun
	w.elapse(50 * time.Millisecond) // it reads ahead what it may
	w.broker.Expire(topic, 30)
	close(release)
	w.until("the end", func() bool { return len(w.unsettled()) == 0 })
	st := p.Stats()
	if st.Missing == 0 || int(st.Missing+st.Applied) != len(all) {
		w.t.Errorf("%d applied and %d missing of %d", st.Applied, st.Missing, len(all))
	}
}

func logTakenOver[Tx any](w *world[Tx]) {
	s := logSetting[Tx]()
	s.source.Partitions = 4
	p := w.start(s)
	var want []string
	for range 5 {
		want = append(want, w.send("a", "b", "c", "d", "")...)
		w.untilEffects(want...)
		p.kill()
		want = append(want, w.send("a", "b", "c", "d")...)
		p = w.start(s)
	}
	w.untilEffects(want...)
	w.untilQuiet()
	for _, key := range []string{"a", "b", "c", "d"} {
		var of []string
		for _, id := range want {
			if keyOf(id) == key {
				of = append(of, id)
			}
		}
		w.want("order of key "+key, w.effectsOf(key), of)
	}
}

// logTakeoverInTime: with the default lease, another process has read on a second after the lease of one that died has ended.
func logTakeoverInTime[Tx any](w *world[Tx]) {
	if !w.h.Bubble {
		return // it takes real leases
	}
	s := logSetting[Tx]()
	s.source.Partitions, s.cfg.LeaseTTL = 4, 15*time.Second
	processes := []*process[Tx]{w.start(s), w.start(s)}
	var want []string
	for round := range 10 {
		w.elapse(time.Minute + time.Duration(round)*137*time.Millisecond)
		want = append(want, w.send("a", "b", "c", "d", "")...)
		w.untilEffects(want...)
		processes[0].kill()
		began := time.Now()
		want = append(want, w.send("a", "b", "c", "d", "")...)
		w.untilEffects(want...)
		if took := time.Since(began); took > 16*time.Second {
			w.t.Errorf("takeover after %s, want 16 s at most", took)
		}
		processes = append(processes[1:], w.start(s))
	}
}

// logFenced: the lease of a process goes to another while its handler runs.
func logFenced[Tx any](w *world[Tx]) {
	if w.oneWriter() {
		return // the transaction of the one keeps the other from taking the lease
	}
	var cut atomic.Bool
	begun, release := make(chan struct{}, 10), make(chan struct{})
	s := logSetting[Tx]()
	s.fault = func(op string, _ bool) error {
		if cut.Load() && (op == "Heartbeat" || op == "Acquire") {
			return errCut
		}
		return nil
	}
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		begun <- struct{}{}
		<-release // whatever becomes of ctx
		return w.effect(context.WithoutCancel(ctx), tx, m)
	}
	s.cfg.StopTimeout = time.Millisecond
	p := w.build(s)
	go func() { p.done <- p.Run(w.ctx) }()
	want := w.send("a", "a")
	<-begun
	cut.Store(true)
	first := make(map[string]bool)
	for _, o := range w.status().Owners {
		first[o.ID] = true
	}
	w.start(logSetting[Tx]())
	w.until("the other holds the lease", func() bool {
		for _, part := range w.status().Partitions {
			if part.Owner == "" || first[part.Owner] || part.LeaseLeft <= 0 {
				return false
			}
		}
		return true
	})
	close(release)
	w.untilEffects(want...)
	w.untilQuiet()
	w.want("order", w.effectsOf("a"), want)
	if st := p.Stats(); st.Applied != 0 {
		w.t.Errorf("the process without a lease has applied %d messages", st.Applied)
	}
	p.kill()
}

// logShared: processes join and leave under load.
func logShared[Tx any](w *world[Tx]) {
	s := logSetting[Tx]()
	s.source.Partitions, s.cfg.LeaseTTL = 4, w.keptLease()
	if w.h.Bubble {
		s.cfg.LeaseTTL = 10 * bubbleLease
	}
	var want []string
	var mu sync.Mutex
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				mu.Lock()
				want = append(want, w.send("a", "b", "c", "d", "")...)
				mu.Unlock()
			}
		}
	})
	processes := []*process[Tx]{w.start(s)}
	for range 3 {
		w.elapse(300 * time.Millisecond)
		processes = append(processes, w.start(s))
		w.elapse(300 * time.Millisecond)
		processes[0].stop()
		processes = processes[1:]
	}
	close(stop)
	load.Wait()
	w.untilEffects(want...)
	w.untilQuiet()
	for _, key := range []string{"a", "b", "c", "d"} {
		var of []string
		for _, id := range want {
			if keyOf(id) == key {
				of = append(of, id)
			}
		}
		w.want("order of key "+key, w.effectsOf(key), of)
	}
}

func logFailureMovesOn[Tx any](w *world[Tx]) {
	s := logSetting[Tx]()
	s.cfg.MaxAttempts = 1000
	var healed atomic.Bool
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if m.Key == "a" && !healed.Load() {
			return errBoom
		}
		return w.effect(ctx, tx, m)
	}
	w.start(s)
	want := w.send("a", "b", "a", "", "a")
	w.until("the position is at the end", func() bool { return len(w.unsettled()) == 0 })
	w.wantSet("effects while one key fails", w.effects(), []string{want[1], want[3]})
	healed.Store(true)
	w.untilEffects(want...)
	w.untilQuiet()
	w.want("order", w.effectsOf("a"), []string{want[0], want[2], want[4]})
}

// logOpenStops: what was processed beyond an open message is not processed again after a crash.
func logOpenStops[Tx any](w *world[Tx]) {
	if w.oneWriter() {
		return
	}
	s, release := logSetting[Tx](), make(chan struct{})
	defer close(release)
	s.cfg.Batch = 1
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if m.Key == "slow" {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		return w.effect(ctx, tx, m)
	}
	p := w.start(s)
	want := w.send("a", "slow", "a", "b", "", "a")
	w.until("all but one", func() bool { return len(w.effects()) == 5 })
	w.until("the position is before the open one", func() bool {
		all, err := w.store.LogPositions(w.ctx, consumer)
		return err == nil && len(all) == 1 && all[0].Offset == 0
	})
	p.kill()
	q := w.start(logSetting[Tx]())
	w.untilEffects(want...)
	w.untilQuiet()
	w.until("duplicates are counted", func() bool { return q.Stats().Duplicates == 4 })
	w.wantSet("effects", w.effects(), want)
}

func logStopStores[Tx any](w *world[Tx]) {
	s := logSetting[Tx]()
	for round := range 3 {
		p := w.start(s)
		w.untilEffects(append(w.effects(), w.send("a", "b", "")...)...)
		p.stop()
		if left := w.unsettled(); len(left) > 0 {
			w.t.Errorf("after stop %d, these are read again: %v", round, left)
		}
		if st := p.Stats(); st.Duplicates > 0 {
			w.t.Error(fmt.Sprint("duplicates: ", st.Duplicates))
		}
	}
}
