package admin

import (
	"context"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// oldestOf are the sequences of the oldest dead letters of keys, by relay.
type oldestOf map[string]map[string]int64

// add notes a dead letter. What a consumer received, or what was imported, has no place in the log of this outbox.
func (o oldestOf) add(l store.DeadLetter) {
	m := l.Message
	if l.Side != store.KindRelay || m.Key == "" || m.Sequence <= 0 {
		return
	}
	if o[l.Relay] == nil {
		o[l.Relay] = make(map[string]int64)
	}
	if seq, known := o[l.Relay][m.Key]; !known || m.Sequence < seq {
		o[l.Relay][m.Key] = m.Sequence
	}
}

const (
	// newerPage is how many messages of the log are read at a time, newerPages how many times.
	newerPage, newerPages = 1_000, 20
)

// newer counts the keys of which a newer message was delivered; more: the log has messages that were not looked at.
func (s *Service) newer(ctx context.Context, oldest oldestOf) (keys int, more bool, err error) {
	pages := newerPages
	for relay, left := range oldest {
		q := store.LogQuery{Relay: relay, After: -1, Limit: newerPage}
		for _, seq := range left {
			if q.After < 0 || seq < q.After {
				q.After = seq
			}
		}
		err := s.store.View(ctx, store.Operation{Method: "StartReview", Doing: "look for newer messages"}, func(r store.Reader) (err error) {
			read, err := r.RelayLog(ctx, relay)
			if err != nil {
				return err
			}
			q.UpTo = read.Position
			for ; len(left) > 0 && q.After < q.UpTo && pages > 0; pages-- {
				page, err := r.Logged(ctx, q)
				if err != nil {
					return err
				}
				for _, m := range page.Messages {
					if seq, looked := left[m.Key]; looked && m.Sequence > seq && m.Delivered {
						delete(left, m.Key)
						keys++
					}
				}
				q.After = page.Last
			}
			more = more || len(left) > 0 && q.After < q.UpTo
			return nil
		})
		if err != nil {
			return 0, false, err
		}
	}
	return keys, more, nil
}

// looked is how many of the dead letters a review looks at one by one.
const looked = 1_000

// inspect counts keys, and what a redrive leaves out.
func (s *Service) inspect(ctx context.Context, r *Review) error {
	keys, oldest, plan := make(map[string]bool), make(oldestOf), deadletter.Plan{Filter: r.Filter}
	for l, err := range s.dead().ListDead(ctx, r.Filter, 0, looked) {
		if err != nil {
			return err
		}
		if l.Message.Key != "" {
			keys[l.Message.Key] = true
		}
		if r.Action == ReviewRedrive && !plan.Allows(l.Redrives) {
			r.LeftOut++
			continue
		}
		oldest.add(l)
	}
	if r.Keys = len(keys); r.Action != ReviewRedrive {
		return nil
	}
	var err error
	r.Newer, r.NewerMore, err = s.newer(ctx, oldest)
	return err
}
