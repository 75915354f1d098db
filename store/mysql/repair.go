package mysqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	contentSQL = `SELECT edits, headers, payload FROM {prefix}dead WHERE number = ?`
	addEditSQL = `INSERT INTO {prefix}edits (number, n, edited_at, edited_by, why, payload, headers) VALUES (?, ?, ?, ?, ?, ?, ?)`
	editSQL    = `UPDATE {prefix}dead SET payload = ?2, headers = ?3, edits = edits + 1 WHERE number = ?1`
	editsSQL   = `SELECT edited_at, edited_by, why, payload, headers FROM {prefix}edits WHERE number = ? ORDER BY n`
)

// EditDead implements store.Writer.
func (r records) EditDead(ctx context.Context, number int64, e store.Edit) error {
	var edits int
	var headers string
	var payload []byte
	if err := r.get(ctx, contentSQL, []any{number}, &edits, &headers, &payload); err != nil {
		return err
	}
	if _, err := r.exec(ctx, addEditSQL, number, edits, r.now, e.By, e.Why, payload, headers); err != nil {
		return err
	}
	if e.Payload != nil {
		payload = e.Payload
	}
	if e.Headers != nil {
		var err error
		if headers, err = encodeHeaders(e.Headers); err != nil {
			return err
		}
	}
	_, err := r.exec(ctx, editSQL, number, payload, headers)
	return err
}

func encodeHeaders(headers map[string]string) (string, error) {
	if headers == nil {
		return "{}", nil
	}
	text, err := json.Marshal(headers)
	return string(text), err
}

// Edits implements store.Reader.
func (r records) Edits(ctx context.Context, number int64) (out []store.Edited, err error) {
	err = r.each(ctx, editsSQL, []any{number}, func(rows *sql.Rows) error {
		var e store.Edited
		var at int64
		var headers string
		err := rows.Scan(&at, &e.By, &e.Why, &e.Payload, &headers)
		e.At = stored.Time(at)
		if json.Unmarshal([]byte(headers), &e.Headers) != nil || len(e.Headers) == 0 {
			e.Headers = nil // they could not be read
		}
		out = append(out, e)
		return err
	})
	return out, err
}

const countCausesSQL = `SELECT g.relay, g.type, g.fingerprint, g.letters, g.oldest, g.newest, g.number, d.reason, d.cause
	FROM (SELECT relay, type, fingerprint, COUNT(*) AS letters, MIN(died_at) AS oldest, MAX(died_at) AS newest, MAX(number) AS number
		FROM {prefix}dead d WHERE %s GROUP BY relay, type, fingerprint ORDER BY letters DESC, number LIMIT %d) g
	JOIN {prefix}dead d ON d.number = g.number ORDER BY g.letters DESC, g.number`

// CountCauses implements store.Reader.
func (r records) CountCauses(ctx context.Context, q store.DeadQuery) (out []store.CauseCount, err error) {
	text := fmt.Sprintf(r.s.expand(countCausesSQL), r.s.condition(q), q.Limit)
	err = r.eachOf(ctx, text, func(rows *sql.Rows) error {
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
	importLockSQL = `SELECT value FROM {prefix}meta WHERE name = 'importing' FOR UPDATE`
	isHereSQL     = `SELECT EXISTS (SELECT 1 FROM {prefix}dead WHERE id = ? AND relay = ? AND died_at = ?)`
	importSQL     = `INSERT INTO {prefix}dead (relay, partition_id, seq, ` + messageColumns + `, reason, cause, fingerprint, attempts,
		redrives, edits, died_at, state, resolved_at, resolved_by, resolution, history)
		VALUES (?, ?, 0` + questionMarks + `, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	importedSQL = `UPDATE {prefix}dead SET seq = ? WHERE number = ?`
)

// questionMarks are the placeholders for messageColumns.
const questionMarks = `, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?`

// ImportDead implements store.Writer.
func (r records) ImportDead(ctx context.Context, a store.ArchivedDead) (added bool, err error) {
	m := a.Message
	var lock int
	if err := r.get(ctx, importLockSQL, nil, &lock); err != nil {
		return false, err
	}
	var here bool
	if err := r.get(ctx, isHereSQL, []any{m.ID, a.Relay, a.DiedAt.UnixMicro()}, &here); err != nil || here {
		return false, err
	}
	return true, r.insertDead(ctx, a)
}

func (r records) insertDead(ctx context.Context, a store.ArchivedDead) error {
	m := a.Message
	partition := postrider.PartitionOf(m.Key, m.ID, r.partitions)
	values, err := stored.Append([]any{a.Relay, partition}, m, m.CreatedAt.UnixMicro())
	if err != nil {
		return err
	}
	resolved := int64(0)
	if !a.ResolvedAt.IsZero() {
		resolved = a.ResolvedAt.UnixMicro()
	}
	history := a.History
	if history == nil {
		history = []postrider.AttemptInfo{}
	}
	values = append(values, a.Reason, a.Cause, store.Fingerprint(a.Cause), a.Attempts, a.Redrives, len(a.Before), a.DiedAt.UnixMicro(),
		string(a.State), resolved, a.ResolvedBy, a.Resolution, encodeHistory(history))
	res, err := r.run(ctx, importSQL, values...)
	if err != nil {
		return err
	}
	number, err := res.LastInsertId()
	if err == nil {
		_, err = r.exec(ctx, importedSQL, store.ImportedSequence(number), number)
	}
	for i, e := range a.Before {
		headers, fault := encodeHeaders(e.Headers)
		if err = errors.Join(err, fault); err == nil {
			_, err = r.exec(ctx, addEditSQL, number, i, e.At.UnixMicro(), e.By, e.Why, e.Payload, headers)
		}
	}
	return err
}
