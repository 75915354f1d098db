package saga

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/store"
)

const (
	// readWait and maxReadWait are the least and the most that a timer of a contract waits for the sources to be read, see readAgain.
	readWait, maxReadWait = 250 * time.Millisecond, time.Minute
	// readRetry is the wait before a source is asked again that failed, backlogPoll the least between two looks at a backlog.
	readRetry, backlogPoll = time.Second, 100 * time.Millisecond
	// backlogShare limits the looks to this share of the time: they cost most when much waits, and would keep it waiting.
	backlogShare = 20
)

// sources are the relays and consumers that bring the events of contracts. A timeout of a contract is decided only after everything
// has been read that they had when it was over: an event may have happened in time, and wait in a broker. They are asked only when
// a timer is due.
type sources struct {
	grace time.Duration
	mu    sync.Mutex
	all   []*source
}

// source is one relay or consumer of this process.
type source struct {
	asked chan struct{} // of capacity 1
	since time.Time     // when it was first asked after its last answer; zero if it was not
	began time.Time     // when it began to read; zero before
	until time.Time     // everything up to then has been read
	mute  bool          // it cannot say
}

// add adds a source, whose catchUp returns once everything has been read that the source has when it is called. It returns what runs
// while the source is read.
func (s *sources) add(catchUp func(ctx context.Context) error, log *slog.Logger) func(ctx context.Context) {
	src := &source{asked: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, src)
	return func(ctx context.Context) {
		s.set(func() { src.began = time.Now() })
		defer s.set(func() { src.began, src.until = time.Time{}, time.Time{} })
		for {
			select {
			case <-ctx.Done():
				return
			case <-src.asked:
			}
			at := time.Now()
			switch err := catchUp(ctx); {
			case err == nil:
				s.set(func() { src.until, src.since = at, time.Time{} })
			case errors.Is(err, inbox.ErrNoEnd):
				s.set(func() { src.mute = true })
			case ctx.Err() == nil:
				log.Warn("saga: nobody can say whether all events were read, so timeouts of contracts wait", "error", err)
				attempt.Sleep(ctx, readRetry)
			}
		}
	}
}

func (s *sources) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// ask asks all sources to catch up. It returns for how long one of them has been asked without success.
func (s *sources) ask() (inVain time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, src := range s.all {
		if s.assumed(src, now) {
			src.since = time.Time{}
			continue
		}
		if src.since.IsZero() {
			src.since = now
		}
		inVain = max(inVain, now.Sub(src.since))
		select {
		case src.asked <- struct{}{}:
		default: // asked already
		}
	}
	return inVain
}

// assumed says whether a source cannot say how far it has been read, and counts as read up to now.
func (s *sources) assumed(src *source, now time.Time) bool {
	return src.mute && !src.began.IsZero() && now.Sub(src.began) >= s.grace
}

// readUpTo returns the age up to which all sources have been read, of an instance of an age. One that cannot say counts as read up to
// now once it has been read for the grace. Without a source, nothing is known.
func (s *sources) readUpTo(age time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return 0
	}
	now, lag := time.Now(), time.Duration(0)
	for _, src := range s.all {
		switch {
		case src.began.IsZero():
			return 0
		case s.assumed(src, now):
		case src.until.IsZero():
			return 0
		default:
			lag = max(lag, now.Sub(src.until))
		}
	}
	return age - lag
}

// readAgain is how long a timer waits again that has waited for the sources for a time: a quarter of that, so that an outage does not cost
// each of many timers a transaction four times a second. A timer that is late since this process was away has not waited for them.
func readAgain(waited time.Duration) time.Duration { return min(max(readWait, waited/4), maxReadWait) }

// backlogOf catches up with the backlog of a relay, in all processes.
func backlogOf(r store.StatusReader, name string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for at := time.Now(); ; {
			asked := time.Now()
			status, err := r.Status(ctx)
			if err != nil {
				return err
			}
			for i := range status.Relays {
				if relay := &status.Relays[i]; relay.Name == name && (relay.Backlog.N == 0 || relay.Age < asked.Sub(at)) {
					return nil
				}
			}
			if !attempt.Sleep(ctx, max(backlogPoll, backlogShare*time.Since(asked))) {
				return ctx.Err()
			}
		}
	}
}
