package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

// startIt is what to do about a relay without a process. Not every relay is the binary's: what one delivers to handlers in
// its own program must not go to a broker.
const startIt = "start the program that runs this relay (postrider relay, if it publishes to a broker)"

// nobodyWorks is what happens next in a partition without an owner.
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

// writeSentBack writes how a message died and was sent back, in the order of time.
func (p *Program) writeSentBack(ctx context.Context, b *backend.Outbox, letters []deadletter.Letter) error {
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
	_ = w.Flush() // an output that is gone shows in the writes that follow
	fmt.Fprint(p.Stdout, "since then: ")
	return nil
}

// standing is whether a message is parked for a time of its own, and not behind a held key.
type standing struct {
	parked bool
	// unsure: one cannot tell, and so it may be parked.
	unsure bool
	// due is the parked message if its time has come.
	due *relay.Record
}

// lookedAt bounds what of the due messages is read to find one.
const lookedAt, lookedAtBytes = 1000, 4 << 20

// findParked looks for a message among those that are parked for a time of their own. The store lists what was put aside by
// sequence, dead letters of every state among it, and of what is parked it shows what is due.
func findParked(ctx context.Context, b *backend.Outbox, r relay.RelayStatus, partition int, m *postrider.Message,
	sentBack []deadletter.Letter) (is standing, err error) {
	known := len(r.Partitions) > 0 // otherwise a status does not count what imported letters have parked for it
	if known && r.Parked.N == 0 {
		return is, nil
	}
	if len(sentBack) == 0 {
		aside, err := b.Aside(ctx, r.Name, partition, m.Sequence-1)
		if is.parked = slices.Contains(aside.Sequences, m.Sequence); !is.parked || err != nil {
			return is, err
		}
	}
	due, err := b.Due(ctx, r.Name, relay.DueRequest{
		Partitions: []int{partition}, Runs: lookedAt, RunLength: 1, MaxBytes: lookedAtBytes,
	})
	if err != nil {
		return is, err
	}
	for _, run := range due.Runs {
		if run.Key == "" && len(run.Records) > 0 && run.Records[0].Message.Sequence == m.Sequence {
			return standing{parked: true, due: &run.Records[0]}, nil
		}
	}
	switch {
	case is.parked:
		return is, nil
	case !known: // nobody has put any of it off
		return standing{unsure: due.More}, nil
	}
	return outcomeOf(ctx, b, sentBack[len(sentBack)-1].Redrive)
}

// outcomeOf tells what became of a message that a redrive has sent back, as far as all of its messages share a fate.
func outcomeOf(ctx context.Context, b *backend.Outbox, redrive int64) (standing, error) {
	if redrive == 0 {
		return standing{unsure: true}, nil
	}
	d, err := b.ShowRedrive(ctx, redrive)
	switch {
	case errors.Is(err, deadletter.ErrNoRedrive):
		return standing{unsure: true}, nil
	case err != nil:
		return standing{}, err
	case d.Outcome.Waiting == 0:
		return standing{}, nil
	case d.Outcome.Delivered+d.Outcome.Failed == 0:
		return standing{parked: true}, nil
	}
	return standing{unsure: true}, nil
}

// explainAlone explains a message that is parked for a time of its own.
func (p *Program) explainAlone(x explained, m *postrider.Message, is standing, owner string) {
	f := newFields(p.Stdout)
	defer f.flush()
	if is.due != nil {
		fmt.Fprintf(p.Stdout, "parked since %s, and due\n", moment(x.status.Now.Add(-is.due.ParkedFor)))
		f.add("reason", string(is.due.Reason))
		f.add("attempts", number(is.due.Attempts))
		f.add("next", turnOf("tried", owner))
		return
	}
	next := "an attempt when its time has come"
	if owner == "" {
		next += "; " + nobodyWorks
	}
	if m.DeliverAt.After(x.status.Now) {
		fmt.Fprintf(p.Stdout, "parked until its delivery time, %s\n", moment(m.DeliverAt))
	} else {
		fmt.Fprintln(p.Stdout, "parked for a time of its own: it failed, was put off, or nothing takes it; the log of the process that tried it says which")
	}
	f.add("next", next)
}

// explainSentBack explains a message that was sent back from the dead letters and is not known to be parked.
func (p *Program) explainSentBack(x explained, r relay.RelayStatus, is standing) {
	done := "delivered"
	if x.consumers[r.Name] {
		done = "processed"
	}
	fmt.Fprintln(p.Stdout, done)
	if is.unsure {
		f := newFields(p.Stdout)
		f.add("unless", oneOf(r.Parked))
		f.flush()
	}
}

// oneOf says that a message is one of those that are parked, of which 0 stands for an unknown number.
func oneOf(parked relay.Count) string {
	switch parked.N {
	case 0:
		return "it is one of the messages that are parked"
	case 1:
		return "it is the one message that is parked"
	}
	return fmt.Sprintf("it is one of the %s messages that are parked", count(parked))
}

// explainUnknown explains a message of which the relay or consumer has put nothing aside, and that has no sequence there.
func (p *Program) explainUnknown(x explained, r relay.RelayStatus) {
	switch {
	case !x.consumers[r.Name]:
		fmt.Fprintln(p.Stdout, "nothing is known: the message is not in the log")
	case r.Parked.N > 0:
		fmt.Fprintf(p.Stdout, "it reads a broker, not this log; not looked up: whether it has processed the message, or it is among the %s parked there\n",
			count(r.Parked))
	default:
		fmt.Fprintln(p.Stdout, "it reads a broker, not this log; not looked up: whether it has processed the message")
	}
}
