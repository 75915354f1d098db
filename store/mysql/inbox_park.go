package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const kindOfSQL = `SELECT kind FROM {prefix}cursors WHERE relay = ? LIMIT 1`

// Enroll implements store.Parker. It registers the name before it checks the kind, so that it sees a relay that began at the
// same time under this name.
func (s *Store) Enroll(ctx context.Context, consumer string) error {
	return s.write(ctx, fmt.Sprintf("enroll consumer %q", consumer), func(t txn) error {
		if err := t.begun(); err != nil {
			return err
		}
		for p := range s.number() {
			if _, err := t.exec(ctx, beginSQL, consumer, p, string(store.KindConsumer), 0, "", t.now, t.incarnation); err != nil {
				return err
			}
		}
		var kind store.Kind
		if err := t.get(ctx, kindOfSQL, []any{consumer}, &kind); err != nil {
			return err
		}
		return kind.Check(store.KindConsumer)
	})
}

const (
	// holdKeySQL creates a held key or locks the existing one. If that one is being released, it waits and recreates the key. A
	// new key has no blocking message (seq 0) until its sequence is drawn.
	holdKeySQL = `INSERT INTO {prefix}held (relay, message_key, partition_id, seq, reason, cause, attempts, since, due_at)
		VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE relay = VALUES(relay)`
	headSQL     = `UPDATE {prefix}held FORCE INDEX (PRIMARY) SET seq = ?3 WHERE relay = ?1 AND message_key = ?2 AND seq = 0`
	deadHeadSQL = headSQL + ` AND due_at IS NULL` // of a key that was not held: others with seq 0 are due
	// A multi-row INSERT takes consecutive sequences. They are deleted with a limit, as in dropSQL: the next row is that of
	// another consumer.
	drawSQL   = `INSERT INTO {prefix}aside (seq) VALUES `
	undrawSQL = `DELETE FROM {prefix}aside WHERE seq >= ? ORDER BY seq LIMIT ?`

	parkSQL       = `INSERT INTO {prefix}parked (` + copiedColumns + `) VALUES `
	parkRow       = `(?, ?, ?` + questionMarks + `, ?, ?, ?, ?, 0, ?)`
	deadLetterSQL = `INSERT INTO {prefix}dead (` + deadCopyColumns + `, resolved_at) VALUES `
	deadLetterRow = `(?, ?, ?` + questionMarks + `, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

// toPark is a message that a consumer parks or dead-letters.
type toPark struct {
	msg         *postrider.Message
	insert, row string         // the statement that writes it
	values      []any          // the columns after the message's
	hold        *store.HeldKey // how its key is held unless it is already held; nil: not held
}

// Park implements store.Parker.
func (s *Store) Park(ctx context.Context, tx *sql.Tx, consumer string, failed []store.ParkRequest) error {
	return s.within("park messages", tx, func(t txn) error {
		if err := t.look(ctx); err != nil {
			return err
		}
		list := make([]toPark, len(failed))
		for i := range failed {
			list[i] = t.toPark(consumer, &failed[i])
		}
		return t.s.cfg.storable(t.writeFailed(ctx, consumer, list))
	})
}

func (t txn) toPark(consumer string, p *store.ParkRequest) toPark {
	m, h := p.Message, store.HeldKey{Reason: p.Reason, Cause: p.Why(), Attempts: len(p.Attempts), After: p.After}
	a := toPark{msg: m, insert: parkSQL, row: parkRow}
	if d := p.Dead; d != nil {
		h.Reason, h.UntilDecided = store.ParkDead, true
		cause := stored.Cause(p.Cause)
		a.insert, a.row = deadLetterSQL, deadLetterRow
		a.values = []any{len(p.Attempts), t.history(p.Attempts, ""), d.Reason, cause, store.Fingerprint(cause), t.now}
		a.values = append(a.values, stored.Resolution(d.Discarded, consumer, d.Reason, t.now)...)
	} else {
		due := sql.Null[int64]{V: t.now + p.After.Microseconds(), Valid: m.Key == ""}
		a.values = []any{string(p.Reason), len(p.Attempts), due, t.now, t.history(p.Attempts, p.Cause)}
	}
	if p.HoldsKey() {
		a.hold = &h
	}
	return a
}

// history returns the history of a message that is parked or dead-lettered.
func (t txn) history(attempts []store.FailedAttempt, cause string) string {
	entries := make([]postrider.AttemptInfo, len(attempts))
	for i, a := range attempts {
		entries[i] = postrider.AttemptInfo{
			Attempt: i + 1, At: stored.Time(t.now - a.Ago.Microseconds()), Cause: stored.Cause(a.Cause),
		}
	}
	if cause != "" {
		entries = append(entries, postrider.AttemptInfo{At: stored.Time(t.now), Cause: stored.Cause(cause)})
	}
	return encodeHistory(entries)
}

// writeFailed locks the keys in sorted order, then draws sequences, so that the sequences of a key rise in the order of its lock,
// then writes the messages in their order.
func (t txn) writeFailed(ctx context.Context, consumer string, list []toPark) error {
	if len(list) == 0 {
		return nil
	}
	keys, err := t.holdKeys(ctx, consumer, list)
	if err != nil {
		return err
	}
	res, err := t.run(ctx, drawSQL+`(NULL)`+strings.Repeat(`, (NULL)`, len(list)-1))
	if err != nil {
		return err
	}
	first, err := res.LastInsertId()
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, undrawSQL, first, len(list)); err != nil {
		return err
	}
	if err := t.insertFailed(ctx, consumer, list, first); err != nil {
		return err
	}
	for i, a := range slices.Backward(list) {
		if err := t.setHead(ctx, consumer, a, first+int64(i), keys[a.msg.Key] == i); err != nil {
			return err
		}
	}
	return nil
}

// setHead makes a message the blocking message of its key, if it is the first that holds it and the key was not held before. Errors:
// store.ErrKeyHeld, if it is a dead letter and cannot be.
func (t txn) setHead(ctx context.Context, consumer string, a toPark, seq int64, first bool) error {
	switch {
	case a.hold == nil, !first && !a.hold.UntilDecided:
		return nil
	case !a.hold.UntilDecided:
		_, err := t.exec(ctx, headSQL, consumer, a.msg.Key, seq)
		return err
	case first:
		if n, err := t.exec(ctx, deadHeadSQL, consumer, a.msg.Key, seq); err != nil || n == 1 {
			return err
		}
	}
	return fmt.Errorf("dead-letter message %s: %w", a.msg.ID, store.ErrKeyHeld)
}

// insertAtOnce is how many messages one statement parks or dead-letters.
const insertAtOnce = 100

// insertFailed writes messages with sequences from first on, in statements that the server takes.
func (t txn) insertFailed(ctx context.Context, consumer string, list []toPark, first int64) error {
	limit := min(insertBytes, t.s.mostBytes())
	var rows []string
	var params []any
	size, insert := 0, ""
	flush := func() error {
		if len(rows) == 0 {
			return nil
		}
		_, err := t.send(ctx, &statement{text: t.s.expand(insert) + strings.Join(rows, `, `), params: params})
		rows, params, size = nil, nil, 0
		return err
	}
	for _, insert = range [...]string{parkSQL, deadLetterSQL} {
		for i, a := range list {
			if a.insert != insert {
				continue
			}
			partition := postrider.PartitionOf(a.msg.Key, a.msg.ID, t.partitions)
			values, err := stored.Append([]any{consumer, partition, first + int64(i)}, a.msg, t.now)
			if err != nil {
				return fmt.Errorf("message %s: %w", a.msg.ID, err)
			}
			var one statement
			one.add(a.row, append(values, a.values...))
			if len(rows) == insertAtOnce || len(rows) > 0 && size+one.size() > limit {
				if err := flush(); err != nil {
					return err
				}
			}
			rows, params, size = append(rows, one.text), append(params, one.params...), size+one.size()
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

// holdKeys holds or locks the keys of messages that have hold set. It returns the index of the first such message of each key,
// which determines how the key is held.
func (t txn) holdKeys(ctx context.Context, consumer string, list []toPark) (map[string]int, error) {
	first := make(map[string]int)
	var keys []string
	for i, a := range list {
		if _, again := first[a.msg.Key]; a.hold != nil && !again {
			first[a.msg.Key] = i
			keys = append(keys, a.msg.Key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		h := list[first[key]].hold
		partition := postrider.PartitionOf(key, "", t.partitions)
		due := sql.Null[int64]{V: t.now + h.After.Microseconds(), Valid: !h.UntilDecided}
		_, err := t.exec(ctx, holdKeySQL, consumer, key, partition, string(h.Reason), stored.Cause(h.Cause), h.Attempts, t.now, due)
		if err != nil {
			return nil, err
		}
	}
	return first, nil
}

const (
	lockTakenSQL = `SELECT {now} - parked_at FROM {prefix}parked FORCE INDEX (PRIMARY)
		WHERE relay = ? AND seq = ? AND id = ? FOR UPDATE`
)

// Take implements store.Parker.
func (s *Store) Take(ctx context.Context, tx *sql.Tx, consumer string, m *postrider.Message) (store.TakeResult, error) {
	var taken store.TakeResult
	err := s.within("take a parked message", tx, func(t txn) error {
		var since int64
		err := t.get(ctx, lockTakenSQL, []any{consumer, m.Sequence, m.ID}, &since)
		if err != nil {
			return stored.OrNone(err)
		}
		taken = store.TakeResult{Found: true, ParkedFor: stored.Duration(since)}
		_, err = t.exec(ctx, unparkSQL, consumer, m.Sequence)
		return err
	})
	return taken, err
}
