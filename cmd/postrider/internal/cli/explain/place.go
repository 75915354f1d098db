package explain

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/status"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
)

// writePlace writes where a message is for a relay or consumer.
func (p commands) writePlace(m *inspect.MessageInfo, place inspect.Place) {
	p.writeRedrives(place.Redrives)
	switch place.State {
	case inspect.Waiting:
		ahead := "first"
		switch {
		case !place.Ahead.AtMost:
			ahead = output.Number(place.Ahead.N) + "+ messages ahead of it"
		case place.Ahead.N > 0:
			ahead = "at most " + output.Plural(place.Ahead.N, "message") + " ahead of it"
		}
		fmt.Fprintf(p.Stdout, "waits in the log for its first delivery, %s in partition %d\n", ahead, m.Partition)
		p.writeNext(place)
	case inspect.DeliveredOrSkipped:
		fmt.Fprintf(p.Stdout, "delivered, or skipped by the topics that the relay took then: the cursor of partition %d is past it\n", m.Partition)
		p.writePassed(place.Passed)
	case inspect.NotTaken:
		fmt.Fprintf(p.Stdout, "does not take topic %s, only %s\n", output.Printable(m.Topic), output.Printable(strings.Join(place.Topics, ", ")))
	case inspect.NotBegun:
		fmt.Fprintf(p.Stdout, "has not begun with partition %d yet\n", m.Partition)
	case inspect.Delivered:
		if place.Kind == store.KindConsumer {
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

// writePassed writes when a relay passed a message, as far as that is known.
func (p commands) writePassed(passed *inspect.Passed) {
	if passed == nil {
		return
	}
	f := output.NewFields(p.Stdout)
	f.Add("passed", fmt.Sprintf("between %s and %s", output.Moment(passed.After), output.Moment(passed.Before)))
	f.Add("by", passed.By)
	f.Flush()
}

// writeRedrives writes how a message was dead-lettered and redriven.
func (p commands) writeRedrives(events []inspect.Event) {
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
			text = fmt.Sprintf("dead letter %d, %s after %s: %s", e.DeadLetter, e.Reason, output.Plural(e.Attempts, "attempt"), output.Shorten(cause, 200))
		case e.Kind == inspect.EventEdited:
			text += ": " + e.Why
		case e.Redrive != 0:
			text += fmt.Sprintf(", redrive %d", e.Redrive)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", output.Moment(e.At), e.Kind, output.Printable(text))
	}
	_ = w.Flush() // a closed output shows in the writes that follow
	fmt.Fprint(p.Stdout, "since then: ")
}

// writeDead writes about a message that is a dead letter.
func (p commands) writeDead(place inspect.Place) {
	d, state := place.DeadLetter, "open"
	if place.State == inspect.Discarded {
		state = "discarded"
	}
	fmt.Fprintf(p.Stdout, "dead letter %d, %s\n", d.Number, state)
	f := output.NewFields(p.Stdout)
	f.Add("died", output.Moment(d.DiedAt))
	f.Add("reason", place.Reason)
	f.Add("cause", place.Cause)
	f.Add("attempts", output.Number(place.Attempts))
	if d.Edits > 0 {
		f.Add("edited", fmt.Sprintf("%s, see: %s", output.Plural(d.Edits, "time"), p.Hint("dead show %d", d.Number)))
	}
	if place.State == inspect.Discarded {
		f.Add("discarded", strings.TrimSpace(output.Moment(d.ResolvedAt)+" by "+d.ResolvedBy+" "+d.Resolution))
	} else {
		f.Add("next", place.Next.Text)
		p.addDecisions(f, place)
	}
	f.Flush()
	output.History(p.Stdout, place.History)
}

// writeParked writes about a parked message.
func (p commands) writeParked(place inspect.Place) {
	switch {
	case place.State == inspect.Blocking:
		fmt.Fprintf(p.Stdout, "blocks its held key since %s\n", output.Moment(place.Since))
	case place.State == inspect.Parked || place.Ahead == nil:
		fmt.Fprintf(p.Stdout, "parked since %s\n", output.Moment(place.Since))
	case place.Ahead.AtLeast:
		fmt.Fprintf(p.Stdout, "queued in its held key since %s, more than %s ahead of it\n", output.Moment(place.Since), output.Plural(place.Ahead.N, "message"))
	default:
		fmt.Fprintf(p.Stdout, "queued in its held key since %s, %s ahead of it\n", output.Moment(place.Since), output.Plural(place.Ahead.N, "message"))
	}
	if place.HeldKey != nil {
		p.writeHeldKey(place)
	} else {
		f := output.NewFields(p.Stdout)
		f.Add("reason", place.Reason)
		f.Add("attempts", output.Number(place.Attempts))
		f.Add("next", nextOf(place))
		p.addDecisions(f, place)
		f.Flush()
	}
	if place.State != inspect.Queued {
		output.History(p.Stdout, place.History)
	}
}

// writeHeldKey writes why a key is held and what happens next.
func (p commands) writeHeldKey(place inspect.Place) {
	h := place.HeldKey
	f := output.NewFields(p.Stdout)
	f.Add("reason", h.Reason)
	f.Add("cause", h.Cause)
	f.Add("attempts", output.Number(h.Attempts))
	f.Add("next", nextOf(place))
	p.addDecisions(f, place)
	f.Flush()
}

func (p commands) writeNext(place inspect.Place) {
	f := output.NewFields(p.Stdout)
	f.Add("next", nextOf(place))
	p.addResume(f, place)
	f.Flush()
}

// writeKey writes what blocks a key, and a note about the key.
func (p commands) writeKey(e inspect.Explanation, note string) {
	fmt.Fprintf(p.Stdout, "key %s: partition %d\n", output.Printable(e.Key.Key), e.Key.Partition)
	if note != "" {
		fmt.Fprintf(p.Stdout, "%s\n", note)
	}
	for _, place := range e.Places {
		fmt.Fprintf(p.Stdout, "\n%s: ", titleOf(place))
		switch {
		case place.State == inspect.Held:
			fmt.Fprintf(p.Stdout, "held since %s, %s parked\n", output.Moment(place.Since), output.Plural(place.HeldKey.Parked, "message"))
			p.writeHeldKey(place)
		case place.State == inspect.NotBegun:
			fmt.Fprintf(p.Stdout, "has not begun with partition %d yet\n", e.Key.Partition)
		case place.Kind == store.KindConsumer:
			fmt.Fprintf(p.Stdout, "not held; %s\n", place.Next.Text)
		default:
			owner := place.Owner + " works on it"
			switch {
			case place.Paused != nil, place.Next.Code == inspect.NextAnswer:
				owner = nextOf(place)
			case place.Owner == "":
				owner = "nobody works on it; " + status.StartIt
			}
			fmt.Fprintf(p.Stdout, "not held; its partition has a backlog of %s, age %s; %s\n", output.Count(place.Load.Backlog),
				output.Ago(seconds(place.Load.BacklogAgeSeconds)), output.Printable(owner))
		}
		if dead := place.Load.Dead; dead.N > 0 {
			fmt.Fprintf(p.Stdout, "  %s of this key: %s\n", output.PluralOf(dead, "open dead letter"),
				p.Hint("dead list --relay %s --key %s", output.ShellQuote(place.Name), output.ShellQuote(e.Key.Key)))
		}
	}
}

// writeRelay writes how a relay or consumer is doing.
func (p commands) writeRelay(place inspect.Place) {
	fmt.Fprintf(p.Stdout, "%s: %s\n", titleOf(place), place.State)
	f := output.NewFields(p.Stdout)
	f.Add("topics", strings.Join(place.Topics, ", "))
	if place.Kind == store.KindRelay {
		f.Add("backlog", fmt.Sprintf("%s, age %s", output.Count(place.Load.Backlog), output.Ago(seconds(place.Load.BacklogAgeSeconds))))
	}
	f.Add("parked", fmt.Sprintf("%s, oldest %s", output.Count(place.Load.Parked), output.Ago(seconds(place.Load.OldestParkedSeconds))))
	f.Add("held keys", output.Count(place.Load.Held))
	f.Add("dead letters", output.Count(place.Load.Dead))
	f.Add("processes", output.Number(place.Load.Processes))
	f.Add("next", nextOf(place))
	p.addResume(f, place)
	f.Flush()
}
