package held

import (
	"context"
	"errors"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

// applyToKey applies a decision about a held key, or returns why it is refused. The key stays held and is due at once, so that
// the process that holds its partition continues or releases it.
func applyToKey(ctx context.Context, w Writer, d *relay.Decision) (refused string, err error) {
	h, err := w.LockHeld(ctx, d.Relay, d.Key)
	if errors.Is(err, relay.ErrNotHeld) {
		return relay.ErrNotHeld.Error(), nil
	}
	if err != nil {
		return "", err
	}
	undecided := h.NextAttempt.IsZero()
	if refused := d.Refused(h.MessageID, undecided); refused != "" {
		if h.MessageID == "" && !undecided { // a consumer has processed it: the key need not wait for the next attempt
			err = w.ResumeHeld(ctx, h)
		}
		return refused, err
	}
	blocking := Choice{Relay: d.Relay, Partition: h.Partition, Key: d.Key, Sequence: h.Sequence}
	switch {
	case d.Verb == relay.VerbRetry:
	case d.Verb == relay.VerbSkip && undecided: // its dead letter is not parked
		blocking.Key = ""
		d.Count, err = w.DiscardOpen(ctx, blocking, d.By, d.Reason)
	case d.Verb == relay.VerbSkip:
		d.Count, err = w.DeadLetterParked(ctx, blocking, skipped(d, h.Cause))
	case d.Verb == relay.VerbDead:
		d.Count, err = w.DeadLetterParked(ctx, blocking, moved(d, h.Cause))
	case d.Verb == relay.VerbDeadAll:
		queued := blocking
		queued.Sequence = 0
		d.Count, err = w.DeadLetterParked(ctx, queued, moved(d, h.Cause))
	default:
		return unknownVerb(d), nil
	}
	if err != nil {
		return "", err
	}
	if d.Verb != relay.VerbRetry && d.Count == 0 && !undecided { // a consumer has processed it since the key was locked
		refused = relay.Unblocked
	}
	return refused, w.ResumeHeld(ctx, h)
}

// applyToMessage applies a decision about a parked message that waits by itself, or returns why it is refused.
func applyToMessage(ctx context.Context, w Writer, d *relay.Decision) (refused string, err error) {
	found, err := w.ParkedByID(ctx, d.Relay, d.MessageID)
	if err != nil {
		return "", err
	}
	cause, there := "", false
	for _, p := range found {
		if p.Message.Sequence == d.Sequence && p.Partition == d.Partition && !p.DueAt.IsZero() {
			cause, there = p.Cause(), true
		}
	}
	if !there {
		return relay.ErrNoParked.Error(), nil
	}
	message := Choice{Relay: d.Relay, Partition: d.Partition, Sequence: d.Sequence}
	n := 0
	switch d.Verb {
	case relay.VerbRetry:
		n, err = w.RetryParked(ctx, message)
	case relay.VerbSkip:
		n, err = w.DeadLetterParked(ctx, message, skipped(d, cause))
		d.Count = n
	case relay.VerbDead:
		n, err = w.DeadLetterParked(ctx, message, moved(d, cause))
		d.Count = n
	default:
		return unknownVerb(d), nil
	}
	if err == nil && n == 0 { // another transaction has removed it meanwhile
		refused = relay.ErrNoParked.Error()
	}
	return refused, err
}

// skipped says what becomes of a message that is skipped.
func skipped(d *relay.Decision, cause string) Dead {
	return Dead{Reason: "skipped", Cause: cause, State: deadletter.Discarded, By: d.By, Resolution: d.Reason}
}

// moved says what becomes of messages that an operator moves to the dead letters.
func moved(d *relay.Decision, cause string) Dead {
	return Dead{Reason: d.Reason, Cause: cause, Entry: "moved to the dead letters by " + d.By, State: deadletter.Open}
}

func unknownVerb(d *relay.Decision) string {
	return "there is no decision " + string(d.Verb) + " about this"
}
