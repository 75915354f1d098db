package stored

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// StatusRows are what a store reads for a status, of one state of the database. Counts are exact up to store.CountLimit; a higher
// number says that there are more.
type StatusRows struct {
	Now        time.Time
	Partitions int
	Relays     []RelayRow // one for each relay and consumer that is known
	Cursors    []CursorRow
	Processes  []ProcessRow
	Topics     map[string][]string // the filters in effect, by relay
	Unrouted   []store.UnroutedTopic
	Notices    []string
	Pauses     []store.Record // the result of the query Pauses
	Tables     []store.TableSize
}

// RelayRow counts the parked messages, held keys and open dead letters of a relay.
type RelayRow struct {
	Relay              string
	Parked, Held, Dead int64
	// OldestWaiting is OldestParked without messages whose delivery time has not come.
	OldestParked, OldestWaiting, OldestHeld, OldestDead time.Duration
}

// CursorRow is the cursor of a relay, or the progress of a consumer, in a partition.
type CursorRow struct {
	Relay                 string
	Kind                  store.Kind
	store.PartitionStatus // without Backlog
	// Undelivered counts messages that are neither settled nor parked; More says that there are more.
	Undelivered       int64
	More              bool
	Delivered, Failed int64
}

// ProcessRow is a process of a relay.
type ProcessRow struct {
	Relay string
	store.OwnerStatus
	// Reached is the output of Report.
	Reached string
}

// Status computes the status.
func (r StatusRows) Status() store.Status {
	out := store.Status{Now: r.Now.UTC(), Partitions: r.Partitions, Unrouted: r.Unrouted, Notices: r.Notices}
	for _, row := range r.Relays {
		out.Relays = append(out.Relays, r.relay(row))
	}
	out.Tables = slices.SortedFunc(slices.Values(r.Tables), func(a, b store.TableSize) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Table, b.Table))
	})
	slices.SortFunc(out.Relays, func(a, b store.RelayStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (r StatusRows) relay(row RelayRow) store.RelayStatus {
	s := store.RelayStatus{
		Name: row.Relay, Kind: store.KindRelay, Topics: r.Topics[row.Relay], Parked: Count(row.Parked), OldestParked: row.OldestParked,
		Held: Count(row.Held), OldestHeld: row.OldestHeld, Dead: Count(row.Dead), OldestDead: row.OldestDead,
		OldestUndelivered: row.OldestWaiting,
	}
	undelivered, more := int64(0), false
	for _, c := range r.Cursors {
		if c.Relay != row.Relay {
			continue
		}
		p := c.PartitionStatus
		p.Backlog = store.Count{N: c.Undelivered, AtLeast: c.More}
		undelivered += c.Undelivered
		more = more || c.More
		s.Kind, s.Age = c.Kind, max(s.Age, p.Age)
		s.OldestUndelivered = max(s.OldestUndelivered, p.Age)
		s.Delivered += c.Delivered
		s.Failed += c.Failed
		s.Partitions = append(s.Partitions, p)
	}
	if s.Backlog = Count(undelivered); more {
		s.Backlog = store.Count{N: store.CountLimit, AtLeast: true}
	}
	for _, p := range r.Pauses {
		if p.ID == row.Relay {
			s.Paused = PauseOf(p)
		}
	}
	slices.SortFunc(s.Partitions, func(a, b store.PartitionStatus) int { return cmp.Compare(a.Partition, b.Partition) })
	for _, p := range r.Processes {
		if p.Relay == row.Relay {
			p.Destination, p.Gate = parseReport(p.Reached, p.SeenAgo)
			s.Owners = append(s.Owners, p.OwnerStatus)
		}
	}
	slices.SortFunc(s.Owners, func(a, b store.OwnerStatus) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	return s
}

// Count is a number that was counted at least up to store.CountLimit+1.
func Count(n int64) store.Count {
	return store.Count{N: min(n, store.CountLimit), AtLeast: n > store.CountLimit}
}

// StatusSQL reads the rows of a status for stores over database/sql.
type StatusSQL struct {
	Known      string // the names of relays
	Exceptions string // of a relay: parked messages, when the oldest was parked, and the oldest that is not delayed, held keys, since when, open dead letters, when the oldest died
	Cursors    string // of a relay, at a time, then More: partition, owner, lease until, settlements, kind, position, settled at, delivered, failed, gaps
	Processes  string // of a relay, at a time: ID, host, version, started at, seen at, alive, destination
	Unrouted   string // a limit: topic, count, first at, last at
	More       []any
	// Undelivered counts the messages of a relay in a partition up to a limit, and returns when the oldest was written. gaps is that of
	// the cursor.
	Undelivered func(ctx context.Context, q Query, c *CursorRow, gaps string, limit int64) (n int64, oldest sql.Null[int64], err error)
}

// Read adds relays, cursors, processes and unrouted topics to rows. now is the time in microseconds.
func (s StatusSQL) Read(ctx context.Context, q Query, now int64, rows *StatusRows) error {
	names, err := Column[string](ctx, q, s.Known)
	if err != nil {
		return err
	}
	for _, name := range names {
		r := RelayRow{Relay: name}
		var parked, waiting, held, dead sql.Null[int64]
		if err := q.Get(ctx, s.Exceptions, []any{name}, &r.Parked, &parked, &waiting, &r.Held, &held, &r.Dead, &dead); err != nil {
			return err
		}
		r.OldestParked, r.OldestWaiting, r.OldestHeld, r.OldestDead = Age(parked, now), Age(waiting, now), Age(held, now), Age(dead, now)
		rows.Relays = append(rows.Relays, r)
		if err := s.cursors(ctx, q, now, name, rows); err != nil {
			return err
		}
		err := q.Each(ctx, s.Processes, []any{name, now}, func(row *sql.Rows) error {
			p := ProcessRow{Relay: name}
			var started, seen int64
			err := row.Scan(&p.ID, &p.Host, &p.Version, &started, &seen, &p.Alive, &p.Reached)
			p.Started, p.SeenAgo = Time(started), Duration(now-seen)
			rows.Processes = append(rows.Processes, p)
			return err
		})
		if err != nil {
			return err
		}
	}
	return q.Each(ctx, s.Unrouted, []any{store.MaxUnroutedTopics}, func(row *sql.Rows) error {
		var u store.UnroutedTopic
		var first, last int64
		err := row.Scan(&u.Topic, &u.Count, &first, &last)
		u.FirstAt, u.LastAt = Time(first), Time(last)
		rows.Unrouted = append(rows.Unrouted, u)
		return err
	})
}

func (s StatusSQL) cursors(ctx context.Context, q Query, now int64, name string, rows *StatusRows) error {
	begin := len(rows.Cursors)
	var gaps []string
	err := q.Each(ctx, s.Cursors, append([]any{name, now}, s.More...), func(row *sql.Rows) error {
		c := CursorRow{Relay: name}
		var until, settled int64
		var g string
		err := row.Scan(&c.Partition, &c.Owner, &until, &c.Settlements, &c.Kind, &c.Position, &settled, &c.Delivered, &c.Failed, &g)
		if c.Owner != "" {
			c.LeaseLeft = Duration(until - now)
		}
		c.SettledAgo = Duration(now - settled)
		rows.Cursors, gaps = append(rows.Cursors, c), append(gaps, g)
		return err
	})
	if err != nil {
		return err
	}
	return CountBacklogs(rows.Cursors[begin:], func(parts []Share) error {
		for _, part := range parts {
			c := &rows.Cursors[begin+part.Cursor]
			n, oldest, err := s.Undelivered(ctx, q, c, gaps[part.Cursor], part.Limit)
			if err != nil {
				return err
			}
			c.Undelivered, c.Age = n, Age(oldest, now)
		}
		return nil
	})
}

// ConsumerSQL reads what consumers have consumed for stores over database/sql.
type ConsumerSQL struct {
	Names  string // of all consumers, in order
	Count  string // of kept IDs: consumer, limit
	Oldest string // when the oldest of them was written: consumer
	Marks  string // of a consumer, in order: partition, log incarnation, offset, when it moved
}

// Read returns the status of consumers, at a time in microseconds.
func (s ConsumerSQL) Read(ctx context.Context, q Query, now int64) ([]store.ConsumerStatus, error) {
	names, err := Column[string](ctx, q, s.Names)
	if err != nil {
		return nil, err
	}
	out := make([]store.ConsumerStatus, len(names))
	for i, name := range names {
		var n int64
		var oldest sql.Null[int64]
		if err := q.Get(ctx, s.Count, []any{name, store.CountLimit + 1}, &n); err != nil {
			return nil, err
		}
		if err := q.Get(ctx, s.Oldest, []any{name}, &oldest); err != nil {
			return nil, err
		}
		out[i] = store.ConsumerStatus{Name: name, Remembered: Count(n), Oldest: Age(oldest, now)}
		err := q.Each(ctx, s.Marks, []any{name}, func(rows *sql.Rows) error {
			var w store.WatermarkStatus
			var moved sql.Null[int64]
			err := rows.Scan(&w.Partition, &w.Incarnation, &w.Offset, &moved)
			w.Moved = Age(moved, now)
			out[i].Watermarks = append(out[i].Watermarks, w)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
