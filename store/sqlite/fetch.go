package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// SQLite replans a statement when a bound value may call for another plan: a LIMIT, a small number, any parameter beyond the
// 31st, and more if the user has run ANALYZE. That costs 200 µs where an idle poll takes 12. So frequent statements read at most
// unionLimit partitions, and a plus sign hides their parameters from the planner: +?1, which leaves the value as it is.

// unionLimit is how many partitions one statement reads.
const unionLimit = 9

// fetchSQL reads the next messages of several partitions. The parameters: ?1 limit, ?2 relay, ?3 incarnation, then for each
// partition its number, its position and the token of its lease. The first rows are one for each lease that holds; their sequence
// is -1 minus the last sequence assigned. SQLite evaluates the parts one after another and only as far as rows are requested, so
// stopping early costs nothing.
func fetchSQL(partitions int) string {
	leases, messages := make([]string, partitions), make([]string, partitions)
	for i := range partitions {
		leases[i] = fmt.Sprintf(`SELECT partition, -1 - (%s), '', '', '', '', '', '', '', 0, 0, 0, '', '', '', '', x'', 0, 0
			FROM {prefix}cursors WHERE relay = +?2 AND partition = +?%d AND token = +?%d AND incarnation = +?3 AND owner <> ''`,
			lastSequenceSQL, 3*i+4, 3*i+6)
		messages[i] = fmt.Sprintf(`SELECT * FROM (SELECT partition, seq, %s FROM {prefix}log
			WHERE partition = +?%d AND seq > +?%d ORDER BY seq LIMIT +?1)`, messageColumns, 3*i+4, 3*i+5)
	}
	return strings.Join(append(leases, messages...), ` UNION ALL `)
}

// lastSequenceSQL returns the last sequence assigned.
const lastSequenceSQL = `SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '{prefix}log'`

// Fetch implements store.Log. It reads partitions in the order of the request until MaxBytes is reached.
func (s *Store) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	for _, p := range req.Partitions {
		if err := s.checkPartition(p.Partition); err != nil {
			return nil, fmt.Errorf("fetch: %w", err)
		}
	}
	var f *fetch
	err := s.patiently(ctx, func() error {
		f = &fetch{name: name, req: req, room: stored.Budget{Left: req.MaxBytes}, now: s.now(), batches: make([]store.Batch, len(req.Partitions)),
			index: make(map[int]int, len(req.Partitions))}
		for from := 0; from < len(req.Partitions) && !f.full; from += unionLimit {
			if err := s.fetch(ctx, f, from); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, s.cfg.explain("fetch", err)
	}
	return f.result(), nil
}

// fetch is a fetch in progress.
type fetch struct {
	name    string
	req     store.FetchRequest
	now     int64
	room    stored.Budget
	full    bool          // MaxBytes is reached
	batches []store.Batch // by the index of the partition in req
	index   map[int]int   // of partitions in req
}

func (s *Store) fetch(ctx context.Context, f *fetch, from int) error {
	partitions := f.req.Partitions[from:min(from+unionLimit, len(f.req.Partitions))]
	stmt, err := s.fetches.stmt(ctx, s, len(partitions))
	if err != nil {
		return err
	}
	args := append(make([]any, 0, 3+3*unionLimit), f.req.Limit, f.name, s.incarnation.text)
	for i, p := range partitions {
		args = append(args, p.Partition, p.After.Position, p.Token)
		f.index[p.Partition] = from + i
		f.batches[from+i].Lost = f.name != "" // until the lease turns up
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var partition int
	var seq int64
	row := stored.NewRow(&partition, &seq)
	for rows.Next() {
		if err := rows.Scan(row.Dest()...); err != nil {
			return err
		}
		i := f.index[partition]
		if seq < 0 {
			f.batches[i].Lost = beyond(f.req.Partitions[i].After, -1-seq)
			continue
		}
		if !f.batches[i].Lost && !f.take(row, i, seq) {
			f.full = true
			return rows.Close()
		}
	}
	return rows.Err()
}

// beyond reports whether a cursor is beyond the last sequence assigned, as after an older copy of the database was restored.
func beyond(c store.Cursor, last int64) bool { return c.Position > last }

// take adds a record to a batch if it fits.
func (f *fetch) take(row *stored.Row, batch int, seq int64) bool {
	m, err := row.Message(seq)
	if !f.room.Take(m.Size()) {
		return false
	}
	b := &f.batches[batch]
	b.Entries = append(b.Entries, store.Entry{Message: m, Err: err, Delay: stored.Delay(row.AvailableAt(), f.now)})
	b.Next.Position = seq
	return true
}

// result omits partitions with nothing new. Once MaxBytes is reached, every partition is reported to have more.
func (f *fetch) result() []store.Batch {
	var out []store.Batch
	for i, b := range f.batches {
		b.Partition = f.req.Partitions[i].Partition
		if b.Lost {
			out = append(out, b)
			continue
		}
		b.More = f.full || len(b.Entries) == f.req.Limit
		if len(b.Entries) == 0 {
			b.Next = f.req.Partitions[i].After
		}
		if len(b.Entries) > 0 || b.More {
			out = append(out, b)
		}
	}
	return out
}

// list returns a list as one parameter, for json_each.
func list[T any](values []T) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // numbers and strings always marshal
	}
	return string(text)
}

const (
	heldKeysSQL = `SELECT key FROM {prefix}held WHERE relay = ? AND partition = ? ORDER BY key LIMIT ?`
	// parkedSequencesSQL returns nothing for a consumer.
	parkedSequencesSQL = `SELECT seq FROM {prefix}parked WHERE relay = ?1 AND partition = ?2 AND seq > ?3 AND NOT ` + isConsumerSQL + `
		UNION SELECT seq FROM {prefix}dead WHERE relay = ?1 AND partition = ?2 AND seq > ?3 AND NOT ` + isConsumerSQL + ` ORDER BY seq`
)

// parkedIn returns what a relay has parked or dead-lettered in a partition beyond a position; the sequences only of a relay.
func (t txn) parkedIn(ctx context.Context, name string, partition int, position int64, maxHeld int) (out store.ParkedState, err error) {
	if out.Keys, err = stored.Column[string](ctx, t.query, heldKeysSQL, name, partition, stored.HeldLimit(maxHeld)); err != nil {
		return out, err
	}
	stored.CutHeld(&out, maxHeld)
	out.Sequences, err = stored.Column[int64](ctx, t.query, parkedSequencesSQL, name, partition, position)
	return out, err
}
