package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

// startIt is the advice for a relay without a process. Not every relay is run by this binary: one that delivers to
// handlers in its own program must not publish to a broker.
const startIt = "start the program that runs this relay (postrider relay, if it publishes to a broker)"

// nobodyWorks describes a partition without an owner.
const nobodyWorks = "nobody works on this partition; " + startIt

// turnOf says what happens next to a message that is due, in a partition with this owner.
func turnOf(done, owner string) string {
	if owner == "" {
		return nobodyWorks
	}
	return fmt.Sprintf("it is %s when its turn comes, by %s", done, owner)
}

// event is something that happened to a message.
type event struct {
	at         time.Time
	what, text string
}

// writeSentBack writes how a message was dead-lettered and redriven, in order of time.
func (p *Program) writeSentBack(ctx context.Context, b *backend.Outbox, letters []deadletter.Record) error {
	var events []event
	for _, l := range letters {
		if l.State != deadletter.Redriven {
			continue
		}
		cause, _, _ := strings.Cut(l.Cause, "\n")
		events = append(events, event{l.DiedAt, "died", fmt.Sprintf("dead letter %d, %s after %s: %s", l.Number, l.Reason,
			plural(l.Attempts, "attempt"), shorten(cause, 200))})
		if l.Edits > 0 {
			edits, err := b.ListEdits(ctx, l.Number)
			if err != nil {
				return err
			}
			for _, e := range edits {
				events = append(events, event{e.At, "edited", "by " + e.By + ": " + e.Why})
			}
		}
		by := "by " + l.ResolvedBy
		if l.Redrive != 0 {
			by += fmt.Sprintf(", redrive %d", l.Redrive)
		}
		events = append(events, event{l.ResolvedAt, string(l.State), by})
	}
	if len(events) == 0 {
		return nil
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	fmt.Fprintln(p.Stdout, "died and was sent back")
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, e := range events {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", moment(e.at), e.what, printable(e.text))
	}
	_ = w.Flush() // a closed output shows in the writes that follow
	fmt.Fprint(p.Stdout, "since then: ")
	return nil
}

// explainAlone explains a parked message without a known held key: it waits for its own due time, or its key has more
// messages than were read.
func (p *Program) explainAlone(x explained, m *relay.ParkedInfo, owner string) {
	fmt.Fprintf(p.Stdout, "parked since %s\n", moment(m.ParkedAt))
	f := newFields(p.Stdout)
	f.add("reason", string(m.Reason))
	f.add("attempts", number(m.Attempts))
	switch {
	case m.DueAt.IsZero():
		f.add("next", "it follows the messages of its key that stand before it")
	case m.DueAt.After(x.status.Now):
		next := "an attempt at " + moment(m.DueAt)
		if owner == "" {
			next += "; " + nobodyWorks
		}
		f.add("next", next)
	default:
		f.add("next", "due: "+turnOf("tried", owner))
	}
	f.flush()
	writeHistory(p.Stdout, m.History)
}

// explainSentBack explains a message that was redriven and is not parked.
func (p *Program) explainSentBack(x explained, r relay.RelayStatus) {
	done := "delivered"
	if x.consumers[r.Name] {
		done = "processed"
	}
	fmt.Fprintln(p.Stdout, done)
}

// explainUnknown explains a message that the relay or consumer has not parked and that has no sequence there.
func (p *Program) explainUnknown(x explained, r relay.RelayStatus) {
	switch {
	case !x.consumers[r.Name]:
		fmt.Fprintln(p.Stdout, "nothing is known: the message is not in the log")
	default:
		fmt.Fprintln(p.Stdout, "it reads a broker, not this log; not looked up: whether it has processed the message")
	}
}
