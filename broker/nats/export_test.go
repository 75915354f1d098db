package natsbroker

import "time"

// LookAgain makes the publisher read the stream's configuration before the next call.
func LookAgain(p *Publisher) { p.batches.until.Store(0) }

// LookEvery sets how often readers of a set and subscriptions look at the stream's subjects.
func LookEvery(s *Subscriber, every time.Duration) { s.subjectsEvery, s.filtersEvery = every, every }
