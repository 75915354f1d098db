package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postrider/postrider"
)

// destination is a broker, or the code of a handler, that fails at random until the faults stop. Its log has two entries for a
// message that gets through: "tried" when processing begins, "taken" when its side effect has run.
type destination struct {
	*model
	mu   sync.Mutex
	rng  *rand.Rand
	away int // calls for which the broker is still unavailable
	log  journal
}

func (d *destination) Capabilities() postrider.Capabilities {
	return postrider.Capabilities{Ordered: true}
}

// roll returns a random number as long as there are faults; afterwards always 0.
func (d *destination) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calm.Load() {
		return 0
	}
	return d.rng.IntN(n)
}

// handler returns the destination as a handler; nil if it is a broker.
func (d *destination) handler() postrider.Handler {
	if d.cfg.Publisher != nil {
		return nil
	}
	return func(ctx context.Context, m *postrider.Message) error {
		d.log.note(m, "tried")
		err := d.handle(ctx, m)
		if err == nil || err == errDone {
			d.log.note(m, "taken")
		}
		d.judged(m, err)
		return err
	}
}

// errDone is an error although the side effect has run.
var errDone = errors.New("done, but it does not look so")

func (d *destination) handle(ctx context.Context, m *postrider.Message) error {
	takes := d.roll(5)
	switch d.roll(24) {
	case 1, 2:
		return errRefused
	case 3:
		return postrider.Retry(time.Duration(d.roll(50))*time.Millisecond, errRefused)
	case 4:
		return postrider.Snooze(time.Duration(1+d.roll(50)) * time.Millisecond)
	case 5:
		return postrider.Dead("unlucky", errRefused)
	case 6:
		d.judged(m, errRefused)
		panic("unlucky")
	case 7:
		return postrider.Unavailable(errRefused)
	case 8:
		return errDone
	case 9:
		takes = d.roll(400) // longer than ParkAfter, and at times than a lease
	}
	return d.work(ctx, time.Duration(takes)*time.Millisecond)
}

// judged logs a message that its outcome sends to the dead letters. From then on the message is out of the order of its key, even
// if the process dies before that is recorded and the message is redelivered.
func (d *destination) judged(m *postrider.Message, err error) {
	o := postrider.OutcomeOf(err)
	if o.Kind == postrider.DeadLettered || o.Kind == postrider.Retried && m.Attempt >= d.cfg.MaxAttempts {
		d.log.note(m, "dead")
	}
}

// work waits for the given time, unless the call is cancelled.
func (d *destination) work(ctx context.Context, takes time.Duration) error {
	t := time.NewTimer(takes)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Publish makes the destination a broker.
func (d *destination) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	errs := d.publish(ctx, msgs)
	for i, err := range errs {
		d.judged(msgs[i], err)
	}
	return errs
}

func (d *destination) publish(ctx context.Context, msgs []*postrider.Message) []error {
	fate := d.roll(16)
	if fate == 1 {
		d.leave(1 + d.roll(6))
	}
	if d.isAway() {
		d.accept(msgs[:d.roll(2)*d.roll(len(msgs)+1)]) // it may have become unavailable in the middle of the batch
		return all(msgs, postrider.Unavailable(errRefused))
	}
	switch fate {
	case 2, 3:
		return d.refuse(msgs, d.roll(len(msgs)), errRefused)
	case 4:
		return d.refuse(msgs, d.roll(len(msgs)), postrider.Dead("unlucky", errRefused))
	case 5:
		return all(msgs, errRefused)
	case 6: // all accepted, but no response
		d.accept(msgs)
		return all(msgs, errDone)
	case 7:
		for _, m := range msgs {
			d.judged(m, errRefused)
		}
		panic("unlucky")
	case 8:
		if err := d.work(ctx, time.Duration(d.roll(400))*time.Millisecond); err != nil {
			return all(msgs, err)
		}
	}
	d.accept(msgs)
	return nil
}

func (d *destination) leave(calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = calls
}

func (d *destination) isAway() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calm.Load() || d.away == 0 {
		return false
	}
	d.away--
	return true
}

// accept takes messages in order. For a broker, processing begins at that moment too.
func (d *destination) accept(msgs []*postrider.Message) {
	for _, m := range msgs {
		d.log.note(m, "tried")
		d.log.note(m, "taken")
	}
}

// refuse accepts a batch except for one message and the later messages of its key.
func (d *destination) refuse(msgs []*postrider.Message, at int, err error) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		switch {
		case i == at:
			errs[i] = err
		case i > at && m.Key != "" && m.Key == msgs[at].Key:
			errs[i] = postrider.PredecessorFailed(msgs[at], err)
		default:
			d.accept(msgs[i : i+1])
		}
	}
	return errs
}
