package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/postrider/postrider/inspect"
)

// writePlace writes where a message is for a relay or consumer.
func (p *Program) writePlace(m *inspect.MessageInfo, place inspect.Place) {
	p.writeRedrives(place.Redrives)
	switch place.State {
	case inspect.Waiting:
		ahead := plural(place.Ahead.N, "message")
		if place.Ahead.AtMost {
			ahead = "at most " + ahead
		} else {
			ahead = number(place.Ahead.N) + "+ messages"
		}
		fmt.Fprintf(p.Stdout, "waits in the log for its first delivery, %s ahead of it in partition %d\n", ahead, m.Partition)
		p.writeNext(place)
	case inspect.DeliveredOrSkipped:
		fmt.Fprintf(p.Stdout, "delivered, or skipped by the topics that the relay took then: the cursor of partition %d is past it\n", m.Partition)
	case inspect.NotTaken:
		fmt.Fprintf(p.Stdout, "does not take topic %s, only %s\n", printable(m.Topic), printable(strings.Join(place.Topics, ", ")))
	case inspect.NotBegun:
		fmt.Fprintf(p.Stdout, "has not begun with partition %d yet\n", m.Partition)
	case inspect.Delivered:
		if place.Kind == inspect.KindConsumer {
			fmt.Fprintln(p.Stdout, "processed")
		} else {
			fmt.Fprintln(p.Stdout, "delivered")
		}
	case inspect.Dead, inspect.Discarded:
		p.writeDead(place)
	case inspect.Blocking, inspect.Queued, inspect.Parked:
		p.writeParked(place)
	default:
		fmt.Fprintln(p.Stdout, place.Next.Text)
	}
}

// writeRedrives writes how a message was dead-lettered and redriven.
func (p *Program) writeRedrives(events []inspect.Event) {
	if len(events) == 0 {
		return
	}
	fmt.Fprintln(p.Stdout, "died and was sent back")
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, e := range events {
		text := "by " + e.By
		switch {
		case e.Kind == inspect.EventDied:
			cause, _, _ := strings.Cut(e.Cause, "\n")
			text = fmt.Sprintf("dead letter %d, %s after %s: %s", e.DeadLetter, e.Reason, plural(e.Attempts, "attempt"), shorten(cause, 200))
		case e.Kind == inspect.EventEdited:
			text += ": " + e.Why
		case e.Redrive != 0:
			text += fmt.Sprintf(", redrive %d", e.Redrive)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", moment(e.At), e.Kind, printable(text))
	}
	_ = w.Flush() // a closed output shows in the writes that follow
	fmt.Fprint(p.Stdout, "since then: ")
}

// writeDead writes about a message that is a dead letter.
func (p *Program) writeDead(place inspect.Place) {
	d, state := place.DeadLetter, "open"
	if place.State == inspect.Discarded {
		state = "discarded"
	}
	fmt.Fprintf(p.Stdout, "dead letter %d, %s\n", d.Number, state)
	f := newFields(p.Stdout)
	f.add("died", moment(d.DiedAt))
	f.add("reason", place.Reason)
	f.add("cause", place.Cause)
	f.add("attempts", number(place.Attempts))
	if d.Edits > 0 {
		f.add("edited", fmt.Sprintf("%s, see: postrider dead show %d", plural(d.Edits, "time"), d.Number))
	}
	if place.State == inspect.Discarded {
		f.add("discarded", strings.TrimSpace(moment(d.ResolvedAt)+" by "+d.ResolvedBy+" "+d.Resolution))
	} else {
		f.add("next", place.Next.Text)
		f.add("you can", decisionsOf(place))
	}
	f.flush()
	writeHistory(p.Stdout, place.History)
}

// writeParked writes about a parked message.
func (p *Program) writeParked(place inspect.Place) {
	switch {
	case place.State == inspect.Blocking:
		fmt.Fprintf(p.Stdout, "blocks its held key since %s\n", moment(place.Since))
	case place.State == inspect.Parked || place.Ahead == nil:
		fmt.Fprintf(p.Stdout, "parked since %s\n", moment(place.Since))
	case place.Ahead.AtLeast:
		fmt.Fprintf(p.Stdout, "queued in its held key since %s, more than %s ahead of it\n", moment(place.Since), plural(place.Ahead.N, "message"))
	default:
		fmt.Fprintf(p.Stdout, "queued in its held key since %s, %s ahead of it\n", moment(place.Since), plural(place.Ahead.N, "message"))
	}
	if place.HeldKey != nil {
		p.writeHeldKey(place)
	} else {
		f := newFields(p.Stdout)
		f.add("reason", place.Reason)
		f.add("attempts", number(place.Attempts))
		f.add("next", nextOf(place))
		f.flush()
	}
	if place.State != inspect.Queued {
		writeHistory(p.Stdout, place.History)
	}
}

// writeHeldKey writes why a key is held and what happens next.
func (p *Program) writeHeldKey(place inspect.Place) {
	h := place.HeldKey
	f := newFields(p.Stdout)
	f.add("reason", h.Reason)
	f.add("cause", h.Cause)
	f.add("attempts", number(h.Attempts))
	f.add("next", nextOf(place))
	f.add("you can", decisionsOf(place))
	f.flush()
}

func (p *Program) writeNext(place inspect.Place) {
	f := newFields(p.Stdout)
	f.add("next", nextOf(place))
	f.flush()
}

// writeKey writes what blocks a key.
func (p *Program) writeKey(e inspect.Explanation) {
	fmt.Fprintf(p.Stdout, "key %s: partition %d\n", printable(e.Key.Key), e.Key.Partition)
	for _, place := range e.Places {
		fmt.Fprintf(p.Stdout, "\n%s: ", titleOf(place))
		switch {
		case place.State == inspect.Held:
			fmt.Fprintf(p.Stdout, "held since %s, %s parked\n", moment(place.Since), plural(place.HeldKey.Parked, "message"))
			p.writeHeldKey(place)
		case place.State == inspect.NotBegun:
			fmt.Fprintf(p.Stdout, "has not begun with partition %d yet\n", e.Key.Partition)
		case place.Kind == inspect.KindConsumer:
			fmt.Fprintf(p.Stdout, "not held; %s\n", place.Next.Text)
		default:
			owner := place.Owner + " works on it"
			if place.Owner == "" {
				owner = "nobody works on it; " + startIt
			}
			fmt.Fprintf(p.Stdout, "not held; its partition has a backlog of %s, age %s; %s\n", count(place.Load.Backlog),
				ago(seconds(place.Load.BacklogAgeSeconds)), printable(owner))
		}
		if dead := place.Load.Dead.N; dead > 0 {
			fmt.Fprintf(p.Stdout, "  %s of this key: postrider dead list --relay %s --key %s\n",
				plural(dead, "open dead letter"), shellQuote(place.Name), shellQuote(e.Key.Key))
		}
	}
}

// writeRelay writes how a relay or consumer is doing.
func (p *Program) writeRelay(place inspect.Place) {
	fmt.Fprintf(p.Stdout, "%s: %s\n", titleOf(place), place.State)
	f := newFields(p.Stdout)
	f.add("topics", strings.Join(place.Topics, ", "))
	if place.Kind == inspect.KindRelay {
		f.add("backlog", fmt.Sprintf("%s, age %s", count(place.Load.Backlog), ago(seconds(place.Load.BacklogAgeSeconds))))
	}
	f.add("parked", fmt.Sprintf("%s, oldest %s", count(place.Load.Parked), ago(seconds(place.Load.OldestParkedSeconds))))
	f.add("held keys", count(place.Load.Held))
	f.add("dead letters", count(place.Load.Dead))
	f.add("processes", number(place.Load.Processes))
	f.add("next", nextOf(place))
	f.flush()
}
