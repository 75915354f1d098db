package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// above says whether a count is above a limit, which is at most store.CountLimit.
func above(c store.Count, limit int64) bool { return c.N > limit || c.AtLeast && c.N == limit }

// judge compares the state with the limits. waiting is the age of the oldest message if no relay has run.
func (o statusOptions) judge(s store.Status, consumers program.ConsumerNames, waiting time.Duration) error {
	var broken []string
	if o.given("max-age") && waiting > o.maxAge {
		broken = append(broken, fmt.Sprintf("no relay has run on this outbox: age %s is above %s", output.Ago(waiting), o.maxAge))
	}
	for _, r := range s.Relays {
		title := consumers.Title(r.Name)
		if o.given("max-age") && r.Paused == nil && r.Age > o.maxAge {
			broken = append(broken, fmt.Sprintf("%s: age %s is above %s", title, output.Ago(r.Age), o.maxAge))
		}
		if o.given("max-parked") && r.Paused == nil && r.OldestParked > o.maxParked {
			broken = append(broken, fmt.Sprintf("%s: a message has been parked for %s, longer than %s", title, output.Ago(r.OldestParked), o.maxParked))
		}
		if o.given("max-dead") && above(r.Dead, o.maxDead) {
			broken = append(broken, fmt.Sprintf("%s: %s, more than %d", title, output.PluralOf(r.Dead, "dead letter"), o.maxDead))
		}
		if o.given("max-held") && above(r.Held, o.maxHeld) {
			broken = append(broken, fmt.Sprintf("%s: %s, more than %d", title, output.PluralOf(r.Held, "held key"), o.maxHeld))
		}
	}
	for _, u := range s.Unrouted {
		if o.given("max-unrouted") && u.Count > o.maxUnrouted {
			broken = append(broken, fmt.Sprintf("topic %s: %s unrouted, more than %d", output.Printable(unroutedTopic(u)), output.Plural(int(u.Count), "message"), o.maxUnrouted))
		}
	}
	if len(broken) > 0 {
		return program.Exit(program.ExitNo, fmt.Errorf("%s", strings.Join(broken, "\n")))
	}
	return nil
}
