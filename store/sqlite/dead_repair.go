package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/stored"
)

const (
	unmarkedExistSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}dead WHERE fingerprint = '' AND cause <> '')`
	unmarkedSQL      = `SELECT number, cause FROM {prefix}dead WHERE fingerprint = '' AND cause <> '' ORDER BY number LIMIT 1000`
	markCauseSQL     = `UPDATE {prefix}dead SET fingerprint = ? WHERE number = ?`
	causesSQL        = `SELECT g.*, d.reason, d.cause FROM (
			SELECT relay, type, fingerprint, count(*) AS letters, min(died_at), max(died_at), max(number) AS last
			FROM {prefix}dead WHERE `
	causesEndSQL = ` GROUP BY relay, type, fingerprint ORDER BY letters DESC, last LIMIT +?) g
		JOIN {prefix}dead d ON d.number = g.last ORDER BY g.letters DESC, g.last`
)

// markCauses computes the fingerprints that the filter needs and that are still missing. Only a program can compute them, so the
// SQL that dead-letters messages leaves them empty.
func (s *Store) markCauses(ctx context.Context, f deadletter.Filter) error {
	if f.Fingerprint == "" {
		return nil
	}
	return s.markAllCauses(ctx)
}

func (s *Store) markAllCauses(ctx context.Context) error {
	for missing := true; ; {
		err := s.read(ctx, "look for fingerprints", func(t txn) error { return t.get(ctx, unmarkedExistSQL, nil, &missing) })
		if err != nil || !missing {
			return err
		}
		err = s.write(ctx, "compute fingerprints", relaxed, func(t txn) error {
			causes := make(map[int64]string)
			err := t.each(ctx, unmarkedSQL, nil, func(rows *sql.Rows) error {
				var number int64
				var cause string
				err := rows.Scan(&number, &cause)
				causes[number] = cause
				return err
			})
			for number, cause := range causes {
				if err == nil {
					_, err = t.exec(ctx, markCauseSQL, deadletter.Fingerprint(cause), number)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// CountCauses implements deadletter.RepairStore.
func (s *Store) CountCauses(ctx context.Context, f deadletter.Filter, limit int) (out []deadletter.CauseCount, err error) {
	if err := s.markAllCauses(ctx); err != nil {
		return nil, err
	}
	where, args := condition(f)
	err = s.read(ctx, "count causes", func(t txn) error {
		out = nil
		return t.each(ctx, causesSQL+where+causesEndSQL, append(args, limit), func(rows *sql.Rows) error {
			var c deadletter.CauseCount
			var oldest, newest int64
			err := rows.Scan(&c.Relay, &c.Type, &c.Fingerprint, &c.DeadLetters, &oldest, &newest, &c.Number, &c.Reason, &c.Cause)
			c.Oldest, c.Newest = stored.Time(oldest), stored.Time(newest)
			out = append(out, c)
			return err
		})
	})
	return out, err
}

const (
	// Keeps the previous content exactly as stored, even if it cannot be read.
	keepEditSQL = `INSERT INTO {prefix}dead_edits (number, n, edited_at, edited_by, why, headers, payload)
		SELECT number, edits + 1, ?2, ?3, ?4, headers, payload FROM {prefix}dead WHERE number = ?1`
	editSQL = `UPDATE {prefix}dead SET edits = edits + 1, headers = coalesce(?2, headers), payload = coalesce(?3, payload)
		WHERE number = ?1`
	listEditsSQL = `SELECT edited_at, edited_by, why, headers, payload FROM {prefix}dead_edits WHERE number = ? ORDER BY n`
)

// EditDead implements deadletter.RepairStore.
func (s *Store) EditDead(ctx context.Context, number int64, e deadletter.Edit) (l deadletter.Record, err error) {
	err = s.write(ctx, "edit a dead letter", durable, func(t txn) error {
		if _, err := t.openLetter(ctx, number); err != nil {
			return err
		}
		found, err := t.letters(ctx, showDeadSQL, []any{number})
		if err != nil {
			return err
		}
		if l = found[0]; l.Edits != e.Seen {
			return deadletter.RefuseEdited(number, e.Seen, l.Edits)
		}
		if _, err := e.Apply(l.Message); err != nil {
			return fmt.Errorf("dead letter %d: %w", number, err)
		}
		if _, err := t.exec(ctx, keepEditSQL, number, t.now, e.By, e.Why); err != nil {
			return err
		}
		headers := sql.Null[string]{Valid: e.Headers != nil}
		if headers.V, err = headerText(e.Headers); err != nil {
			return err
		}
		if _, err := t.exec(ctx, editSQL, number, headers, e.Payload); err != nil {
			return err
		}
		found, err = t.letters(ctx, showDeadSQL, []any{number})
		if err == nil {
			l = found[0]
		}
		return err
	})
	return l, err
}

// headerText encodes headers as they are stored.
func headerText(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "{}", nil
	}
	text, err := json.Marshal(headers)
	return string(text), err
}

// ListEdits implements deadletter.RepairStore.
func (s *Store) ListEdits(ctx context.Context, number int64) (out []deadletter.Edited, err error) {
	err = s.read(ctx, "list edits", func(t txn) error {
		out = nil
		var exists bool
		if err := t.get(ctx, deadExistsSQL, []any{number}, &exists); err != nil {
			return err
		}
		if !exists {
			return fmt.Errorf("%w: %d", deadletter.ErrNotFound, number)
		}
		return t.each(ctx, listEditsSQL, []any{number}, func(rows *sql.Rows) error {
			var e deadletter.Edited
			var at int64
			var headers string
			err := rows.Scan(&at, &e.By, &e.Why, &headers, &e.Payload)
			if e.At = stored.Time(at); headers != "{}" {
				_ = json.Unmarshal([]byte(headers), &e.Headers) // headers that cannot be read may be the reason for the edit
			}
			out = append(out, e)
			return err
		})
	})
	return out, err
}

const (
	deadExistsSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}dead WHERE number = ?)`
	copyExistsSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}dead WHERE id = ? AND relay = ? AND died_at = ?)`
	importDeadSQL = `INSERT INTO {prefix}dead (relay, partition, seq, ` + messageColumns + `, attempts, redrives, history, reason,
		cause, died_at, state, resolved_at, resolved_by, resolution, edits)
		VALUES (?, ?, 0` + questionMarks + `, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number`
	placeImportedSQL = `UPDATE {prefix}dead SET seq = ? WHERE number = ?`
	importEditSQL    = `INSERT INTO {prefix}dead_edits (number, n, edited_at, edited_by, why, headers, payload) VALUES (?, ?, ?, ?, ?, ?, ?)`
)

// ImportDead implements deadletter.RepairStore.
func (s *Store) ImportDead(ctx context.Context, letters []deadletter.Archived) (n int, err error) {
	err = s.write(ctx, "import dead letters", durable, func(t txn) error {
		n = 0
		for _, a := range letters {
			var here bool
			err := t.get(ctx, copyExistsSQL, []any{a.Message.ID, a.Relay, a.DiedAt.UnixMicro()}, &here)
			if err == nil && !here {
				err = t.importLetter(ctx, a)
				n++
			}
			if err != nil {
				return fmt.Errorf("dead letter %d: %w", a.Number, err)
			}
		}
		return nil
	})
	return n, err
}

func (t txn) importLetter(ctx context.Context, a deadletter.Archived) error {
	m := *a.Message
	m.DeliverAfter = 0
	partition, err := t.partitionOf(ctx, m.Key, m.ID)
	if err != nil {
		return err
	}
	row, err := stored.Append([]any{a.Relay, partition}, &m, m.CreatedAt.UnixMicro())
	if err != nil {
		return err
	}
	history := "[]"
	if len(a.History) > 0 {
		history = list(a.History)
	}
	row = append(row, a.Attempts, a.Redrives, history, a.Reason, stored.Cause(a.Cause), a.DiedAt.UnixMicro(), string(a.State),
		micro(a.ResolvedAt), a.ResolvedBy, a.Resolution, len(a.Before))
	var number int64
	if err := t.get(ctx, importDeadSQL, row, &number); err != nil {
		return err
	}
	if _, err := t.exec(ctx, placeImportedSQL, deadletter.ImportedSequence(number), number); err != nil {
		return err
	}
	for i, e := range a.Before {
		headers, err := headerText(e.Headers)
		if err != nil {
			return err
		}
		payload := append([]byte{}, e.Payload...)
		if _, err := t.exec(ctx, importEditSQL, number, i+1, e.At.UnixMicro(), e.By, e.Why, headers, payload); err != nil {
			return err
		}
	}
	return nil
}
