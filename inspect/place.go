package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// place says what one relay or consumer has done with the message.
func (l *located) place(ctx context.Context, r store.RelayStatus) (Place, error) {
	p := Place{Name: r.Name, Kind: r.Kind, Paused: r.Paused, Recorded: l.recorded(r.Name)}
	own := slices.DeleteFunc(slices.Clone(l.dead), func(d store.DeadLetter) bool { return d.Relay != r.Name })
	partition := partitionOf(r, l.partition())
	if partition != nil {
		p.Owner = partition.Owner
	}
	p.Down = outage(r, l.status.Now)
	var err error
	if p.Redrives, err = l.redrives(ctx, own); err != nil {
		return p, err
	}
	for _, d := range slices.Backward(own) { // the newest counts
		if d.State != store.DeadRedriven {
			return p, l.died(ctx, &p, d)
		}
	}
	if _, ok := l.parked[r.Name]; !ok && len(own) > 0 { // it may have been redriven since it was looked up
		if err := l.findParked(ctx, r.Name, l.message.ID); err != nil {
			return p, err
		}
	}
	parked, isParked := l.parked[r.Name]
	switch {
	case isParked:
		return p, l.isParked(ctx, &p, parked)
	case len(own) > 0:
		p.State, p.Next = Delivered, Next{Code: NextNothing, Text: "nothing: " + done(p.Kind)}
	case p.Kind == store.KindConsumer:
		p.State, p.Next = Unknown, Next{Code: NextUnknown, Text: "it reads a broker, not this log; whether it has processed the message is not checked"}
	case l.message.Sequence == 0:
		p.State, p.Next = Unknown, Next{Code: NextUnknown, Text: "nothing is known: the message is not in the log"}
	case partition == nil:
		p.State = NotBegun
		p.Next = Next{Code: NextProcess, Text: fmt.Sprintf("it has not begun with partition %d yet", l.partition())}
		p.Actions = []Action{{Kind: ActionStart, Relay: p.Name}}
	default:
		return p, l.byPosition(ctx, &p, r.Topics, partition)
	}
	return p, nil
}

// done is the word for a message that needs nothing more.
func done(k store.Kind) string {
	if k == store.KindConsumer {
		return "processed"
	}
	return "delivered"
}

// byPosition explains a message by the cursor of its partition and by the topics that the relay takes now.
func (l *located) byPosition(ctx context.Context, p *Place, topics []string, q *store.PartitionStatus) (err error) {
	takes := len(topics) == 0 || store.MatchTopics(topics, l.message.Topic)
	switch {
	case !takes:
		p.State, p.Topics, p.Next = NotTaken, topics, Next{Code: NextNothing, Text: "nothing: the relay skips it"}
	case l.message.Sequence <= q.Position:
		p.State, p.Next = DeliveredOrSkipped, Next{Code: NextNothing, Text: "nothing: the relay has passed it"}
		p.Passed, err = l.passed(ctx, p.Name, q)
	default:
		p.State, p.Since = Waiting, l.message.CreatedAt
		p.Ahead = &Ahead{N: max(q.Backlog.N-1, 0), AtLeast: q.Backlog.AtLeast, AtMost: !q.Backlog.AtLeast}
		p.await(Next{Code: NextDelivery}, "", "delivered")
	}
	return err
}

// passed says when the cursor of a relay's partition passed the message; nil if the relay began after it.
func (l *located) passed(ctx context.Context, name string, q *store.PartitionStatus) (*Passed, error) {
	if q.Settlements == 0 {
		return nil, nil
	}
	out := &Passed{After: l.message.CreatedAt, Before: l.status.Now.Add(-q.SettledAgo)}
	op := store.Operation{Method: "Explain", Doing: "find out when relay " + name + " passed the message"}
	err := l.store.View(ctx, op, func(r store.Reader) error {
		at, note, err := stored.FindPassed(ctx, r, name, q.Partition, l.message.Sequence, l.message.CreatedAt)
		if !at.IsZero() && at.Before(out.Before) {
			out.Before = at
		}
		if note != nil {
			out.By = note.By
			if note.Since.After(out.After) {
				out.After = note.Since
			}
		}
		return err
	})
	return out, err
}

// redrives says how a message was dead-lettered and redriven, in order of time.
func (l *located) redrives(ctx context.Context, own []store.DeadLetter) (events []Event, err error) {
	for _, d := range own {
		if d.State != store.DeadRedriven {
			continue
		}
		events = append(events, Event{
			At: d.DiedAt, Kind: EventDied, DeadLetter: d.Number, Reason: d.Reason, Cause: d.Cause, Attempts: d.Attempts,
		})
		if d.Edits > 0 {
			edits, err := deadletter.New(l.store).ListEdits(ctx, d.Number)
			if err != nil {
				return nil, err
			}
			for _, e := range edits {
				events = append(events, Event{At: e.At, Kind: EventEdited, DeadLetter: d.Number, By: e.By, Why: e.Why})
			}
		}
		events = append(events, Event{At: d.ResolvedAt, Kind: EventRedriven, DeadLetter: d.Number, By: d.ResolvedBy, Redrive: d.Redrive})
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	return events, nil
}

// died explains a message that is a dead letter.
func (l *located) died(ctx context.Context, p *Place, d store.DeadLetter) error {
	p.State, p.Since = Dead, d.DiedAt
	p.Reason, p.Cause, p.Attempts, p.History = d.Reason, d.Cause, d.Attempts, d.History
	p.DeadLetter = &DeadLetter{
		Number: d.Number, DiedAt: d.DiedAt, Edits: d.Edits, ResolvedAt: d.ResolvedAt, ResolvedBy: d.ResolvedBy, Resolution: d.Resolution,
	}
	if d.State == store.DeadDiscarded {
		p.State, p.Since = Discarded, d.ResolvedAt
		p.Next = Next{Code: NextNothing, Text: "nothing: it was discarded"}
		return nil
	}
	p.Next = Next{Code: NextDecision, Text: "nothing happens by itself"}
	p.Actions = []Action{
		{Kind: ActionRedrive, Relay: p.Name, DeadLetter: d.Number}, {Kind: ActionDiscard, Relay: p.Name, DeadLetter: d.Number},
	}
	if d.Message.Key == "" {
		return nil
	}
	h, _, err := held.New(l.store).ShowHeld(ctx, p.Name, d.Message.Key, 1)
	if err == nil && h.NextAttempt.IsZero() && h.Sequence == d.Message.Sequence {
		p.HeldKey, p.DeadLetter.HoldsKey = heldKeyOf(h), true
		p.Next.Text = "nothing happens by itself, and its key is held until somebody decides"
	}
	return unlessNotHeld(err)
}

// unlessNotHeld returns an error, or nil if it says that the key is not held.
func unlessNotHeld(err error) error {
	if errors.Is(err, store.ErrNotHeld) {
		return nil
	}
	return err
}

// isParked explains a parked message.
func (l *located) isParked(ctx context.Context, p *Place, m store.ParkedInfo) error {
	p.State, p.Since = Parked, m.ParkedAt
	p.Reason, p.Attempts, p.History = string(m.Reason), m.Attempts, m.History
	p.Cause = m.Cause()
	if !m.DueAt.IsZero() {
		for _, kind := range []ActionKind{ActionRetry, ActionSkip, ActionDeadLetter} {
			p.Actions = append(p.Actions, Action{Kind: kind, Relay: p.Name, MessageID: m.Message.ID})
		}
		p.until(m.DueAt, l.status.Now)
		return nil
	}
	h, before, err := held.New(l.store).ShowHeld(ctx, p.Name, m.Message.Key, maxAhead)
	if err != nil {
		p.State, p.Next = Queued, Next{Code: NextTurn, Text: "it follows the messages of its key that precede it"}
		return unlessNotHeld(err)
	}
	l.inHeldKey(p, m, h, before)
	return nil
}

// maxAhead is how many parked messages of a key are read to count those ahead of another.
const maxAhead = 1000

// inHeldKey explains a parked message of a held key, of which the first messages are given.
func (l *located) inHeldKey(p *Place, m store.ParkedInfo, h store.HeldInfo, first []store.ParkedInfo) {
	p.HeldKey = heldKeyOf(h)
	ahead := slices.IndexFunc(first, func(q store.ParkedInfo) bool { return q.Message.Sequence == m.Message.Sequence })
	p.Actions = heldActions(h)
	switch {
	case ahead == 0 && !h.NextAttempt.IsZero():
		p.State, p.Since, p.Cause, p.Attempts = Blocking, h.Since, h.Cause, h.Attempts
		p.until(h.NextAttempt, l.status.Now)
		return
	case ahead < 0:
		p.Ahead = &Ahead{N: int64(len(first)), AtLeast: true}
	default:
		p.Ahead = &Ahead{N: int64(ahead)}
	}
	p.State, p.Next = Queued, Next{Code: NextTurn, Text: "it follows the messages ahead of it"}
	if h.NextAttempt.IsZero() {
		p.Next = Next{Code: NextDecision, Text: undecided}
		return
	}
	p.await(p.Next, p.Next.Text, "")
}

// undecided says what happens to a key whose blocking message is a dead letter.
const undecided = "nothing until somebody decides about the dead letter that holds the key"

// until says that the message is tried at a time.
func (p *Place) until(at, now time.Time) {
	if at.After(now) {
		p.await(Next{Code: NextAttempt, At: at}, "an attempt at "+at.UTC().Format("2006-01-02T15:04:05.000Z"), "")
		return
	}
	p.await(Next{Code: NextAttempt, At: at}, due, "tried")
}

// due is the text for a message whose time has come.
const due = "due"

// await sets what happens next: what next says while a process works on the partition, nothing otherwise. The text is
// completed by who does it; done is what is done when the message's turn comes, empty if the text says enough.
func (p *Place) await(next Next, text, done string) {
	who := ""
	switch {
	case p.Paused != nil:
		p.paused()
		return
	case p.Owner == "":
		next.Code, who = NextProcess, nobody
		p.Actions = append(p.Actions, Action{Kind: ActionStart, Relay: p.Name})
	case p.Down != nil:
		p.down()
		return
	case done != "":
		who = fmt.Sprintf("it is %s when its turn comes, by %s", done, p.Owner)
	}
	separator := "; "
	if text == due {
		separator = ": "
	}
	next.Text = text + separator + who
	if text == "" || who == "" {
		next.Text = text + who
	}
	p.Next = next
}

// paused sets what happens next while the relay is paused.
func (p *Place) paused() {
	until := ""
	if at := p.Paused.Until; !at.IsZero() {
		until = ", or until " + at.UTC().Format(time.RFC3339)
	}
	p.Next = Next{
		Code: NextDecision, At: p.Paused.Until,
		Text: fmt.Sprintf("nothing until %s is resumed%s; %s paused it: %s", p.Name, until, p.Paused.By, p.Paused.Reason),
	}
	p.Actions = append(p.Actions, Action{Kind: ActionResume, Relay: p.Name})
}

// outage describes the destination of a relay that is down, as of now; nil for all others.
func outage(r store.RelayStatus, now time.Time) *Outage {
	d := r.DestinationOf()
	if d.State != store.DestinationDown {
		return nil
	}
	return &Outage{Since: now.Add(-d.For), Cause: d.Error, NextTry: now.Add(max(d.NextTry, 0))}
}

// down sets what happens next while the destination does not answer. The cause stays in Down alone, where whoever may not see it hides it.
func (p *Place) down() {
	p.Next = Next{
		Code: NextAnswer, At: p.Down.NextTry,
		Text: fmt.Sprintf("nothing until the destination answers, which is down since %s; it is tried at %s",
			p.Down.Since.UTC().Format(time.RFC3339), p.Down.NextTry.UTC().Format(time.RFC3339)),
	}
}

// nobody describes a partition without an owner.
const nobody = "nobody works on this partition"

func heldKeyOf(h store.HeldInfo) *HeldKey {
	return &HeldKey{
		Key: h.Key, Since: h.Since, Reason: string(h.Reason), Cause: h.Cause, Attempts: h.Attempts, NextAttempt: h.NextAttempt, Parked: h.Parked,
	}
}

// heldActions are the decisions that apply to a held key.
func heldActions(h store.HeldInfo) []Action {
	skip := Action{Kind: ActionSkip, Relay: h.Relay, Key: h.Key, MessageID: h.MessageID}
	if h.NextAttempt.IsZero() {
		return []Action{{Kind: ActionRedrive, Relay: h.Relay, Key: h.Key}, {Kind: ActionDiscard, Relay: h.Relay, Key: h.Key}, skip}
	}
	return []Action{
		{Kind: ActionRetry, Relay: h.Relay, Key: h.Key}, skip,
		{Kind: ActionDeadLetter, Relay: h.Relay, Key: h.Key, MessageID: h.MessageID},
	}
}
