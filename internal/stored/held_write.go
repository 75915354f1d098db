package stored

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postrider/postrider/store"
)

// Hold holds a key, or changes why it is held, at a time in microseconds. isOpen is a statement that says whether there is an open dead
// letter: relay, partition, sequence. hold sets a held key: relay, key, partition, sequence, reason, cause, attempts, since, due.
func (t Tx) Hold(ctx context.Context, isOpen, hold, relay string, partition int, h store.HeldKey, now int64) error {
	due := sql.Null[int64]{V: now + h.After.Microseconds(), Valid: true}
	if h.UntilDecided {
		var open bool
		if err := t.Get(ctx, isOpen, []any{relay, partition, h.Sequence}, &open); err != nil {
			return err
		}
		due = sql.Null[int64]{V: now, Valid: !open}
	}
	_, err := t.Exec(ctx, hold, relay, h.Key, partition, h.Sequence, string(h.Reason), Cause(h.Cause), h.Attempts, now, due)
	return err
}

// FindHead makes the first queued message of a key its blocking message, and reports whether there is one. first selects it: relay,
// key; block changes the held key: relay, key, sequence, reason, attempts.
func (t Tx) FindHead(ctx context.Context, first, block, relay, key string) (bool, error) {
	var seq int64
	var reason string
	var attempts int
	err := t.Get(ctx, first, []any{relay, key}, &seq, &reason, &attempts)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = t.Exec(ctx, block, relay, key, seq, reason, attempts)
	return true, err
}
