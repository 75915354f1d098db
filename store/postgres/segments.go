package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

const (
	// segmentSpan is how many numbers a segment covers: no table holds that many rows.
	segmentSpan = 1 << 39
	// segmentsAhead is how many empty segments are ahead of the publishers. The second exists before publishers move to the first,
	// so 2^40 numbers are ahead of them at any time.
	segmentsAhead = 2
	// maxSegments is the number of segments from which no new one is begun: the present one continues. A fetch locks every segment,
	// and searches each one before its cursor for late rows.
	maxSegments = 32
	// segmentsKept is over how many segments a long retention is spread.
	segmentsKept = 16
	// maintainTries is how often a change is tried that does not get its locks.
	maintainTries = 3
	// minSegmentBytes is the smallest size at which a segment is ended because of the limit on the log's size.
	minSegmentBytes = 16 << 20
)

// listSegmentsSQL lists the segments of {log}, with the next number and the clock in microseconds since 1970.
const listSegmentsSQL = `
select c.relname, i.xmin::text || '/' || c.oid::text, bound[1]::int8, bound[2]::int8, coalesce(pg_total_relation_size(c.oid), 0),
	coalesce(pg_relation_size(c.oid), 0) = 0, greatest(c.reltuples, 0)::int8, s.last_value + s.is_called::int4,
	(extract(epoch from clock_timestamp()) operator(pg_catalog.*) 1000000)::int8
from {log_seq_seq} s, pg_inherits i join pg_class c on c.oid = i.inhrelid,
	regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''([0-9]+)''[)] TO [(]''([0-9]+)''[)]') as bound
where i.inhparent = $1::text::regclass::oid and bound is not null order by 3`

// segment is the part of the log whose numbers are in a range.
type segment struct {
	name     string // of the table
	identity string // changes if the table is recreated
	from, to int64  // to is exclusive
	bytes    int64
	empty    bool
	rows     int64 // the database's last estimate
}

// segments are those of the log, in order.
type segments struct {
	all  []segment
	next int64     // the number that the next message gets
	now  time.Time // on the database's clock
}

// closed returns the segments that get no more messages, except from statements that have already drawn their numbers.
func (s segments) closed() []segment {
	return s.all[:len(s.all)-len(s.current())-len(s.ahead())]
}

// current returns the segment that messages go to now; none if it is missing.
func (s segments) current() []segment {
	i := slices.IndexFunc(s.all, func(g segment) bool { return g.from <= s.next && s.next < g.to })
	if i < 0 {
		return nil
	}
	return s.all[i : i+1]
}

// ahead returns the segments that no message has gone to.
func (s segments) ahead() []segment {
	i := slices.IndexFunc(s.all, func(g segment) bool { return g.from > s.next })
	if i < 0 {
		return nil
	}
	return s.all[i:]
}

func (s *Store) listSegments(ctx context.Context) (segments, error) {
	var out segments
	rows, err := s.pool.Query(ctx, s.names.expand(listSegmentsSQL), s.names.table("log"))
	if err != nil {
		return out, err
	}
	var g segment
	var now int64
	_, err = pgx.ForEachRow(rows, []any{&g.name, &g.identity, &g.from, &g.to, &g.bytes, &g.empty, &g.rows, &out.next, &now}, func() error {
		out.all, out.now = append(out.all, g), time.UnixMicro(now).UTC()
		return nil
	})
	return out, err
}

// Maintain implements store.Maintainer. It drops messages by whole segments, so they stay beyond their retention for up to
// Config.SegmentFor, or a sixteenth of the retention if that is longer.
func (s *Store) Maintain(ctx context.Context, r store.Retention) (store.Maintained, error) {
	if _, err := s.open(ctx); err != nil {
		return store.Maintained{}, err
	}
	if err := s.checkRestored(ctx); err != nil {
		return store.Maintained{}, err
	}
	m := maintenance{store: s, needsRelay: !r.WithoutRelay}
	for _, step := range []struct {
		doing string
		do    func(ctx context.Context, r store.Retention) error
	}{
		{"repair the sequence of the log", m.repairSequence},
		{"prepare segments", m.prepare},
		{"begin the next segment", m.beginNext},
		{"prepare segments", m.prepare},
		{"move messages to partitions that exist", m.place},
		{"drop segments", m.dropOld},
		{"add up deliveries", m.addUp},
	} {
		err := step.do(ctx, r)
		switch {
		case code(err) == queryCanceled && ctx.Err() == nil: // by a limit of ours or of the role
			m.deferred = append(m.deferred, fmt.Sprintf("%s: it took longer than it may (%v)", step.doing, err))
		case err != nil:
			return m.done(), translate(step.doing, err)
		}
	}
	return m.done(), cmp.Or(s.purgeRedrives(ctx, r.Redrives), s.purgeDecisions(ctx), s.removeUnrouted(ctx))
}

// maintenance is one call of Maintain. Each change that it makes is one simple query: the server has all of it before it begins,
// and finishes it without this process. So a process that is killed, paused or disconnected leaves nothing half done and no lock.
type maintenance struct {
	store *Store
	// needsRelay: without a relay, nothing counts as delivered.
	needsRelay bool

	ended    string // the segment that publishers just left
	dropped  int64
	deferred []string
}

func (m *maintenance) done() store.Maintained {
	return store.Maintained{Dropped: m.dropped, Deferred: strings.Join(m.deferred, "; ")}
}

// limits bounds what a change may cost others: how long they queue after it while it waits for a lock, and how long it runs. The
// change commits without waiting for the disk or a standby, since it would do so with its locks held; what a crash undoes is done
// again.
func limits(lock, statement time.Duration) string {
	return fmt.Sprintf(`%s; select set_config('lock_timeout', '%dms', true), set_config('statement_timeout', '%dms', true),
	set_config('synchronous_commit', 'off', true);
`, readCommittedSQL, lock.Milliseconds(), statement.Milliseconds())
}

// change runs a change, a few times if it does not get its locks, and reports whether it was made. A change that cannot be made
// now is deferred, which is not an error. A change that took too long is not retried, since others have waited for it.
func (m *maintenance) change(ctx context.Context, what, sql string) (bool, error) {
	conn, err := m.store.pool.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	for range maintainTries {
		err = script(ctx, conn.Conn(), m.store.names.expand(sql))
		if c := code(err); c != lockNotAvailable && c != deadlockDetected {
			break
		}
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	switch code(err) {
	case "":
		return err == nil, err
	case notNow: // somebody added a row
		return false, nil
	case duplicateTable, duplicateObject, uniqueViolation, undefinedTable, invalidObject: // another process did it
		return false, nil
	case lockNotAvailable, deadlockDetected:
		m.deferred = append(m.deferred, fmt.Sprintf("%s: others hold a lock that it needs (%v)", what, err))
		return false, nil
	case queryCanceled:
		m.deferred = append(m.deferred, fmt.Sprintf("%s: it took longer than it may (%v)", what, err))
		return false, nil
	}
	return false, err
}

// prepare creates the current segment and those ahead where they are missing.
func (m *maintenance) prepare(ctx context.Context, _ store.Retention) error {
	for range segmentsAhead + 1 {
		s, err := m.store.listSegments(ctx)
		current, ahead := s.current(), s.ahead()
		switch {
		case err != nil, len(current) > 0 && len(ahead) >= segmentsAhead:
			return err
		case len(current) == 0 && len(ahead) > 0: // somebody set the sequence to a number between two segments
			if _, err := m.store.advance(ctx, m.store.pool, ahead[0].from); err != nil {
				return err
			}
			continue
		}
		g := s.missing(m.store.names, m.store.config.segmentSpan)
		if g.to < g.from { // beyond the largest number
			return nil
		}
		if made, err := m.change(ctx, "prepare segment "+g.name, attachSQL(g)); err != nil || !made {
			return err
		}
	}
	return nil
}

// missing returns the segment to create next: after the last one or, if the next message would find no segment, e.g. because
// somebody set the sequence, the one for that message.
func (s segments) missing(n names, span int64) segment {
	from := int64(0)
	if n := len(s.all); n > 0 {
		from = s.all[n-1].to
	}
	if len(s.current()) == 0 && len(s.ahead()) == 0 {
		from = max(from, s.next/span*span)
	}
	to := from + span
	if from > math.MaxInt64-span {
		to = -1
	}
	return segment{name: fmt.Sprintf("%slog_%d", n.prefix, from), from: from, to: to}
}

// attachSQL creates and attaches a segment. The table is empty when it is attached, so nothing is scanned, and the lock on the
// log (SHARE UPDATE EXCLUSIVE) blocks neither publishers nor relays.
func attachSQL(g segment) string {
	return limits(maxLockWait, attachTimeout) + fmt.Sprintf(`select {log_attach}(%d, %d)`, g.from, g.to)
}

// endsSQL returns when the first and the last row of segment %s were written.
const endsSQL = `
select (extract(epoch from min(f.created_at)) operator(pg_catalog.*) 1000000)::int8, (extract(epoch from max(l.created_at)) operator(pg_catalog.*) 1000000)::int8
from generate_series(0, {partitions}() - 1) as p
	left join lateral (select created_at from %[1]s where partition = p order by seq limit 1) as f on true
	left join lateral (select created_at from %[1]s where partition = p order by seq desc limit 1) as l on true`

// ends returns when the first and the last row of a segment were written, zero if it has none.
func (m *maintenance) ends(ctx context.Context, g segment) (first, last time.Time, err error) {
	var from, to *int64
	err = m.store.pool.QueryRow(ctx, m.store.names.expand(fmt.Sprintf(endsSQL, m.store.names.segment(g)))).Scan(&from, &to)
	if err == nil && from != nil && to != nil {
		first, last = time.UnixMicro(*from), time.UnixMicro(*to)
	}
	return first, last, err
}

// beginNext moves publishers to the next segment when the present one has reached its time, or its share of the log's size.
func (m *maintenance) beginNext(ctx context.Context, r store.Retention) error {
	s, err := m.store.listSegments(ctx)
	if err != nil {
		return err
	}
	current, ahead := s.current(), s.ahead()
	if len(ahead) < segmentsAhead {
		return nil // preparing was deferred
	}
	known, err := m.store.known(ctx, ahead[0])
	if err != nil || len(current) == 0 || current[0].empty || len(s.all) >= maxSegments {
		return err
	}
	first, _, err := m.ends(ctx, current[0])
	if err != nil || first.IsZero() {
		return err
	}
	length := max(m.store.config.SegmentFor, r.For/segmentsKept)
	// A row from the future dates from before the clock was set back, so its age is unknown.
	due := !first.Add(length).After(s.now) || first.After(s.now.Add(time.Minute)) ||
		r.MaxBytes > 0 && current[0].bytes > max(r.MaxBytes/4, minSegmentBytes)
	if !due {
		return nil
	}
	if !known {
		m.deferred = append(m.deferred, "begin the next segment: a transaction that has used the log since before the segment was made is open")
		return nil
	}
	m.ended = current[0].name
	_, err = m.store.advance(ctx, m.store.pool, ahead[0].from)
	return err
}

// advanceSQL sets the sequence of the log to number $1 if that is more than $2 ahead.
const advanceSQL = `select {log_advance}($1::int8, $2::int8)`

// advance sets the sequence of the log to a number well ahead, in a segment that exists.
func (s *Store) advance(ctx context.Context, q querier, to int64) (done bool, err error) {
	err = q.QueryRow(ctx, s.names.expand(advanceSQL), to, s.config.margin()).Scan(&done)
	return done, err
}

// usersSQL lists the virtual transactions that have any lock on the log.
const usersSQL = `
select coalesce(array_agg(virtualtransaction), '{}') from pg_locks
where locktype = 'relation' and relation = $1::text::regclass::oid
	and database = (select oid from pg_database where datname = current_database()) and pid <> pg_backend_pid()`

// awaited are the transactions that may run a statement that does not know a segment yet.
type awaited struct {
	identity string // of the segment
	users    []string
}

// known reports whether all running statements know a segment. A statement routes its rows to the segments that existed when it
// began: one that still runs while numbers of a later segment are drawn would fail. A transaction with such a statement has held
// a lock on the log since before the segment existed. So known returns true once every transaction that held one at the first
// call for the segment has ended.
func (s *Store) known(ctx context.Context, g segment) (bool, error) {
	var users []string
	if err := s.pool.QueryRow(ctx, s.names.expand(usersSQL), s.names.table("log")).Scan(&users); err != nil {
		return false, err
	}
	s.maintaining.Lock()
	defer s.maintaining.Unlock()
	if s.awaited.identity != g.identity {
		s.awaited = awaited{identity: g.identity, users: users}
	}
	s.awaited.users = slices.DeleteFunc(s.awaited.users, func(u string) bool { return !slices.Contains(users, u) })
	return len(s.awaited.users) == 0, nil
}
