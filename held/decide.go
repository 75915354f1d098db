package held

import (
	"context"
	"errors"

	"github.com/postrider/postrider/store"
)

// applyToKey applies a decision about a held key, or returns why it is refused. The key stays held and is due at once, so that
// the process that holds its partition continues or releases it.
func applyToKey(ctx context.Context, w store.Writer, d *store.Decision) (refused string, err error) {
	h, err := w.LockHeld(ctx, d.Relay, d.Key)
	if errors.Is(err, store.ErrNotHeld) {
		return store.ErrNotHeld.Error(), nil
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
	blocking := store.ParkedChoice{Relay: d.Relay, Partition: h.Partition, Key: d.Key, Sequence: h.Sequence}
	switch {
	case d.Verb == store.VerbRetry:
	case d.Verb == store.VerbSkip && undecided: // its dead letter is not parked
		blocking.Key = ""
		d.Count, err = w.DiscardOpen(ctx, blocking, d.By, d.Reason)
	case d.Verb == store.VerbSkip:
		d.Count, err = w.DeadLetterParked(ctx, blocking, skipped(d, h.Cause))
	case d.Verb == store.VerbDead:
		d.Count, err = w.DeadLetterParked(ctx, blocking, moved(d, h.Cause))
	case d.Verb == store.VerbDeadAll:
		queued := blocking
		queued.Sequence = 0
		d.Count, err = w.DeadLetterParked(ctx, queued, moved(d, h.Cause))
	default:
		return unknownVerb(d), nil
	}
	if err != nil {
		return "", err
	}
	if d.Verb != store.VerbRetry && d.Count == 0 && !undecided { // a consumer has processed it since the key was locked
		refused = store.Unblocked
	}
	return refused, w.ResumeHeld(ctx, h)
}

// applyToMessage applies a decision about a parked message that waits by itself, or returns why it is refused.
func applyToMessage(ctx context.Context, w store.Writer, d *store.Decision) (refused string, err error) {
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
		return store.ErrNoParked.Error(), nil
	}
	message := store.ParkedChoice{Relay: d.Relay, Partition: d.Partition, Sequence: d.Sequence}
	var n int
	switch d.Verb {
	case store.VerbRetry:
		n, err = w.RetryParked(ctx, message)
	case store.VerbSkip:
		n, err = w.DeadLetterParked(ctx, message, skipped(d, cause))
		d.Count = n
	case store.VerbDead:
		n, err = w.DeadLetterParked(ctx, message, moved(d, cause))
		d.Count = n
	default:
		return unknownVerb(d), nil
	}
	if err == nil && n == 0 { // another transaction has removed it meanwhile
		refused = store.ErrNoParked.Error()
	}
	return refused, err
}

// skipped says what becomes of a message that is skipped.
func skipped(d *store.Decision, cause string) store.MovedToDead {
	return store.MovedToDead{Reason: "skipped", Cause: cause, State: store.DeadDiscarded, By: d.By, Resolution: d.Reason}
}

// moved says what becomes of messages that an operator moves to the dead letters.
func moved(d *store.Decision, cause string) store.MovedToDead {
	return store.MovedToDead{Reason: d.Reason, Cause: cause, Entry: "moved to the dead letters by " + d.By, State: store.DeadOpen}
}

func unknownVerb(d *store.Decision) string {
	return "there is no decision " + string(d.Verb) + " about this"
}
