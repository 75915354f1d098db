package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/relay"
)

// dueSQL lists, for several partitions, the held keys and the parked messages with a time of their own that come first,
// whether their time has come or not. The parameters: ?1 relay, ?2 and ?3 limits for keys and messages, then the partitions.
// Each part reads only from the front of an index.
func dueSQL(partitions int) string {
	parts := make([]string, partitions)
	for i := range parts {
		parts[i] = fmt.Sprintf(`SELECT * FROM (SELECT due_at, partition, key, seq FROM {prefix}held
				WHERE relay = +?1 AND partition = +?%[1]d AND due_at IS NOT NULL ORDER BY due_at LIMIT +?2)
			UNION ALL SELECT * FROM (SELECT due_at, partition, '', seq FROM {prefix}parked
				WHERE relay = +?1 AND partition = +?%[1]d AND due_at IS NOT NULL ORDER BY due_at, seq LIMIT +?3)`, i+4)
	}
	return strings.Join(parts, ` UNION ALL `)
}

const (
	parkedColumns = `p.partition, p.seq, p.reason, p.attempts, p.redrives, p.due_at, p.parked_at, ` + messageColumns
	// The head and followers of a held key.
	runSQL = `SELECT ` + parkedColumns + ` FROM {prefix}parked p WHERE relay = +? AND key = +? AND due_at IS NULL
		ORDER BY seq LIMIT +?`
	// CROSS JOIN keeps the order of the list.
	loneSQL = `SELECT ` + parkedColumns + ` FROM (SELECT value AS wanted FROM json_each(?2))
		CROSS JOIN {prefix}parked p ON p.relay = +?1 AND p.seq = wanted`
)

// work is a held key, or (with no key) a parked message with a time of its own.
type work struct {
	due       int64
	partition int
	key       string
	seq       int64
}

// Due implements relay.LogStore.
func (s *Store) Due(ctx context.Context, name string, req relay.DueRequest) (relay.DueResult, error) {
	for _, p := range req.Partitions {
		if err := s.checkPartition(p); err != nil {
			return relay.DueResult{}, fmt.Errorf("due: %w", err)
		}
	}
	ahead, err := s.ahead(ctx, name, req)
	if err != nil {
		return relay.DueResult{}, s.cfg.explain("due", err)
	}
	now := s.now()
	due, _ := slices.BinarySearchFunc(ahead, now+1, func(w work, at int64) int { return cmp.Compare(w.due, at) })
	var out relay.DueResult
	if due > 0 {
		err = s.read(ctx, "due", func(t txn) error {
			out.Runs, err = t.runs(ctx, name, ahead[:min(due, req.Runs)], req)
			return err
		})
	}
	switch n := len(out.Runs); {
	case n < due:
		out.More = true
	case n < len(ahead):
		out.Next = micros(ahead[n].due - now)
	default:
		out.Next = -1
	}
	return out, err
}

// ahead lists what comes first, in order: enough to fill the request and to know what is next.
func (s *Store) ahead(ctx context.Context, name string, req relay.DueRequest) ([]work, error) {
	busyKeys, busySequences := set(req.BusyKeys), set(req.BusySequences)
	var out []work
	for partitions := range slices.Chunk(req.Partitions, unionLimit) {
		args := append(make([]any, 0, 3+unionLimit), name, req.Runs+1+len(busyKeys), req.Runs+1+len(busySequences))
		for _, p := range partitions {
			args = append(args, p)
		}
		stmt, err := s.dues.stmt(ctx, s, len(partitions))
		if err != nil {
			return nil, err
		}
		rows, err := stmt.QueryContext(ctx, args...)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var w work
			if err := rows.Scan(&w.due, &w.partition, &w.key, &w.seq); err != nil {
				rows.Close()
				return nil, err
			}
			if w.key != "" && !busyKeys[w.key] || w.key == "" && !busySequences[w.seq] {
				out = append(out, w)
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b work) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) })
	return out, nil
}

func set[T comparable](values []T) map[T]bool {
	out := make(map[T]bool, len(values))
	for _, v := range values {
		out[v] = true
	}
	return out
}

// runs reads the messages of work that is due, until MaxBytes are reached.
func (t txn) runs(ctx context.Context, name string, due []work, req relay.DueRequest) ([]relay.Run, error) {
	var alone []int64
	for _, w := range due {
		if w.key == "" {
			alone = append(alone, w.seq)
		}
	}
	lone, err := t.query(ctx, loneSQL, name, list(alone))
	if err != nil {
		return nil, err
	}
	defer lone.Close()
	row, room := newParkedRow(), budget{left: req.MaxBytes}
	var out []relay.Run
	for _, w := range due {
		run := relay.Run{Partition: w.partition, Key: w.key}
		if w.key != "" {
			full, err := t.run(ctx, name, &run, req.RunLength, &room)
			if err != nil {
				return nil, err
			}
			if full {
				return out, nil
			}
			out = append(out, run)
			continue
		}
		if !lone.Next() {
			return out, lone.Err()
		}
		rec, err := row.record(lone, t.now)
		if err != nil {
			return nil, err
		}
		if row.seq != w.seq {
			return out, nil // it was taken away since: the next look finds what is there
		}
		if !room.take(rec.Message.Size()) {
			return out, nil
		}
		run.Records = []relay.Record{rec}
		out = append(out, run)
	}
	return out, nil
}

// run reads the messages that wait behind a held key; full says that there was no room for even the first of them.
func (t txn) run(ctx context.Context, name string, run *relay.Run, length int, room *budget) (full bool, err error) {
	rows, err := t.query(ctx, runSQL, name, run.Key, length)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	row := newParkedRow()
	for rows.Next() {
		rec, err := row.record(rows, t.now)
		if err != nil {
			return false, err
		}
		if !room.take(rec.Message.Size()) {
			return len(run.Records) == 0, rows.Close()
		}
		run.Records = append(run.Records, rec)
	}
	return false, rows.Err()
}

// parkedRow is what parkedColumns are scanned into.
type parkedRow struct {
	partition, attempts, redrives int
	seq, parkedAt                 int64
	reason                        string
	due                           sql.Null[int64]
	row                           *stored.Row
}

func newParkedRow() *parkedRow {
	p := &parkedRow{}
	p.row = stored.NewRow(&p.partition, &p.seq, &p.reason, &p.attempts, &p.redrives, &p.due, &p.parkedAt)
	return p
}

func (p *parkedRow) record(rows *sql.Rows, now int64) (relay.Record, error) {
	if err := rows.Scan(p.row.Dest()...); err != nil {
		return relay.Record{}, err
	}
	m, err := p.row.Message(p.seq)
	rec := relay.Record{
		Message: m, Err: err, Attempts: p.attempts, Redrives: p.redrives, Reason: relay.ParkReason(p.reason),
		ParkedFor: micros(now - p.parkedAt),
	}
	if p.due.Valid {
		rec.Delay = micros(p.due.V - now)
	}
	return rec, nil
}
