// Package stored converts messages to the values of a row and back, for stores over database/sql. Times are stored as
// microseconds since 1970 (UTC), headers and histories as JSON text.
package stored

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// MaxCause is the maximum size of a stored cause, in bytes.
const MaxCause = 4000

// OriginalHeader is the header of a parked or dead-lettered message that keeps what could not be stored; see inbox.OriginalHeader.
const OriginalHeader = "postrider-original"

// Columns is the number of columns of a message: the values of Append and the destinations of Row.Dest.
const Columns = 17

// Append appends the column values of a message that is written at now, in microseconds: id, topic, key, type, source,
// subject, tenant, message_time, schema_version, aggregate_version, content_type, headers, correlation_id,
// causation_id, payload, available_at (0: at once), created_at.
func Append(values []any, m *postrider.Message, now int64) ([]any, error) {
	headers := "{}"
	if len(m.Headers) > 0 {
		text, err := json.Marshal(m.Headers)
		if err != nil {
			return values, fmt.Errorf("headers of message %s: %w", m.ID, err)
		}
		headers = string(text)
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{} // a nil slice would be bound as NULL
	}
	return append(values, m.ID, m.Topic, m.Key, m.Type, m.Source, m.Subject, m.Tenant, m.Time.UnixMicro(),
		m.SchemaVersion, m.AggregateVersion, m.ContentType, headers, m.CorrelationID, m.CausationID, payload,
		available(m, now), now), nil
}

func available(m *postrider.Message, now int64) int64 {
	switch {
	case m.DeliverAfter > 0:
		return now + m.DeliverAfter.Microseconds()
	case !m.DeliverAt.IsZero():
		return m.DeliverAt.UnixMicro()
	}
	return 0
}

// Row is the destination of a message's columns. One Row serves all rows of a result.
type Row struct {
	m                            postrider.Message
	headers                      string
	time, availableAt, createdAt int64
	dest                         []any
}

// NewRow returns a Row whose Dest begins with the caller's own destinations.
func NewRow(own ...any) *Row {
	r := &Row{}
	m := &r.m
	r.dest = append(own, &m.ID, &m.Topic, &m.Key, &m.Type, &m.Source, &m.Subject, &m.Tenant, &r.time,
		&m.SchemaVersion, &m.AggregateVersion, &m.ContentType, &r.headers, &m.CorrelationID, &m.CausationID, &m.Payload,
		&r.availableAt, &r.createdAt)
	return r
}

// Dest returns the destinations for a row: the caller's own columns, then those of Append, in order.
func (r *Row) Dest() []any { return r.dest }

// AvailableAt is the delivery time of the last scanned row, in microseconds; 0 when it has none.
func (r *Row) AvailableAt() int64 { return r.availableAt }

// Message returns the last scanned row. The error says why it cannot be read as a message; the readable parts are
// returned with it.
func (r *Row) Message(seq int64) (*postrider.Message, error) {
	m := r.m
	r.m.Payload = nil // the next row gets its own memory
	m.Sequence = seq
	m.Time, m.CreatedAt = Time(r.time), Time(r.createdAt)
	if r.availableAt != 0 {
		m.DeliverAt = Time(r.availableAt)
	}
	err := FixTimes(&m)
	if r.headers == "{}" {
		return &m, err
	}
	if unreadable := json.Unmarshal([]byte(r.headers), &m.Headers); unreadable != nil {
		m.Headers = nil
		err = errors.Join(err, fmt.Errorf("the stored headers are not a JSON object of strings: %w", unreadable))
	}
	return &m, err
}

// Messages returns the messages that a statement selects: their sequence, and the columns of Append.
func Messages(ctx context.Context, q Query, text string, args ...any) (out []*postrider.Message, err error) {
	var seq int64
	row := NewRow(&seq)
	err = q.Each(ctx, text, args, func(rows *sql.Rows) error {
		if err := rows.Scan(row.Dest()...); err != nil {
			return err
		}
		m, err := row.Message(seq)
		out = append(out, m)
		return err
	})
	return out, err
}

// Time converts a stored time.
func Time(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// Cause truncates a cause to MaxCause bytes, at a character boundary.
func Cause(text string) string {
	if len(text) <= MaxCause {
		return text
	}
	end := MaxCause
	for end > MaxCause-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Text makes a text of any source storable: UTF-8 without NUL, truncated as by Cause.
func Text(text string) string {
	return Cause(strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), ""))
}

// Entry is one history entry, as JSON.
func Entry(attempt int, at int64, cause string) (string, error) {
	text, err := json.Marshal(postrider.AttemptInfo{Attempt: attempt, At: Time(at), Cause: Cause(cause)})
	if err != nil {
		return "", fmt.Errorf("history entry: %w", err)
	}
	return string(text), nil
}

// KeptEntries is how many entries of a history are kept.
const KeptEntries = 20

// History parses a stored history and returns its last KeptEntries entries.
func History(text string) ([]postrider.AttemptInfo, error) {
	var h []postrider.AttemptInfo
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return nil, fmt.Errorf("the stored history is not a JSON array of attempts: %w", err)
	}
	return h[max(0, len(h)-KeptEntries):], nil
}

// Resolution returns the columns state, resolved_by, resolution and resolved_at of a dead letter that a relay or consumer
// writes: open, or discarded for a reason.
func Resolution(discarded bool, by, reason string, now int64) []any {
	if !discarded {
		return []any{string(store.DeadOpen), "", "", int64(0)}
	}
	return []any{string(store.DeadDiscarded), by, reason, now}
}
