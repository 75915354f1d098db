package web

import (
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
)

// event is an entry of a timeline.
type event struct {
	At         time.Time
	Mark       mark
	Bold, Text string
	// Path and Link are a link in parentheses; More are the entries that this one folds.
	Path, Link string
	Evidence   string
	More       []event
}

// timeline says what happened to a message, oldest first.
func timeline(e inspect.Explanation) (out []event) {
	m := e.Message
	if !m.StoredAt.IsZero() {
		verb := map[inspect.Origin]string{inspect.OriginPublished: "Published", inspect.OriginReceived: "Received", inspect.OriginImported: "Imported"}[m.Origin]
		out = append(out, event{At: m.StoredAt, Mark: mark{"muted", "dot", ""}, Bold: verb, Evidence: fmt.Sprintf("partition %d", m.Partition)})
	}
	for _, p := range e.Places {
		if len(p.Recorded) > 0 {
			out = append(out, recordedEvents(p)...)
		} else {
			out = append(out, attemptEvents(p.Name, p.History)...)
		}
		for _, r := range p.Redrives {
			out = append(out, redriveEvent(p.Name, r))
		}
		if p.Passed != nil {
			out = append(out, passedEvent(p))
		}
		if d := p.DeadLetter; d != nil {
			out = append(out, event{
				At: d.DiedAt, Mark: mark{"bad", "octagon", ""}, Bold: "Moved to the dead letters by " + p.Name, Text: p.Reason,
				Path: fmt.Sprintf("/dead/%d", d.Number), Link: fmt.Sprint(d.Number),
			})
			if !d.ResolvedAt.IsZero() {
				out = append(out, event{At: d.ResolvedAt, Mark: mark{"muted", "dash", ""}, Bold: "Discarded by " + d.ResolvedBy, Text: d.Resolution})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b event) int { return a.At.Compare(b.At) })
	return fold(out)
}

// passedEvent says between which times a relay came past a message.
func passedEvent(p inspect.Place) event {
	e := event{At: p.Passed.Before, Mark: mark{"ok", "check", ""}, Bold: "Delivered by " + p.Name, Text: "or skipped by the topics that it took then"}
	if p.State == inspect.Delivered {
		e.Text = ""
	}
	e.Evidence = "between " + clock(p.Passed.After, "15:04:05") + " and " + clock(p.Passed.Before, "15:04:05")
	return e
}

func redriveEvent(name string, r inspect.Event) event {
	out := event{At: r.At, Path: fmt.Sprintf("/dead/%d", r.DeadLetter), Link: fmt.Sprint(r.DeadLetter)}
	switch r.Kind {
	case inspect.EventDied:
		out.Mark, out.Bold, out.Text = mark{"bad", "octagon", ""}, "Moved to the dead letters by "+name, r.Reason
	case inspect.EventEdited:
		out.Mark, out.Bold, out.Text = mark{"info", "copy", ""}, "Edited by "+r.By, r.Why
	default:
		out.Mark, out.Bold = mark{"info", "arrows", ""}, "Redriven by "+r.By
	}
	return out
}

// attemptEvents are the failed attempts at a relay.
func attemptEvents(name string, history []postrider.AttemptInfo) (out []event) {
	for _, a := range history {
		e := event{At: a.At, Mark: mark{"warn", "triangle", ""}, Bold: fmt.Sprintf("%s attempt %d failed:", name, a.Attempt), Text: a.Cause}
		if a.Attempt == 0 {
			e.Mark, e.Bold, e.Text = mark{"info", "arrows", ""}, upper(a.Cause), ""
		}
		out = append(out, e)
	}
	return out
}

// recordedEvents are the attempts that were recorded with their answers.
func recordedEvents(p inspect.Place) (out []event) {
	for _, a := range p.Recorded {
		e := event{At: a.At, Evidence: admin.Duration(time.Duration(a.TookSeconds * float64(time.Second)))}
		if a.Status > 0 {
			e.Evidence = fmt.Sprintf("status %d · %s", a.Status, e.Evidence)
		}
		if a.Error == "" {
			e.Mark, e.Bold = mark{"ok", "check", ""}, fmt.Sprintf("%s attempt %d delivered", p.Name, a.Attempt)
		} else {
			e.Mark, e.Bold, e.Text = mark{"warn", "triangle", ""}, fmt.Sprintf("%s attempt %d failed:", p.Name, a.Attempt), a.Error
		}
		out = append(out, e)
	}
	return out
}

// fold puts consecutive attempts that failed for the same cause into one entry, if there are more than three. The first and last stay.
func fold(events []event) (out []event) {
	for i := 0; i < len(events); {
		n := 1
		for i+n < len(events) && events[i].Mark.Icon == "triangle" && events[i+n].Mark.Icon == "triangle" &&
			store.NormalizeCause(events[i].Text) == store.NormalizeCause(events[i+n].Text) {
			n++
		}
		if n < 4 {
			out = append(out, events[i:i+n]...)
		} else {
			inner := events[i+1 : i+n-1]
			out = append(out, events[i], event{
				At: inner[0].At, Mark: mark{"muted", "dash", ""}, Bold: fmt.Sprintf("%d more attempts failed the same way", len(inner)),
				More: inner, Evidence: "until " + clock(inner[len(inner)-1].At, "15:04:05"),
			}, events[i+n-1])
		}
		i += n
	}
	return out
}
