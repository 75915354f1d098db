package status

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// StartIt is the advice for a relay without a process. Not every relay is run by this binary: one that delivers to
// handlers in its own program must not publish to a broker.
const StartIt = "start the program that runs this relay (postrider relay, if it publishes to a broker)"

// writeHints says what an operator can do about what is stuck.
func (p commands) writeHints(s store.Status, consumers program.ConsumerNames) error {
	var hints []string
	for _, r := range s.Relays {
		name, quoted := output.Printable(r.Name), output.ShellQuote(r.Name)
		if r.Paused != nil {
			hints = append(hints, fmt.Sprintf("%s: %s; resume it with: %s", name, paused(r.Paused), p.Hint("relay resume %s", quoted)))
		}
		if hint := hintNobody(r, consumers[r.Name]); hint != "" {
			hints = append(hints, name+": "+hint+", or if it is gone for good: "+p.Hint("outbox remove %s --because \"…\"", quoted))
		}
		if d := r.DestinationOf(); d.State == store.DestinationDown {
			hints = append(hints, fmt.Sprintf("%s: destination has been down for %s, next try %s: %s", name, output.Ago(d.For),
				nextTry(d), output.Printable(d.Error)))
		}
		if g := r.GateOf(); g.Closed {
			hints = append(hints, fmt.Sprintf("%s: has waited for %s for %s; it continues by itself", name,
				cmp.Or(output.Printable(g.On), "what its handlers need"), output.Ago(g.For)))
		}
		if r.Held.N > 0 {
			hints = append(hints, name+": held keys; see: "+p.Hint("held list --relay %s", quoted))
		}
		if r.Dead.N > 0 {
			hints = append(hints, name+": dead letters; see: "+p.Hint("dead list --relay %s", quoted))
		}
	}
	for _, r := range s.Relays {
		if r.Unmatched() {
			hints = append(hints, fmt.Sprintf("%s: no message so far had a topic that it takes (%s); are they spelled as those of the messages?",
				output.Printable(r.Name), output.Printable(strings.Join(r.Topics, ", "))))
		}
	}
	if len(s.Unrouted) > 0 {
		hints = append(hints, "unrouted messages: no relay took their topics; "+RouteIt)
	}
	if len(hints) > 0 {
		_, err := fmt.Fprintln(p.Stdout, "\n"+strings.Join(hints, "\n"))
		return err
	}
	return nil
}

// nextTry is when a destination that is down is tried again.
func nextTry(d store.Destination) string {
	if d.NextTry <= 0 {
		return "now"
	}
	return "in " + output.Ago(d.NextTry)
}

// paused says who paused a relay, since when and why.
func paused(by *store.Pause) string {
	end := ""
	if !by.Until.IsZero() {
		end = ", until " + output.Moment(by.Until)
	}
	return fmt.Sprintf("paused by %s since %s%s: %s", output.Printable(by.By), output.Moment(by.At), end, output.Printable(by.Reason))
}

// RouteIt is the advice for a topic that no relay takes.
const RouteIt = "add the topic to the topics of a relay, and for messages that are still in the log start a relay under a new name, " +
	"which begins with the oldest"

// hintNobody is the advice for a relay or consumer that has work but no process, "" for others.
func hintNobody(r store.RelayStatus, consumer bool) string {
	switch {
	case !strings.HasPrefix(alive(r), none):
		return ""
	case consumer && r.Parked.N > 0:
		return "nobody processes what is parked; start the program that runs this consumer"
	case r.Backlog.N > 0:
		return "nobody delivers, and the log keeps what it has not delivered; " + StartIt
	case r.Parked.N > 0:
		return "nobody delivers what is parked; " + StartIt
	}
	return ""
}
