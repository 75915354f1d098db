package sagatest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/saga/internal/machine"
)

// fingerprint describes a state so that equal states have equal fingerprints. Times count from now, and timers from the one that
// is set, since nothing depends on when the instance started.
func (w *world) fingerprint() []byte {
	s := &w.inst.State
	b := fmt.Appendf(nil, "%s %t %t %s %t %d %d %d %d %d %d %s|", w.inst.Run, s.Back, s.Forced, s.Ended, s.Paused, w.dups, w.cancels, w.verbs, w.starts,
		relative(s.Deadline, w), relative(s.Timer.At, w), w.inst.Data)
	if s.Paused {
		b = fmt.Appendf(b, "paused %d|", relative(s.PausedAt, w))
	}
	b = fmt.Appendf(b, "%d %d|", len(s.Items), relative(s.EndedAt, w))
	if s.Parent != nil {
		b = fmt.Appendf(b, "parent %t %s|", s.Parent.Undo, w.answered)
	}
	if s.Cause != nil {
		b = fmt.Appendf(b, "%s %s|", s.Cause.Kind, s.Cause.Step)
	}
	for _, path := range slices.Sorted(maps.Keys(s.Steps)) {
		st := s.Steps[path]
		b = fmt.Appendf(b, "%s %s %t %t %d %d %s %s %t %t %t|", path, st.Status, st.Owed, st.Seen, st.Attempt, relative(st.Due, w), st.SentAs, st.Case,
			st.Skip, st.ByHand, st.Failed)
		for i := range st.Items {
			b = fmt.Appendf(b, "i %s %s|", st.Items[i].ID, st.Items[i].Data)
		}
		if st.Status == machine.StepUnknown {
			b = fmt.Appendf(b, "since %d|", relative(st.Asked, w))
		}
	}
	for _, sig := range s.Signals {
		b = fmt.Appendf(b, "s %s|", sig.ID)
	}
	for _, id := range s.Consumed {
		b = fmt.Appendf(b, "c %s|", id)
	}
	for _, key := range slices.Sorted(maps.Keys(w.records)) {
		r := w.records[key]
		b = fmt.Appendf(b, "%s %s %s %d %d|", key, r.state, r.refusal.Reason, r.done, r.undone)
	}
	b = w.flightprint(b)
	for _, path := range slices.Sorted(maps.Keys(w.byHand)) {
		b = fmt.Appendf(b, "by hand %s %d|", path, w.byHand[path])
	}
	for _, name := range slices.Sorted(maps.Keys(w.sent)) {
		b = fmt.Appendf(b, "%s %d|", name, w.sent[name])
	}
	return b
}

// flightprint adds the messages in flight, in the order of each way.
func (w *world) flightprint(b []byte) []byte {
	queues := make(map[string][]message)
	for _, m := range w.flight {
		queues[m.queue] = append(queues[m.queue], m)
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		for _, m := range queues[name] {
			b = fmt.Appendf(b, "%s %s %s %t %t %t %d", name, m.run, m.sentAs, m.undo, m.seen, m.copied, relative(m.at, w))
			switch m.kind {
			case toTimer:
				b = fmt.Appendf(b, " %t", m.timer == w.inst.State.Timer.ID)
			case toSelf: // participants do not look at the attempt
				b = fmt.Appendf(b, " %d", m.attempt)
			}
			if m.reply != nil {
				b = fmt.Appendf(b, " %s", m.reply.Outcome)
			}
			b = append(b, '|')
		}
	}
	return b
}

// relative is a time as a duration from now; 0 stays 0, which means none.
func relative(at time.Duration, w *world) time.Duration {
	if at == 0 {
		return 0
	}
	return at - w.age
}
