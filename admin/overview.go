package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// Word is the status of a relay or consumer: the first of these that applies.
type Word string

// The statuses.
const (
	NotRunning Word = "Not running"      // no live process, and something is undelivered
	Down       Word = "Destination down" // no live process reaches the destination
	Stalled    Word = "Stalled"          // live processes and undelivered messages, and nothing settled for two minutes, without a pause
	Paused     Word = "Paused"           // an operator has paused it
	Waiting    Word = "Waiting"          // its gate is closed in every process: what its handlers need is not available
	Late       Word = "Behind"           // the oldest undelivered message is older than the target, and no held key explains it
	Failing    Word = "Failing"          // more than 5% of the last five minutes' attempts failed
	Holding    Word = "Holding"          // it holds keys, and everything else is on time
	Delivering Word = "Delivering"       // it has something to deliver, or delivered something in the last minute
	Idle       Word = "Idle"             // nothing to deliver
)

// Tone says how a status or problem is shown.
type Tone string

// The tones.
const (
	Bad   Tone = "bad"
	Warn  Tone = "warn"
	Info  Tone = "info"
	Quiet Tone = "quiet"
)

// Tone of the status.
func (w Word) Tone() Tone {
	switch w {
	case NotRunning, Down, Stalled:
		return Bad
	case Waiting, Late, Failing:
		return Warn
	case Paused, Holding:
		return Info
	}
	return Quiet
}

// needsAttention reports whether a person should look at a relay with this status.
func (w Word) needsAttention() bool { return w.Tone() == Bad || w.Tone() == Warn }

// stalledAfter is how long a relay with undelivered messages settles nothing until it counts as stalled; failingFrom is the share of
// attempts that fail from which it counts as failing, of at least failingOf attempts.
const (
	stalledAfter = 2 * time.Minute
	failingFrom  = 0.05
	failingOf    = 10
)

// RelayInfo is a relay or consumer as tables show it.
type RelayInfo struct {
	store.RelayStatus
	Status Word `json:"status"`
	// Oldest is the age of the oldest undelivered message, Waiting counts undelivered ones with those that are parked.
	Oldest    time.Duration `json:"-"`
	OldestFor float64       `json:"oldest_undelivered_seconds"`
	Waiting   store.Count   `json:"waiting"`
	Processes int           `json:"processes"`
	// PerSecond is the rate of deliveries over the last minute, FailedShare that of failed ones among Attempts in the last five
	// minutes. Both are unknown, -1, until they have been measured.
	PerSecond   float64 `json:"delivered_per_second"`
	FailedShare float64 `json:"failed_share"`
	Attempts    int64   `json:"attempts"`
	// Ages has the age of the oldest undelivered message over the last hour, as far as this process has read it.
	Ages []Point `json:"-"`
}

// Problem is something that needs a person.
type Problem struct {
	Tone   Tone   `json:"tone"`
	Status string `json:"status"`
	// Text is a sentence, with the cause after it if there is one; Detail says since when and how much.
	Text   string `json:"text"`
	Cause  string `json:"cause,omitempty"`
	Detail string `json:"detail"`
	// Path is the page to look at, Button its name.
	Path   string `json:"path"`
	Button string `json:"-"`
}

// Overview answers whether everything is being delivered.
type Overview struct {
	Reading  int64       `json:"reading"`
	At       time.Time   `json:"at"`
	Title    string      `json:"title"`
	Text     string      `json:"text"`
	Problems []Problem   `json:"problems"`
	Relays   []RelayInfo `json:"relays"`
	Running  []store.Redrive
	Dead     store.Count `json:"open_dead_letters"`
	Held     store.Count `json:"held_keys"`
	// StuckSagas counts the sagas that wait for an operator, OpenSagas those that have not ended.
	StuckSagas int64 `json:"stuck_sagas"`
	OpenSagas  int64 `json:"open_sagas"`
	// Faults counts the faults of the last report of Doctor.
	Faults   int                   `json:"faults"`
	Notices  []string              `json:"notices,omitempty"`
	Unrouted []store.UnroutedTopic `json:"unrouted,omitempty"`
	// Since is when the history began.
	Since time.Time `json:"history_since"`
}

// newRelayInfo describes a relay by one status, from which no rate is known. It serves everybody, so errors are as whoever may see least
// sees them.
func newRelayInfo(r store.RelayStatus) RelayInfo {
	i := RelayInfo{RelayStatus: r, Oldest: oldest(&r), Waiting: store.Count{
		N: r.Backlog.N + r.Parked.N, AtLeast: r.Backlog.AtLeast || r.Parked.AtLeast,
	}, PerSecond: -1, FailedShare: -1}
	i.OldestFor = i.Oldest.Seconds()
	i.Owners = slices.Clone(r.Owners)
	for n := range i.Owners {
		o := &i.Owners[n]
		o.Destination.Error = store.NormalizeCause(o.Destination.Error)
		if o.Alive {
			i.Processes++
		}
	}
	return i
}

// DefaultTarget is how old the oldest undelivered message of a relay may be unless Config.Target says otherwise.
const DefaultTarget = time.Minute

// StatusOf is the status of a relay or consumer by one reading. Failing needs two, so it is not among them.
func StatusOf(r store.RelayStatus, target time.Duration) Word {
	i := newRelayInfo(r)
	return i.word(target)
}

// info describes a relay of the last reading.
func (s *Service) info(r store.RelayStatus, points int) RelayInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.history
	i := newRelayInfo(r)
	i.Ages = h.points(r.Name, points)
	if delivered, _, took := h.over(&r, rateOver); took > 0 {
		i.PerSecond = float64(delivered) / took.Seconds()
	}
	if delivered, failed, took := h.over(&r, failingOver); took > 0 {
		if i.Attempts = delivered + failed; i.Attempts > 0 {
			i.FailedShare = float64(failed) / float64(i.Attempts)
		} else {
			i.FailedShare = 0
		}
	}
	i.Status = i.word(s.cfg.Target)
	return i
}

// word is the status, by the first rule that applies.
func (i *RelayInfo) word(target time.Duration) Word {
	settled := time.Duration(-1)
	for _, p := range i.Partitions {
		if p.Settlements > 0 && (settled < 0 || p.SettledAgo < settled) {
			settled = p.SettledAgo
		}
	}
	switch {
	case i.Waiting.N > 0 && i.Processes == 0:
		return NotRunning
	case i.RelayStatus.Paused != nil:
		return Paused
	case i.DestinationOf().State == store.DestinationDown:
		return Down
	case i.GateOf().Closed:
		return Waiting
	case i.Backlog.N > 0 && i.Age > stalledAfter && (settled < 0 || settled > stalledAfter):
		return Stalled
	case i.Age > target, i.Oldest > target && i.RelayStatus.Held.N == 0:
		return Late
	case i.Attempts >= failingOf && i.FailedShare > failingFrom:
		return Failing
	case i.RelayStatus.Held.N > 0:
		return Holding
	case i.Waiting.N > 0, i.PerSecond > 0, i.PerSecond < 0 && settled >= 0 && settled < time.Minute && i.Delivered > 0:
		return Delivering
	}
	return Idle
}

// look makes an overview.
func (s *Service) look(ctx context.Context) (Overview, error) {
	r, err := s.reading(ctx)
	if err != nil {
		return Overview{}, err
	}
	o := Overview{Reading: r.Number, At: r.Now, Problems: []Problem{}, Notices: r.Notices, Unrouted: r.Unrouted}
	for _, relay := range r.Relays {
		i := s.info(relay, 48)
		o.Relays = append(o.Relays, i)
		o.Dead, o.Held = sum(o.Dead, i.Dead), sum(o.Held, i.RelayStatus.Held)
		if problem, ok := i.problem(s.cfg.Target); ok {
			o.Problems = append(o.Problems, problem)
		}
	}
	if err := s.more(ctx, &o); err != nil {
		return Overview{}, err
	}
	var faults []Problem
	o.Faults, faults = s.faults(o.Relays)
	o.Problems = append(o.Problems, faults...)
	order := map[Tone]int{Bad: 0, Warn: 1, Info: 2, Quiet: 3}
	slices.SortStableFunc(o.Problems, func(a, b Problem) int { return order[a.Tone] - order[b.Tone] })
	slices.SortStableFunc(o.Relays, func(a, b RelayInfo) int {
		return cmp.Or(order[a.Status.Tone()]-order[b.Status.Tone()], strings.Compare(a.Name, b.Name))
	})
	o.sentence(s.cfg.Name)
	s.mu.Lock()
	o.Since = s.history.began
	s.mu.Unlock()
	return o, nil
}

// more adds what the status does not have: redrives, dead letters by cause, and sagas.
func (s *Service) more(ctx context.Context, o *Overview) error {
	for r, err := range s.dead().ListRedrives(ctx, store.RedriveRunning) {
		if err != nil {
			return err
		}
		r.Cause, r.Filter.Cause = store.NormalizeCause(r.Cause), store.NormalizeCause(r.Filter.Cause)
		if r.Filter.Key != "" { // an overview serves everybody
			r.Filter.Key = hiddenText
		}
		o.Running = append(o.Running, r)
		if why := deadletter.WhyStopped(r); why != "" {
			o.Problems = append(o.Problems, Problem{
				Tone: Warn, Status: "Stopped", Text: fmt.Sprintf("Redrive %d has stopped", r.ID), Detail: why + " · " + Grouped(r.Selected-r.Done) + " not sent",
				Path: fmt.Sprintf("/redrives/%d", r.ID), Button: fmt.Sprintf("Open redrive %d", r.ID),
			})
		}
	}
	if o.Dead.N > 0 {
		causes, err := s.latestCauses(ctx)
		if err != nil {
			return err
		}
		for _, c := range causes {
			o.Problems = append(o.Problems, deadProblem(c, store.NormalizeCause(c.Cause), o.At))
		}
	}
	counts, err := s.store.CountSagas(ctx)
	if err != nil {
		return err
	}
	for _, c := range counts {
		o.OpenSagas += c.Count
		if c.Status == store.SagaStuck {
			o.StuckSagas += c.Count
		}
	}
	if o.StuckSagas > 0 {
		o.Problems = append(o.Problems, Problem{
			Tone: Bad, Status: "Stuck", Text: plural(o.StuckSagas, "saga is", "sagas are") + " stuck",
			Detail: "attempts are used up; an operator decides", Path: "/sagas", Button: "Open sagas",
		})
	}
	return nil
}

// problem says what is wrong with a relay, if it needs a person.
func (i *RelayInfo) problem(target time.Duration) (p Problem, ok bool) {
	p = Problem{Tone: i.Status.Tone(), Status: string(i.Status), Path: RelayPath(i.Name), Button: "Open " + i.Name}
	waiting := Number(i.Waiting) + " " + map[bool]string{true: "message waits", false: "messages wait"}[i.Waiting.N == 1] + ", in order"
	aged := "the oldest undelivered message is " + Duration(i.Oldest) + " old"
	switch i.Status {
	case NotRunning:
		p.Text, p.Detail = "No process runs "+i.Name, waiting+" · "+aged
	case Down:
		d := i.DestinationOf()
		p.Text, p.Cause = i.Name+" cannot reach its destination", d.Error
		p.Detail = "for " + Duration(d.For) + " · " + waiting + " · retried automatically"
	case Waiting:
		g := i.GateOf()
		p.Text = i.Name + " waits for " + cmp.Or(g.On, "what its handlers need")
		p.Detail = "for " + Duration(g.For) + " · " + waiting + " · continues automatically"
	case Stalled:
		p.Text, p.Detail = i.Name+" has settled nothing for more than 2 min", waiting+" · its processes run"
	case Late:
		p.Text, p.Detail = i.Name+" is behind its target of "+Duration(target), aged+" · "+waiting
		if held := i.RelayStatus.Held; held.N > 0 {
			p.Detail += " · " + Number(held) + " held " + keys(held)
		}
	case Holding: // a key that is held for a moment is none
		if i.Oldest <= target {
			return p, false
		}
		held := i.RelayStatus.Held
		p.Tone, p.Text = Warn, i.Name+" holds "+Number(held)+" "+keys(held)
		p.Detail = "the longest for " + Duration(i.OldestHeld) + " · " + waiting
	case Failing:
		p.Text = fmt.Sprintf("%.0f%% of the attempts of %s fail", 100*i.FailedShare, i.Name)
		p.Detail = fmt.Sprintf("of %d attempts in the last 5 min · %s", i.Attempts, waiting)
	default:
		return p, false
	}
	return p, true
}

func keys(c store.Count) string {
	if c.N == 1 && !c.AtLeast {
		return "key"
	}
	return "keys"
}

// stillHappening is how long ago the newest dead letter of a cause is at most that is likely not the last one.
const stillHappening = 10 * time.Minute

func deadProblem(c store.CauseCount, cause string, now time.Time) Problem {
	deadLetters, before := " dead letters", ""
	if c.AtLeast {
		before = " or before"
	} else if c.DeadLetters == 1 {
		deadLetters = " dead letter"
	}
	p := Problem{
		Tone: Warn, Status: "Failed for good", Text: Number(c.Count()) + deadLetters + " from " + c.Relay,
		Cause: cmp.Or(cause, c.Reason), Path: GroupPath(c), Button: "Review " + Number(c.Count()),
		Detail: c.Type + " · first " + Duration(now.Sub(c.Oldest)) + " ago" + before + ", last " + Duration(now.Sub(c.Newest)) + " ago",
	}
	if now.Sub(c.Newest) < stillHappening {
		p.Status = "Likely still happening"
	}
	return p
}

// sentence sets Title and Text.
func (o *Overview) sentence(name string) {
	bad, waiting, rate, measured := 0, int64(0), 0.0, false
	old := time.Duration(0)
	var late []string
	for _, r := range o.Relays {
		waiting += r.Waiting.N
		if old = max(old, r.Oldest); r.Status.needsAttention() {
			bad++
			late = append(late, r.Name)
		}
		if r.PerSecond >= 0 {
			rate, measured = rate+r.PerSecond, true
		}
	}
	switch {
	case len(o.Relays) == 0:
		o.Title, o.Text = "No relay has run yet", "Messages are stored safely until one does."
	case len(o.Problems) > 0:
		o.Title = plural(int64(len(o.Problems)), "problem", "problems") + " in " + name
		switch {
		case bad == 0:
			o.Text = "Everything else is being delivered."
		case bad < len(o.Relays):
			o.Text = Listed(late) + map[bool]string{true: " needs", false: " need"}[bad == 1] + " attention. All others are on time."
		}
	case waiting == 0 && rate == 0:
		o.Title, o.Text = "Nothing to deliver", "Every message has been delivered."
	default:
		o.Title = "Everything is being delivered"
		o.Text = "Oldest undelivered message " + Duration(old) + "."
		if measured && rate > 0 {
			o.Text += " " + Rate(rate) + " messages."
		}
	}
}

func sum(a, b store.Count) store.Count {
	return store.Count{N: a.N + b.N, AtLeast: a.AtLeast || b.AtLeast}
}
