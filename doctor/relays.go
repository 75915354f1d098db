package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/internal/plain"
	"github.com/postrider/postrider/store"
)

// Store is what checks need of a store. All stores implement it, and Checker.
type Store interface {
	store.StatusReader
	store.Records
	logreader.Store
}

// Limits from which something is a finding.
const (
	// stalledFor is how long a relay with undelivered messages settles nothing until it counts as stalled.
	stalledFor = 2 * time.Minute
	// unownedFor is how long the messages of a partition without an owner have waited: two leases of the default length.
	unownedFor = 30 * time.Second
	// heldFor is how long a key is held, and unhandledFor how long a message waits for a handler: both are normal for less.
	heldFor, unhandledFor = 5 * time.Minute, 5 * time.Minute
	// interruptedFor is how long ago the last step of an erasure was taken.
	interruptedFor = 5 * time.Minute
	// goneFor is how long no process of a relay with undelivered messages has been seen: longer than a restart.
	goneFor = time.Minute
	// pausedFor is how long a pause without an end lasts until it is a finding.
	pausedFor = 24 * time.Hour
)

// Checks returns the checks of a store: those of its database, and those of its relays and consumers.
func Checks(s Store) []Check {
	var out []Check
	if c, ok := s.(Checker); ok {
		out = c.Checks()
	}
	l := &looker{store: s}
	return append(out,
		Check{Name: "relay.none", Title: "An outbox with messages has a relay", Run: l.none},
		l.relays("relay.no_process", "Every relay with undelivered messages has a process", noProcess),
		l.relays("relay.unowned", "Every partition with undelivered messages has an owner", unowned),
		l.relays("relay.stalled", "Relays settle what they deliver", stalled),
		Check{Name: "relay.paused", Title: "No pause without an end is older than a day", Run: l.paused},
		Check{Name: "relay.held", Title: "No key is held for long", Run: l.held},
		Check{Name: "relay.unhandled", Title: "Every message has a handler", Run: l.unhandled},
		l.relays("relay.dead", "There are no open dead letters", deadLetters),
		Check{Name: "route.untaken", Title: "Every topic has a relay", Run: l.untaken},
		Check{Name: "inbox.window", Title: "Consumers keep IDs for as long as messages can be redelivered", Run: l.window},
		Check{Name: "erasure", Title: "No erasure was interrupted", Run: l.erasures},
		l.relays("destination", "Every destination answers", destinations),
	)
}

// looker reads the status once for all checks.
type looker struct {
	store Store

	once   sync.Once
	status store.Status
	err    error
}

func (l *looker) read(ctx context.Context) (store.Status, error) {
	l.once.Do(func() { l.status, l.err = l.store.Status(ctx) })
	return l.status, l.err
}

// relays is a check of each relay and consumer.
func (l *looker) relays(name, title string, look func(store.RelayStatus) []Finding) Check {
	return Check{Name: name, Title: title, Run: func(ctx context.Context) (out []Finding, err error) {
		s, err := l.read(ctx)
		for _, r := range s.Relays {
			for _, f := range look(r) {
				f.Target = r.Name
				if f.Evidence == "" {
					f.Evidence = "the status of the outbox"
				}
				out = append(out, f)
			}
		}
		return out, err
	}}
}

func number(c store.Count, noun string) string {
	if c.AtLeast {
		return plain.Grouped(c.N) + "+ " + noun + "s"
	}
	return plain.Count(c.N, noun)
}

// waiting counts what is undelivered.
func waiting(r store.RelayStatus) store.Count {
	return store.Count{N: r.Backlog.N + r.Parked.N, AtLeast: r.Backlog.AtLeast || r.Parked.AtLeast}
}

// noun is what a name stands for.
func noun(k store.Kind) string {
	if k == store.KindConsumer {
		return "consumer"
	}
	return "relay"
}

func noProcess(r store.RelayStatus) []Finding {
	var last *store.OwnerStatus
	for i := range r.Owners {
		if o := &r.Owners[i]; o.Alive {
			return nil
		} else if last == nil || o.SeenAgo < last.SeenAgo {
			last = o
		}
	}
	if waiting(r).N == 0 || r.OldestUndelivered < goneFor || r.Paused != nil {
		return nil
	}
	f := Finding{
		Level: Fault, Message: fmt.Sprintf("No process runs %s %s.", noun(r.Kind), r.Name),
		Impact: fmt.Sprintf("%s and nothing is delivered. The log keeps what is undelivered.", wait(r)),
		Fix: []Fix{
			{Text: "start the program that runs it; if it publishes to a broker:", Command: "postrider relay --only " + quote(r.Name)},
			command("if it is gone for good:", "outbox remove %s --because 'no longer used'", r.Name),
		},
	}
	if last != nil {
		f.Message = fmt.Sprintf("No process has run %s %s for %s.", noun(r.Kind), r.Name, lasting(last.SeenAgo))
		f.Evidence = fmt.Sprintf("the last heartbeat came from host %s, version %s", last.Host, last.Version)
	}
	return []Finding{f}
}

// wait says how many messages wait, and for how long.
func wait(r store.RelayStatus) string {
	n := waiting(r)
	verb := "wait"
	if n.N == 1 && !n.AtLeast {
		verb = "waits"
	}
	return fmt.Sprintf("%s %s, the oldest for %s,", number(n, "message"), verb, lasting(r.OldestUndelivered))
}

func alive(r store.RelayStatus) bool {
	return slices.ContainsFunc(r.Owners, func(o store.OwnerStatus) bool { return o.Alive })
}

func unowned(r store.RelayStatus) []Finding {
	if !alive(r) {
		return nil
	}
	var free []string
	var count store.Count
	var oldest time.Duration
	for _, p := range r.Partitions {
		if p.Owner == "" && p.Backlog.N > 0 && p.Age > unownedFor {
			free = append(free, fmt.Sprint(p.Partition))
			count.N, count.AtLeast, oldest = count.N+p.Backlog.N, count.AtLeast || p.Backlog.AtLeast, max(oldest, p.Age)
		}
	}
	if len(free) == 0 {
		return nil
	}
	return []Finding{{
		Level: Fault, Message: fmt.Sprintf("No process owns partition %s of %s, although %s.", strings.Join(free, ", "), r.Name, processes(r)),
		Impact: fmt.Sprintf("%s there have waited for up to %s, and nobody delivers them.", number(count, "message"), lasting(oldest)),
		Fix: []Fix{
			{Text: "look into the logs of its processes for errors of leases, and restart them"},
			command("see who owns what:", "status"),
		},
	}}
}

func processes(r store.RelayStatus) string {
	n := 0
	for _, o := range r.Owners {
		if o.Alive {
			n++
		}
	}
	if n == 1 {
		return "1 process is alive"
	}
	return fmt.Sprintf("%d processes are alive", n)
}

func stalled(r store.RelayStatus) []Finding {
	if !alive(r) || r.Paused != nil || r.Backlog.N == 0 || r.Age <= stalledFor || r.DestinationOf().State == store.DestinationDown || r.GateOf().Closed {
		return nil
	}
	for _, p := range r.Partitions {
		if p.Settlements > 0 && p.SettledAgo <= stalledFor {
			return nil
		}
	}
	return []Finding{{
		Level: Fault, Message: fmt.Sprintf("%s has settled nothing for more than %s, although %s.", r.Name, lasting(stalledFor), processes(r)),
		Impact: fmt.Sprintf("%s and will be delivered again if they have been delivered already.", wait(r)),
		Fix: []Fix{
			command("see whether others hold locks that it needs:", "doctor db.blocked db.old_transaction"),
			{Text: "otherwise restart its processes; their logs say what they wait for"},
		},
	}}
}

func (l *looker) paused(ctx context.Context) (out []Finding, err error) {
	s, err := l.read(ctx)
	for _, r := range s.Relays {
		p := r.Paused
		if p == nil || !p.Until.IsZero() || s.Now.Sub(p.At) < pausedFor {
			continue
		}
		out = append(out, Finding{
			Level: Warning, Target: r.Name,
			Message:  fmt.Sprintf("%s was paused %s ago by %s: %s", r.Name, lasting(s.Now.Sub(p.At)), p.By, p.Reason),
			Impact:   "It delivers nothing until it is resumed. The log keeps what is undelivered.",
			Fix:      []Fix{command("when the reason is gone:", "relay resume %s", quote(r.Name))},
			Evidence: "the pause on record",
		})
	}
	return out, err
}

func (l *looker) held(ctx context.Context) (out []Finding, err error) {
	s, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range s.Relays {
		if r.Held.N == 0 || r.OldestHeld < heldFor || r.Paused != nil {
			continue
		}
		var longest []store.HeldInfo
		err := l.store.View(ctx, store.Operation{Method: "ListHeld", Doing: "list held keys"}, func(read store.Reader) (err error) {
			longest, err = read.HeldKeys(ctx, store.HeldQuery{Relay: r.Name, Limit: 1})
			return err
		})
		if err != nil {
			return nil, err
		}
		f := Finding{
			Level: Warning, Target: r.Name, Message: fmt.Sprintf("%s holds %s, the longest for %s.", r.Name, number(r.Held, "key"), lasting(r.OldestHeld)),
			Impact:   "The messages of these keys wait, in order, until the first of them is delivered or decided about.",
			Fix:      []Fix{command("see why:", "held list --relay %s", r.Name)},
			Evidence: "the held keys in the outbox",
		}
		for _, h := range longest {
			retry := command("when the cause is gone, retry at once the key that is held longest:", "held retry %s --relay %s", h.Key, r.Name)
			retry.Key = h.Key
			f.Fix = append(f.Fix, retry)
		}
		out = append(out, f)
	}
	return out, nil
}

func (l *looker) unhandled(ctx context.Context) (out []Finding, err error) {
	s, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	var counts []store.ParkedCount
	err = l.store.View(ctx, store.Operation{Method: "CountParked", Doing: "count parked messages"}, func(r store.Reader) error {
		counts, err = r.CountParked(ctx, "")
		return err
	})
	for _, c := range counts {
		age := s.Now.Sub(c.Oldest)
		if c.Reason != store.ParkUnhandled || age < unhandledFor {
			continue
		}
		out = append(out, Finding{
			Level: Warning, Target: c.Relay,
			Message: fmt.Sprintf("%s of %s wait for a handler, the oldest for %s.", plain.Count(c.Count, "message"), c.Relay, lasting(age)),
			Impact:  "They are delivered when a process has a handler for their type and schema version, and their keys wait for them.",
			Fix: []Fix{
				command("see their types:", "parked list --relay %s", c.Relay),
				{Text: "deploy the program with the handler, or set UnhandledFor, after which they become dead letters"},
			},
			Evidence: "parked messages with the reason unhandled",
		})
	}
	return out, err
}

func deadLetters(r store.RelayStatus) []Finding {
	if r.Dead.N == 0 {
		return nil
	}
	return []Finding{{
		Level: Warning, Message: fmt.Sprintf("%s has %s, the oldest for %s.", r.Name, number(r.Dead, "open dead letter"), lasting(r.OldestDead)),
		Impact: "These messages are not delivered until somebody redrives them.",
		Fix: []Fix{
			command("see the causes:", "dead counts --relay %s", r.Name),
			command("when the cause is gone:", "dead redrive --relay %s --yes", r.Name),
		},
	}}
}

// none reports messages that wait for a first relay.
func (l *looker) none(ctx context.Context) ([]Finding, error) {
	s, err := l.read(ctx)
	if err != nil || s.HasRelay() {
		return nil, err
	}
	oldest, err := logreader.Oldest(ctx, l.store)
	if err != nil || oldest == nil || s.Now.Sub(oldest.CreatedAt) < goneFor {
		return nil, err
	}
	return []Finding{{
		Level: Fault, Message: fmt.Sprintf("No relay has run on this outbox, and its oldest message was published %s ago.", lasting(s.Now.Sub(oldest.CreatedAt))),
		Impact: "Nothing is delivered. A new relay begins with the oldest message, unless its Start says something else.",
		Fix:    []Fix{command("start a relay:", "relay --publisher 'nats://…?stream=…'"), {Text: "or the service that embeds it"}},
	}}, nil
}

func (l *looker) untaken(ctx context.Context) (out []Finding, err error) {
	s, err := l.read(ctx)
	for _, u := range s.Unrouted {
		if u.Topic == "" || !s.NobodyTakes(u.Topic) {
			continue
		}
		out = append(out, Finding{
			Level: Warning, Target: u.Topic,
			Message: fmt.Sprintf("No relay takes topic %s: %s since %s.", u.Topic, plain.Count(u.Count, "message"), u.FirstAt.UTC().Format("2 Jan 15:04")),
			Impact:  "Its messages are not delivered anywhere, and are removed with the log.",
			Fix: []Fix{
				{Text: "add the topic to the topics of a relay"},
				command("see which relay takes what:", "route explain %s", u.Topic),
			},
			Evidence: "messages that every relay skipped",
		})
	}
	return out, err
}

func destinations(r store.RelayStatus) []Finding {
	d := r.DestinationOf()
	if d.State != store.DestinationDown || r.Paused != nil {
		return nil
	}
	return []Finding{{
		Level: Fault, Message: fmt.Sprintf("The destination of %s has been down for %s: %s", r.Name, lasting(d.For), store.NormalizeCause(d.Error)),
		Impact: "Messages wait in order, and are sent when it is back. Nothing is lost, and no attempt is counted.",
		Fix: []Fix{
			{Text: "repair the destination, or the way to it; the relay finds out by itself"},
			command("see the error as it is:", "status"),
		},
		Evidence: fmt.Sprintf("its processes say so with their heartbeats; next probe in %s", lasting(d.NextTry)),
	}}
}
