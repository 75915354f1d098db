package relay

import (
	"time"

	"github.com/postrider/postrider/observe"
)

// pace measures how fast messages arrive. If they arrive fast, a wake-up waits for more of them: a fetch costs the database
// about as much for one message as for ten, and a fetch per commit would take a core away from publishers. If commits one after another
// bring no messages, wake-ups wait as long as polls do.
type pace struct {
	since time.Time
	found int
	fast  bool
	empty int // wake-ups one after another after which nothing was found
}

const (
	paceWindow  = 50 * time.Millisecond
	gatherAbove = 2000 // messages per second
	gatherFor   = 2 * time.Millisecond
	manyEmpty   = 8
)

func (p *pace) note(by observe.WokenBy, found int, now time.Time) {
	if by == observe.WokenByCommit && found == 0 {
		p.empty++
	} else {
		p.empty = 0
	}
	p.found += found
	if d := now.Sub(p.since); d >= paceWindow {
		p.fast = float64(p.found) >= gatherAbove*d.Seconds()
		p.since, p.found = now, 0
	}
}

// gatherFor returns how long a wake-up waits for more messages.
func (p *pace) gatherFor(pollMin time.Duration) time.Duration {
	switch {
	case p.fast:
		return gatherFor
	case p.empty >= manyEmpty:
		return pollMin
	}
	return 0
}
