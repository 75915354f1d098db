package stored

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/store"
)

// ParkedRow reads the rows of a result: the caller's own columns, then partition, sequence, reason, attempts, redrives, due time or
// NULL, time of parking, and the columns of a Row.
type ParkedRow struct {
	partition, attempts, redrives int
	seq, parkedAt                 int64
	reason                        string
	due                           sql.Null[int64]
	row                           *Row
}

// NewParkedRow returns a ParkedRow whose rows begin with the caller's own destinations.
func NewParkedRow(own ...any) *ParkedRow {
	p := &ParkedRow{}
	p.row = NewRow(append(own, &p.partition, &p.seq, &p.reason, &p.attempts, &p.redrives, &p.due, &p.parkedAt)...)
	return p
}

// Entry reads a row as what a relay works on, at a time in microseconds.
func (p *ParkedRow) Entry(rows *sql.Rows, now int64) (store.Entry, error) {
	if err := rows.Scan(p.row.Dest()...); err != nil {
		return store.Entry{}, err
	}
	m, err := p.row.Message(p.seq)
	e := store.Entry{
		Message: m, Err: err, Attempts: p.attempts, Redrives: p.redrives, Reason: store.ParkReason(p.reason),
		ParkedFor: Duration(max(0, now-max(p.parkedAt, p.row.AvailableAt()))),
	}
	if p.due.Valid {
		e.Delay = Duration(p.due.V - now)
	}
	return e, nil
}

// ReadParked returns what a statement selects: the columns of a ParkedRow without own ones, history and relay. An unreadable message is
// shown as far as it can be read.
func ReadParked(ctx context.Context, q Query, text string, args ...any) (out []store.ParkedInfo, err error) {
	var history, name string
	p := NewParkedRow()
	dest := append(p.row.Dest(), &history, &name)
	err = q.Each(ctx, text, args, func(rows *sql.Rows) error {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		m, _ := p.row.Message(p.seq)
		info := store.ParkedInfo{
			Relay: name, Partition: p.partition, Message: m, Reason: store.ParkReason(p.reason), Attempts: p.attempts,
			ParkedAt: Time(p.parkedAt),
		}
		if p.due.Valid {
			info.DueAt = Time(p.due.V)
		}
		info.History, err = History(history)
		out = append(out, info)
		return err
	})
	return out, err
}
