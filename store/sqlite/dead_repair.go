package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	unmarkedExistSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}dead WHERE fingerprint = '' AND cause <> '')`
	unmarkedSQL      = `SELECT number, cause FROM {prefix}dead WHERE fingerprint = '' AND cause <> '' ORDER BY number DESC LIMIT 1000`
	markCauseSQL     = `UPDATE {prefix}dead SET fingerprint = ? WHERE number = ?`
	causesSQL        = `SELECT g.*, d.reason, d.cause FROM (
			SELECT relay, type, fingerprint, count(*) AS letters, min(died_at), max(died_at), max(number) AS last
			FROM {prefix}dead WHERE `
	causesEndSQL = ` GROUP BY relay, type, fingerprint ORDER BY letters DESC, last LIMIT +?) g
		JOIN {prefix}dead d ON d.number = g.last ORDER BY g.letters DESC, g.last`
)

// MarkCauses implements store.Records. Only a program can compute fingerprints, so the SQL that dead-letters messages leaves
// them empty.
func (s *Store) MarkCauses(ctx context.Context) (more bool, err error) {
	err = s.read(ctx, "look for fingerprints", func(t txn) error { return t.get(ctx, unmarkedExistSQL, nil, &more) })
	if err != nil || !more {
		return false, err
	}
	return true, s.write(ctx, "compute fingerprints", relaxed, func(t txn) error {
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
				_, err = t.exec(ctx, markCauseSQL, store.Fingerprint(cause), number)
			}
		}
		return err
	})
}

// CountCauses implements store.Reader.
func (r records) CountCauses(ctx context.Context, q store.DeadQuery) (out []store.CauseCount, err error) {
	where, args := condition(q)
	err = r.each(ctx, causesSQL+where+causesEndSQL, append(args, q.Limit), func(rows *sql.Rows) error {
		var c store.CauseCount
		var oldest, newest int64
		err := rows.Scan(&c.Relay, &c.Type, &c.Fingerprint, &c.DeadLetters, &oldest, &newest, &c.Number, &c.Reason, &c.Cause)
		c.Oldest, c.Newest = stored.Time(oldest), stored.Time(newest)
		out = append(out, c)
		return err
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

// EditDead implements store.Writer.
func (r records) EditDead(ctx context.Context, number int64, e store.Edit) (err error) {
	if _, err := r.exec(ctx, keepEditSQL, number, r.now, e.By, e.Why); err != nil {
		return err
	}
	headers := sql.Null[string]{Valid: e.Headers != nil}
	if headers.V, err = headerText(e.Headers); err != nil {
		return err
	}
	_, err = r.exec(ctx, editSQL, number, headers, e.Payload)
	return err
}

// headerText encodes headers as they are stored.
func headerText(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "{}", nil
	}
	text, err := json.Marshal(headers)
	return string(text), err
}

// Edits implements store.Reader.
func (r records) Edits(ctx context.Context, number int64) (out []store.Edited, err error) {
	err = r.each(ctx, listEditsSQL, []any{number}, func(rows *sql.Rows) error {
		var e store.Edited
		var at int64
		var headers string
		err := rows.Scan(&at, &e.By, &e.Why, &headers, &e.Payload)
		if e.At = stored.Time(at); headers != "{}" {
			_ = json.Unmarshal([]byte(headers), &e.Headers) // headers that cannot be read may be the reason for the edit
		}
		out = append(out, e)
		return err
	})
	return out, err
}

const (
	copyExistsSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}dead WHERE id = ? AND relay = ? AND died_at = ?)`
	importDeadSQL = `INSERT INTO {prefix}dead (relay, partition, seq, ` + messageColumns + `, attempts, redrives, history, reason,
		cause, died_at, state, resolved_at, resolved_by, resolution, edits)
		VALUES (?, ?, 0` + questionMarks + `, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number`
	placeImportedSQL = `UPDATE {prefix}dead SET seq = ? WHERE number = ?`
	importEditSQL    = `INSERT INTO {prefix}dead_edits (number, n, edited_at, edited_by, why, headers, payload) VALUES (?, ?, ?, ?, ?, ?, ?)`
)

// ImportDead implements store.Writer.
func (r records) ImportDead(ctx context.Context, a store.ArchivedDead) (added bool, err error) {
	m := a.Message
	var here bool
	if err := r.get(ctx, copyExistsSQL, []any{m.ID, a.Relay, a.DiedAt.UnixMicro()}, &here); err != nil || here {
		return false, err
	}
	partition, err := r.partitionOf(ctx, m.Key, m.ID)
	if err != nil {
		return false, err
	}
	row, err := stored.Append([]any{a.Relay, partition}, m, m.CreatedAt.UnixMicro())
	if err != nil {
		return false, err
	}
	history := "[]"
	if len(a.History) > 0 {
		history = list(a.History)
	}
	row = append(row, a.Attempts, a.Redrives, history, a.Reason, a.Cause, a.DiedAt.UnixMicro(), string(a.State),
		micro(a.ResolvedAt), a.ResolvedBy, a.Resolution, len(a.Before))
	var number int64
	if err := r.get(ctx, importDeadSQL, row, &number); err != nil {
		return false, err
	}
	if _, err := r.exec(ctx, placeImportedSQL, store.ImportedSequence(number), number); err != nil {
		return false, err
	}
	for i, e := range a.Before {
		headers, err := headerText(e.Headers)
		if err != nil {
			return false, err
		}
		payload := append([]byte{}, e.Payload...)
		if _, err := r.exec(ctx, importEditSQL, number, i+1, e.At.UnixMicro(), e.By, e.Why, headers, payload); err != nil {
			return false, err
		}
	}
	return true, nil
}
