package mysqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/stored"
)

const (
	lockLetterSQL = `SELECT headers FROM {prefix}dead WHERE number = ? FOR UPDATE`
	addEditSQL    = `INSERT INTO {prefix}edits (number, n, edited_at, edited_by, why, payload, headers) VALUES (?, ?, ?, ?, ?, ?, ?)`
	editSQL       = `UPDATE {prefix}dead SET payload = ?2, headers = ?3, edits = edits + 1 WHERE number = ?1`
	editsSQL      = `SELECT edited_at, edited_by, why, payload, headers FROM {prefix}edits WHERE number = ? ORDER BY n`
)

// EditDead implements deadletter.RepairStore.
func (s *Store) EditDead(ctx context.Context, number int64, e deadletter.Edit) (l deadletter.Record, err error) {
	err = s.write(ctx, fmt.Sprintf("edit dead letter %d", number), func(t txn) error {
		var headers string
		if err := orNone(t.get(ctx, lockLetterSQL, []any{number}, &headers)); err != nil {
			return err
		}
		if err := t.checkNamed(ctx, deadletter.Filter{Numbers: []int64{number}}); err != nil {
			return err
		}
		if l, err = t.letter(ctx, number); err != nil {
			return err
		}
		if l.Edits != e.Seen {
			return deadletter.RefuseEdited(number, e.Seen, l.Edits)
		}
		edited, err := e.Apply(l.Message)
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, addEditSQL, number, l.Edits, t.now, e.By, e.Why, l.Message.Payload, headers)
		if err != nil {
			return err
		}
		if e.Headers != nil {
			if headers, err = encodeHeaders(edited.Headers); err != nil {
				return err
			}
		}
		if _, err := t.exec(ctx, editSQL, number, edited.Payload, headers); err != nil {
			return err
		}
		l, err = t.letter(ctx, number)
		return err
	})
	return l, err
}

func encodeHeaders(headers map[string]string) (string, error) {
	if headers == nil {
		return "{}", nil
	}
	text, err := json.Marshal(headers)
	return string(text), err
}

// ListEdits implements deadletter.RepairStore.
func (s *Store) ListEdits(ctx context.Context, number int64) (out []deadletter.Edited, err error) {
	err = s.read(ctx, fmt.Sprintf("list the edits of dead letter %d", number), func(t txn) error {
		out = nil
		if _, err := t.letter(ctx, number); err != nil {
			return err
		}
		return t.each(ctx, editsSQL, []any{number}, func(rows *sql.Rows) error {
			var e deadletter.Edited
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
	})
	return out, err
}

const countCausesSQL = `SELECT g.relay, g.type, g.fingerprint, g.letters, g.oldest, g.newest, g.number, d.reason, d.cause
	FROM (SELECT relay, type, fingerprint, COUNT(*) AS letters, MIN(died_at) AS oldest, MAX(died_at) AS newest, MAX(number) AS number
		FROM {prefix}dead d WHERE %s GROUP BY relay, type, fingerprint ORDER BY letters DESC, number LIMIT %d) g
	JOIN {prefix}dead d ON d.number = g.number ORDER BY g.letters DESC, g.number`

// CountCauses implements deadletter.RepairStore.
func (s *Store) CountCauses(ctx context.Context, f deadletter.Filter, limit int) ([]deadletter.CauseCount, error) {
	var out []deadletter.CauseCount
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf(s.expand(countCausesSQL), s.condition(f), limit))
	if err != nil {
		return nil, s.cfg.explain("count causes", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c deadletter.CauseCount
		var oldest, newest int64
		err := rows.Scan(&c.Relay, &c.Type, &c.Fingerprint, &c.DeadLetters, &oldest, &newest, &c.Number, &c.Reason, &c.Cause)
		if err != nil {
			return nil, s.cfg.explain("count causes", err)
		}
		c.Oldest, c.Newest = stored.Time(oldest), stored.Time(newest)
		out = append(out, c)
	}
	return out, s.cfg.explain("count causes", rows.Err())
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

// ImportDead implements deadletter.RepairStore.
func (s *Store) ImportDead(ctx context.Context, letters []deadletter.Archived) (n int, err error) {
	err = s.write(ctx, "import dead letters", func(t txn) error {
		n = 0
		var lock int
		if err := t.get(ctx, importLockSQL, nil, &lock); err != nil {
			return err
		}
		for _, a := range letters {
			var here bool
			err := t.get(ctx, isHereSQL, []any{a.Message.ID, a.Relay, a.DiedAt.UnixMicro()}, &here)
			if err == nil && !here {
				n++
				err = t.importLetter(ctx, a)
			}
			if err != nil {
				return fmt.Errorf("message %s: %w", a.Message.ID, err)
			}
		}
		return nil
	})
	return n, err
}

func (t txn) importLetter(ctx context.Context, a deadletter.Archived) error {
	m := *a.Message
	m.DeliverAfter = 0
	partition := postrider.PartitionOf(m.Key, m.ID, t.partitions)
	values, err := stored.Append([]any{a.Relay, partition}, &m, m.CreatedAt.UnixMicro())
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
	cause := stored.Cause(a.Cause)
	values = append(values, a.Reason, cause, deadletter.Fingerprint(cause), a.Attempts, a.Redrives, len(a.Before), a.DiedAt.UnixMicro(),
		string(a.State), resolved, a.ResolvedBy, a.Resolution, encodeHistory(history))
	res, err := t.run(ctx, importSQL, values...)
	if err != nil {
		return err
	}
	number, err := res.LastInsertId()
	if err == nil {
		_, err = t.exec(ctx, importedSQL, deadletter.ImportedSequence(number), number)
	}
	for i, e := range a.Before {
		headers, fault := encodeHeaders(e.Headers)
		if err = errors.Join(err, fault); err == nil {
			_, err = t.exec(ctx, addEditSQL, number, i, e.At.UnixMicro(), e.By, e.Why, e.Payload, headers)
		}
	}
	return err
}
