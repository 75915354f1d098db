package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// The kinds of rows of dueSQL.
const (
	leaseRow = iota
	decisionRow
	workRow
)

// dueSQL lists, for several partitions, the leases that hold, whether any decision is open, and the first held keys and parked
// messages by due time, due or not. The parameters: ?1 relay, ?2 and ?3 limits for keys and messages, ?4 incarnation, then for
// each partition its number and the token of its lease. Each part reads only from the start of an index.
func dueSQL(partitions int) string {
	leases, works := make([]string, partitions), make([]string, partitions)
	for i := range partitions {
		leases[i] = fmt.Sprintf(`SELECT 0, 0, partition, '', 0 FROM {prefix}cursors
			WHERE relay = +?1 AND partition = +?%d AND token = +?%d AND incarnation = +?4 AND owner <> ''`, 2*i+5, 2*i+6)
		works[i] = fmt.Sprintf(`SELECT * FROM (SELECT 2, due_at, partition, key, seq FROM {prefix}held
				WHERE relay = +?1 AND partition = +?%[1]d AND due_at IS NOT NULL ORDER BY due_at LIMIT +?2)
			UNION ALL SELECT * FROM (SELECT 2, due_at, partition, '', seq FROM {prefix}parked
				WHERE relay = +?1 AND partition = +?%[1]d AND due_at IS NOT NULL ORDER BY due_at, seq LIMIT +?3)`, 2*i+5)
	}
	const decisions = `SELECT * FROM (SELECT 1, 0, 0, '', 0 FROM {prefix}decisions WHERE relay = +?1 AND done_at IS NULL LIMIT 1)`
	return strings.Join(slices.Concat(leases, []string{decisions}, works), ` UNION ALL `)
}

const (
	parkedColumns = `p.partition, p.seq, p.reason, p.attempts, p.redrives, p.due_at, p.parked_at, ` + messageColumns
	// The blocking message and the queued messages of a held key.
	runSQL = `SELECT ` + parkedColumns + ` FROM {prefix}parked p WHERE relay = +? AND key = +? AND due_at IS NULL
		ORDER BY seq LIMIT +?`
	// CROSS JOIN keeps the order of the list.
	loneSQL = `SELECT ` + parkedColumns + ` FROM (SELECT value AS wanted FROM json_each(?2))
		CROSS JOIN {prefix}parked p ON p.relay = +?1 AND p.seq = wanted`
)

// dueWork is a held key, or (without a key) a parked message with a due time of its own.
type dueWork struct {
	due       int64
	partition int
	key       string
	seq       int64
}

// Due implements store.Log.
func (s *Store) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	for _, l := range req.Leases {
		if err := s.checkPartition(l.Partition); err != nil {
			return store.DueResult{}, fmt.Errorf("due: %w", err)
		}
	}
	var ahead *ahead
	err := s.patiently(ctx, func() (err error) {
		ahead, err = s.ahead(ctx, name, req)
		return err
	})
	if err != nil {
		return store.DueResult{}, s.cfg.explain("due", err)
	}
	return s.due(ctx, name, req, ahead)
}

// due reads the due part of the work found.
func (s *Store) due(ctx context.Context, name string, req store.DueRequest, found *ahead) (out store.DueResult, err error) {
	now, work := s.now(), found.work
	due, _ := slices.BinarySearchFunc(work, now+1, func(w dueWork, at int64) int { return cmp.Compare(w.due, at) })
	out.Lost = found.lost
	if due > 0 || found.decisions {
		err = s.read(ctx, "due", func(t txn) error {
			if found.decisions {
				if out.Decisions, err = t.decisions(ctx, openDecisionsSQL, name, list(found.held)); err != nil {
					return err
				}
			}
			if due > 0 {
				out.Runs, err = t.runs(ctx, name, work[:min(due, req.Runs)], req)
			}
			return err
		})
	}
	switch n := len(out.Runs); {
	case n < due:
		out.More = true
	case n < len(work):
		out.Next = stored.Duration(work[n].due - now)
	default:
		out.Next = -1
	}
	return out, err
}

// ahead is the first work in the partitions of a request, in order: enough to fill the request and to know what is next.
type ahead struct {
	work       []dueWork
	held, lost []int // partitions whose leases hold, and those whose leases do not
	decisions  bool  // the relay has open decisions
}

func (s *Store) ahead(ctx context.Context, name string, req store.DueRequest) (*ahead, error) {
	busyKeys, busySequences := set(req.BusyKeys), set(req.BusySequences)
	out, holds := &ahead{}, make(map[int]bool, len(req.Leases))
	for leases := range slices.Chunk(req.Leases, unionLimit) {
		args := append(make([]any, 0, 4+2*unionLimit), name, req.Runs+1+len(busyKeys), req.Runs+1+len(busySequences),
			s.incarnation.text)
		for _, l := range leases {
			args = append(args, l.Partition, l.Token)
		}
		stmt, err := s.dues.stmt(ctx, s, len(leases))
		if err != nil {
			return nil, err
		}
		rows, err := stmt.QueryContext(ctx, args...)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var kind int
			var w dueWork
			if err := rows.Scan(&kind, &w.due, &w.partition, &w.key, &w.seq); err != nil {
				rows.Close()
				return nil, err
			}
			switch {
			case kind == leaseRow:
				holds[w.partition] = true
			case kind == decisionRow:
				out.decisions = true
			case holds[w.partition] && (w.key != "" && !busyKeys[w.key] || w.key == "" && !busySequences[w.seq]):
				out.work = append(out.work, w)
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	for _, l := range req.Leases {
		if holds[l.Partition] {
			out.held = append(out.held, l.Partition)
		} else {
			out.lost = append(out.lost, l.Partition)
		}
	}
	slices.SortFunc(out.work, func(a, b dueWork) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) })
	return out, nil
}

func set[T comparable](values []T) map[T]bool {
	out := make(map[T]bool, len(values))
	for _, v := range values {
		out[v] = true
	}
	return out
}

// runs reads the messages of due work until MaxBytes is reached.
func (t txn) runs(ctx context.Context, name string, due []dueWork, req store.DueRequest) ([]store.ParkedRun, error) {
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
	row, room := stored.NewParkedRow(), stored.Budget{Left: req.MaxBytes}
	var out []store.ParkedRun
	for _, w := range due {
		run := store.ParkedRun{Partition: w.partition, Key: w.key}
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
		rec, err := row.Entry(lone, t.now)
		if err != nil {
			return nil, err
		}
		if rec.Message.Sequence != w.seq {
			return out, nil // the message was removed meanwhile: the next poll finds what is there
		}
		if !room.Take(rec.Message.Size()) {
			return out, nil
		}
		run.Entries = []store.Entry{rec}
		out = append(out, run)
	}
	return out, nil
}

// run reads the parked messages of a held key; full reports that not even the first one fit.
func (t txn) run(ctx context.Context, name string, run *store.ParkedRun, length int, room *stored.Budget) (full bool, err error) {
	rows, err := t.query(ctx, runSQL, name, run.Key, length)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	row := stored.NewParkedRow()
	for rows.Next() {
		rec, err := row.Entry(rows, t.now)
		if err != nil {
			return false, err
		}
		if !room.Take(rec.Message.Size()) {
			return len(run.Entries) == 0, rows.Close()
		}
		run.Entries = append(run.Entries, rec)
	}
	return false, rows.Err()
}
