package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// dueSQL lists the earliest work of a partition, due or not: held keys, and parked messages with their own due time. Each
	// part reads only from one place of an index on, ?5: entries before it can be those of removed rows, which the server keeps while a
	// transaction is open. ?1 relay, ?2 partition, ?3 and ?4 limits.
	dueSQL = `(SELECT due_at, partition_id, message_key, seq, 0 FROM {prefix}held
			WHERE relay = ?1 AND partition_id = ?2 AND due_at >= ?5 ORDER BY due_at LIMIT ?3)
		UNION ALL (SELECT due_at, partition_id, '', seq, 0 FROM {prefix}parked
			WHERE relay = ?1 AND partition_id = ?2 AND due_at >= ?5 ORDER BY due_at, seq LIMIT ?4)`
	dueClockSQL = `SELECT {now}, -1, '', 0, 1`
	// dueLeasesSQL lists which of the leases %s are valid; dueDecisionsSQL has a row if a decision is to be applied.
	dueLeasesSQL = `(SELECT 0, partition_id, '', 0, 2 FROM {prefix}cursors
		WHERE relay = ? AND owner <> '' AND incarnation = {present} AND (%s))`
	dueDecisionsSQL = `(SELECT 0, -1, '', 0, 3 FROM {prefix}decisions WHERE relay = ? AND state = 'open' LIMIT 1)`

	parkedColumns = `partition_id, seq, reason, attempts, redrives, due_at, parked_at, ` + messageColumns
	// runSQL reads the parked messages of a held key, loneSQL a message with its own due time. ?1 is the index of the run.
	runSQL = `(SELECT ?1, ` + parkedColumns + ` FROM {prefix}parked WHERE relay = ?2 AND message_key = ?3 AND due_at IS NULL
		ORDER BY seq LIMIT ?4)`
	loneSQL = `(SELECT ?1, ` + parkedColumns + ` FROM {prefix}parked WHERE relay = ?2 AND seq = ?3)`
	// runsAtOnce is how many runs one statement reads.
	runsAtOnce = 64
)

// work is a held key or, without a key, a parked message with its own due time.
type work struct {
	due       int64
	partition int
	key       string
	seq       int64
}

// Due implements store.Log.
func (s *Store) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	out, err := s.due(ctx, name, req)
	return out, s.cfg.explain("due", err)
}

func (s *Store) due(ctx context.Context, name string, req store.DueRequest) (out store.DueResult, err error) {
	t := s.pooled()
	ahead, err := t.ahead(ctx, name, req)
	if err != nil {
		return out, err
	}
	out.Lost, out.From = ahead.lost(req), time.UnixMicro(ahead.from).UTC()
	if ahead.decisions {
		held := slices.Sorted(maps.Keys(ahead.holds))
		if out.Decisions, err = t.decisions(ctx, openDecisionsSQL, name, held); err != nil {
			return out, err
		}
	}
	due, _ := slices.BinarySearchFunc(ahead.work, ahead.now+1, func(w work, at int64) int { return cmp.Compare(w.due, at) })
	t.now = ahead.now
	if out.Runs, err = t.runs(ctx, name, ahead.work[:min(due, req.Runs)], req); err != nil {
		return out, err
	}
	switch n := len(out.Runs); {
	case n < due:
		out.More = true
	case n < len(ahead.work):
		out.Next = stored.Duration(ahead.work[n].due - ahead.now)
	default:
		out.Next = -1
	}
	return out, nil
}

// agenda lists the next work in order.
type agenda struct {
	now       int64
	from      int64 // nothing that was read is due before it; see store.DueResult
	work      []work
	holds     map[int]bool // partitions whose leases are valid
	decisions bool         // the relay has open decisions
}

// lost returns the partitions whose leases are no longer valid.
func (a agenda) lost(req store.DueRequest) (out []int) {
	for _, l := range req.Leases {
		if !a.holds[l.Partition] {
			out = append(out, l.Partition)
		}
	}
	return out
}

// ahead reads enough to fill the request and to know when the next work is due.
func (t txn) ahead(ctx context.Context, name string, req store.DueRequest) (out agenda, err error) {
	busyKeys, busySequences := set(req.BusyKeys), set(req.BusySequences)
	parts, from, first := []string{dueClockSQL}, int64(0), int64(math.MaxInt64)
	if !req.From.IsZero() {
		from = req.From.UnixMicro()
	}
	terms := make([]string, len(req.Leases))
	for i, l := range req.Leases {
		terms[i] = render(leaseTerm, []any{l.Partition, l.Token})
	}
	if len(terms) > 0 {
		parts = append(parts, strings.Replace(render(dueLeasesSQL, []any{name}), `%s`, strings.Join(terms, ` OR `), 1),
			render(dueDecisionsSQL, []any{name}))
	}
	for _, l := range req.Leases {
		parts = append(parts, render(dueSQL, []any{name, l.Partition, req.Runs + 1 + len(busyKeys), req.Runs + 1 + len(busySequences), from}))
	}
	out.holds = make(map[int]bool)
	err = t.each(ctx, strings.Join(parts, ` UNION ALL `), nil, func(rows *sql.Rows) error {
		var w work
		var kind int
		if err := rows.Scan(&w.due, &w.partition, &w.key, &w.seq, &kind); err != nil {
			return err
		}
		switch {
		case kind == 1:
			out.now = w.due
		case kind == 2:
			out.holds[w.partition] = true
		case kind == 3:
			out.decisions = true
		default:
			if first = min(first, w.due); w.key != "" && !busyKeys[w.key] || w.key == "" && !busySequences[w.seq] {
				out.work = append(out.work, w)
			}
		}
		return nil
	})
	out.from = min(first, out.now-store.DueLag.Microseconds())
	out.work = slices.DeleteFunc(out.work, func(w work) bool { return !out.holds[w.partition] })
	slices.SortFunc(out.work, func(a, b work) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) })
	return out, err
}

// runs reads the messages of due work until it reaches MaxBytes or a message has been removed; the next poll finds the rest.
func (t txn) runs(ctx context.Context, name string, due []work, req store.DueRequest) ([]store.ParkedRun, error) {
	room := stored.Budget{Left: req.MaxBytes}
	var out []store.ParkedRun
	for chunk := range slices.Chunk(due, runsAtOnce) {
		runs, complete, err := t.readRuns(ctx, name, chunk, req.RunLength, &room)
		if err != nil {
			return nil, err
		}
		if out = append(out, runs...); !complete {
			break
		}
	}
	return out, nil
}

// readRuns returns runs up to the first that does not fit or whose lone message is gone.
func (t txn) readRuns(ctx context.Context, name string, due []work, length int, room *stored.Budget) (runs []store.ParkedRun, complete bool, err error) {
	parts := make([]string, len(due))
	runs = make([]store.ParkedRun, len(due))
	for i, w := range due {
		runs[i] = store.ParkedRun{Partition: w.partition, Key: w.key}
		if w.key != "" {
			parts[i] = render(runSQL, []any{i, name, w.key, length})
		} else {
			parts[i] = render(loneSQL, []any{i, name, w.seq})
		}
	}
	var of int // the index of a row's run
	row, end, full := stored.NewParkedRow(&of), len(due), false
	err = t.each(ctx, strings.Join(parts, ` UNION ALL `), nil, func(rows *sql.Rows) error {
		if full {
			return nil
		}
		rec, err := row.Entry(rows, t.now)
		if err != nil {
			return err
		}
		if full = !room.Take(rec.Message.Size()); !full {
			runs[of].Entries = append(runs[of].Entries, rec)
		} else if end = of; len(runs[end].Entries) > 0 {
			end++ // keep a run that already has records
		}
		return nil
	})
	for i, w := range due[:end] {
		if w.key == "" && len(runs[i].Entries) == 0 {
			end = i
			break
		}
	}
	return runs[:end], end == len(due), err
}
