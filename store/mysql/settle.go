package mysqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// moveSQL updates cursors, counts and numbers in one statement: %s are rows of moveRow. It is the fence: it changes the row
	// of a lease only if the lease is valid and the number is the next. The join reads the cursors in the order given, by primary
	// key, and locks no other rows.
	moveSQL = `UPDATE (%s) i STRAIGHT_JOIN {prefix}cursors c ON c.relay = ?1 AND c.partition_id = i.partition_id
		SET c.position = IF(i.moved, i.position, c.position), c.gaps = IF(i.moved, i.gaps, c.gaps), c.settled_at = {now},
			c.delivered = c.delivered + i.delivered, c.failed = c.failed + i.failed, c.number = i.number, c.content = i.content
		WHERE c.owner <> '' AND c.token = i.token AND c.incarnation = {present} AND c.number = i.number - 1`
	moveRow = `SELECT ? AS partition_id, ? AS token, ? AS number, ? AS content, ? AS moved, ? AS position, ? AS gaps, ? AS delivered,
		? AS failed`
	leasesSQL = `SELECT partition_id, token, owner <> '' AND COALESCE(incarnation = {present}, FALSE), number, content, {now}
		FROM {prefix}cursors WHERE relay = ? AND partition_id IN ?`
	// fenceSQL locks leases in partition order, as does everything that works on parked messages.
	fenceSQL  = leasesSQL + ` ORDER BY partition_id FOR UPDATE`
	removeSQL = `DELETE p FROM {prefix}parked p FORCE INDEX (PRIMARY) WHERE relay = ? AND seq IN ?`
	stillSQL  = `SELECT message_key FROM {prefix}held WHERE relay = ? AND message_key IN ?`
)

// Settle implements store.Log. If only cursors move, it is one statement; otherwise one transaction. MySQL waits for the
// disk at every commit unless the server is configured otherwise (innodb_flush_log_at_trx_commit).
func (s *Store) Settle(ctx context.Context, name string, settlements []store.Settlement) (store.Settled, error) {
	var out outcome
	var good []store.Settlement
	for _, st := range settlements {
		if err := s.checkSettlement(st); err != nil {
			out.fail(st.Partition, err)
			continue
		}
		good = append(good, st)
	}
	if len(good) == 0 {
		return out.Settled, nil
	}
	slices.SortStableFunc(good, func(a, b store.Settlement) int { return cmp.Compare(a.Partition, b.Partition) })
	all, err := s.settleTogether(ctx, name, good)
	if err == nil {
		out.add(all)
		return out.Settled, nil
	}
	for _, st := range good {
		if len(good) > 1 { // each on its own, so that one does not block the others
			all, err = s.settleTogether(ctx, name, []store.Settlement{st})
		}
		switch {
		case err == nil:
			out.add(all)
		case s.refused(ctx, err):
			out.fail(st.Partition, err)
		case ctx.Err() == nil && s.cfg.ErrorCode(err) != 0: // of this settlement, perhaps: the others must not wait for it
			out.fail(st.Partition, fmt.Errorf("%w: %w", store.ErrPassing, err))
		default:
			return store.Settled{}, err
		}
	}
	return out.Settled, nil
}

// outcome collects the outcomes of settlements.
type outcome struct{ store.Settled }

func (o *outcome) add(other store.Settled) {
	o.Lost, o.Released = append(o.Lost, other.Lost...), append(o.Released, other.Released...)
}

func (o *outcome) fail(partition int, err error) {
	if o.Failed == nil {
		o.Failed = make(map[int]error)
	}
	o.Failed[partition] = err
}

// checkSettlement refuses a settlement with an unknown partition or an unreadable cursor.
func (s *Store) checkSettlement(st store.Settlement) error {
	if err := s.checkPartition(st.Partition); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	if _, err := parseGaps(st.Cursor.Snapshot); err != nil {
		return fmt.Errorf("settle partition %d: %w", st.Partition, err)
	}
	return nil
}

// refused reports that the server or the store refused a settlement because of what it says, and that nothing of it was applied.
// After other errors the outcome is unknown.
func (s *Store) refused(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, errNotInLog) || errors.Is(err, ErrTooLarge) {
		return ctx.Err() == nil
	}
	code := s.cfg.ErrorCode(err)
	switch kind := kinds[code]; {
	case code == 0, slices.Contains(ofServer[:], code):
		return false // the connection, the server or its resources: it may pass
	case errors.Is(kind, ErrReadOnly), errors.Is(kind, ErrFull), errors.Is(kind, ErrDeadlock), errors.Is(kind, ErrLockTimeout):
		return false
	}
	return true
}

// settleTogether applies all settlements or none.
func (s *Store) settleTogether(ctx context.Context, name string, settlements []store.Settlement) (store.Settled, error) {
	if !slices.ContainsFunc(settlements, touches) {
		return s.move(ctx, name, settlements)
	}
	var out outcome
	err := s.transactBare(ctx, "settle", func(t txn) error {
		out = outcome{}
		leases, err := t.leases(ctx, fenceSQL, name, settlements)
		if err != nil {
			return err
		}
		var next []store.Settlement
		for _, st := range settlements {
			switch l := leases[st.Partition]; l.stage(st) {
			case stageLost:
				out.Lost = append(out.Lost, st.Partition)
			case stageApplied:
				released, err := t.released(ctx, name, st)
				if err != nil {
					return err
				}
				out.Released = append(out.Released, released...)
			case stageNext:
				next = append(next, st)
				t.now = l.now
				released, err := t.settle(ctx, name, st)
				if err != nil {
					return fmt.Errorf("partition %d: %w", st.Partition, err)
				}
				out.Released = append(out.Released, released...)
			}
		}
		return t.moveAll(ctx, name, next)
	})
	return out.Settled, err
}

// touches reports whether a settlement does more than move a cursor.
func touches(st store.Settlement) bool {
	return len(st.Parked)+len(st.Dead)+len(st.Removed)+len(st.Held)+len(st.Release)+len(st.Unrouted) > 0
}

// move applies settlements that only move cursors.
func (s *Store) move(ctx context.Context, name string, settlements []store.Settlement) (out store.Settled, err error) {
	t := s.pooled()
	err = s.again(ctx, func() error { return t.moveAll(ctx, name, settlements) })
	if err == nil || !errors.Is(err, store.ErrLeaseLost) {
		return out, s.cfg.explain("settle", err)
	}
	leases, err := t.leases(ctx, leasesSQL, name, settlements)
	for _, st := range settlements {
		if leases[st.Partition].stage(st) != stageApplied {
			out.Lost = append(out.Lost, st.Partition)
		}
	}
	return out, s.cfg.explain("settle", err)
}

// moveAll moves the cursors of settlements whose leases are valid and whose numbers are the next. Errors: store.ErrLeaseLost if
// one was not moved.
func (t txn) moveAll(ctx context.Context, name string, settlements []store.Settlement) error {
	if len(settlements) == 0 {
		return nil
	}
	rows := make([]string, len(settlements))
	for i, st := range settlements {
		content := st.Digest()
		rows[i] = render(moveRow, []any{st.Partition, st.Token, st.Number, content[:], st.Moved, st.Cursor.Position, st.Cursor.Snapshot,
			st.DeliveredCount, st.FailedCount})
	}
	n, err := t.exec(ctx, strings.Replace(moveSQL, `%s`, strings.Join(rows, ` UNION ALL `), 1), name)
	if err == nil && int(n) != len(settlements) {
		err = store.ErrLeaseLost
	}
	return err
}

// leased is the row of a lease.
type leased struct {
	token   string
	holds   bool
	number  int64
	content []byte
	now     int64
}

// stage is the state of a settlement in the database.
type stage int

const (
	stageLost stage = iota
	stageApplied
	stageNext
)

func (l leased) stage(st store.Settlement) stage {
	content := st.Digest()
	switch {
	case !l.holds || l.token != st.Token:
		return stageLost
	case st.Number == l.number+1:
		return stageNext
	case st.Number == l.number && bytes.Equal(content[:], l.content):
		return stageApplied
	}
	return stageLost
}

func (t txn) leases(ctx context.Context, query, name string, settlements []store.Settlement) (map[int]leased, error) {
	partitions := make([]int, len(settlements))
	for i, st := range settlements {
		partitions[i] = st.Partition
	}
	out := make(map[int]leased)
	err := t.each(ctx, query, []any{name, partitions}, func(rows *sql.Rows) error {
		var p int
		var l leased
		err := rows.Scan(&p, &l.token, &l.holds, &l.number, &l.content, &l.now)
		out[p] = l
		return err
	})
	return out, err
}

// released returns those of the keys that a settlement releases that are not held.
func (t txn) released(ctx context.Context, name string, st store.Settlement) ([]string, error) {
	if len(st.Release) == 0 {
		return nil, nil
	}
	held, err := stored.Column[string](ctx, t.query, stillSQL, name, st.Release)
	still := set(held)
	return slices.DeleteFunc(slices.Clone(st.Release), func(key string) bool { return still[key] }), err
}

// settle applies all of a settlement except its cursor, and returns the keys that are no longer held. It takes a number of
// statements that does not depend on the number of messages, up to rowsAtOnce: others wait for the lease meanwhile.
func (t txn) settle(ctx context.Context, name string, st store.Settlement) ([]string, error) {
	rows, err := t.parkedRows(ctx, name, st)
	if err != nil {
		return nil, err
	}
	if err := t.park(ctx, name, st, rows); err != nil {
		return nil, fmt.Errorf("park messages: %w", err)
	}
	if err := t.deadLetter(ctx, name, st, rows); err != nil {
		return nil, fmt.Errorf("dead-letter messages: %w", err)
	}
	if len(st.Removed) > 0 {
		if _, err := t.exec(ctx, removeSQL, name, st.Removed); err != nil {
			return nil, err
		}
	}
	if err := t.hold(ctx, name, st); err != nil {
		return nil, fmt.Errorf("hold keys: %w", err)
	}
	if err := t.countUnrouted(ctx, name, st); err != nil {
		return nil, fmt.Errorf("count unrouted messages: %w", err)
	}
	return t.release(ctx, name, st)
}
