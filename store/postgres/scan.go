package postgres

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
)

// messageColumns are the columns that the log, the parked messages and the dead letters have in common, in the order in which
// decoder.message reads them.
const (
	messageColumns = `seq, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
	content_type, headers, correlation_id, causation_id, payload, available_at, created_at`
	messageColumnCount = 18
)

// decoder reads rows from their wire format. The relay reads every message through it: a general scan allocates per column, this
// one twice per row. It accepts binary values, which the modes with prepared or described statements return, and text, which the
// others return.
type decoder struct {
	rows    pgx.Rows
	values  [][]byte
	text    []bool // by column: whether it is in text format
	scratch []byte
	slab    []postrider.Message
	// last is the previous message: topic, type and so on are mostly the same, and then share memory.
	last *postrider.Message
}

// slabMessages is how many messages are allocated together. A message in use keeps its slab in memory: 64 of about 400 bytes.
const slabMessages = 64

func newDecoder(rows pgx.Rows) *decoder { return &decoder{rows: rows, last: &postrider.Message{}} }

func (d *decoder) next() bool {
	if !d.rows.Next() {
		return false
	}
	if d.text == nil {
		fields := d.rows.FieldDescriptions()
		d.text = make([]bool, len(fields))
		for i, f := range fields {
			d.text[i] = f.Format == pgtype.TextFormatCode
		}
	}
	d.values = d.rows.RawValues()
	return true
}

func (d *decoder) int(i int) (int64, error) {
	v := d.values[i]
	if d.text[i] {
		if v == nil {
			return 0, nil
		}
		return strconv.ParseInt(string(v), 10, 64)
	}
	switch len(v) {
	case 8:
		return int64(binary.BigEndian.Uint64(v)), nil
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v))), nil
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v))), nil
	case 0:
		return 0, nil
	}
	return 0, fmt.Errorf("an integer of %d bytes", len(v))
}

// postgresYear2000 is 2000-01-01 in microseconds since 1970.
const postgresYear2000 = 946_684_800_000_000

// time reads a timestamptz; null is the zero time, infinity the end of the year 9999, and -infinity the beginning of the year 1,
// which is the zero time.
func (d *decoder) time(i int) (time.Time, error) {
	v := d.values[i]
	switch {
	case v == nil:
		return time.Time{}, nil
	case d.text[i]:
		var t pgtype.Timestamptz
		plan := (&pgtype.TimestamptzCodec{}).PlanScan(nil, pgtype.TimestamptzOID, pgtype.TextFormatCode, &t)
		if err := plan.Scan(v, &t); err != nil {
			return time.Time{}, err
		}
		switch t.InfinityModifier {
		case pgtype.Infinity:
			return endOfTime, nil
		case pgtype.NegativeInfinity:
			return time.Time{}, nil
		}
		return t.Time.UTC(), nil
	case len(v) != 8:
		return time.Time{}, fmt.Errorf("a timestamp of %d bytes", len(v))
	}
	switch micros := int64(binary.BigEndian.Uint64(v)); micros {
	case math.MaxInt64:
		return endOfTime, nil
	case math.MinInt64:
		return time.Time{}, nil
	default:
		return time.UnixMicro(micros + postgresYear2000).UTC(), nil
	}
}

var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// bytes returns a copy of a bytea.
func (d *decoder) bytes(i int) ([]byte, error) {
	v := d.values[i]
	if !d.text[i] {
		return append(make([]byte, 0, len(v)), v...), nil
	}
	if len(v) < 2 || v[0] != '\\' || v[1] != 'x' {
		return nil, fmt.Errorf("a bytea in a format other than hex; set bytea_output to hex")
	}
	out := make([]byte, hex.DecodedLen(len(v)-2))
	_, err := hex.Decode(out, v[2:])
	return out, err
}

// json returns a jsonb as text; it is valid until the next row.
func (d *decoder) json(i int) []byte {
	v := d.values[i]
	if !d.text[i] && len(v) > 0 && v[0] == 1 {
		return v[1:] // the version of the binary format
	}
	return v
}

func (d *decoder) string(i int) string { return string(d.values[i]) }

// size is roughly what a row takes in memory and on the wire: Message.Size.
func (d *decoder) size(from int) int {
	n := 0
	for i := from; i < from+messageColumnCount; i++ {
		if d.text[i] && i == from+15 {
			n += len(d.values[i]) / 2 // hex
			continue
		}
		n += len(d.values[i])
	}
	return n
}

// message reads the message whose columns begin at from. fault says why the row cannot be read as a message, which then holds the
// rest; err says that the result cannot be read at all.
func (d *decoder) message(from int) (m *postrider.Message, fault, err error) {
	if len(d.slab) == 0 {
		d.slab = make([]postrider.Message, slabMessages)
	}
	m, d.slab = &d.slab[0], d.slab[1:]
	var schemaVersion int64
	ints := []struct {
		column int
		dest   *int64
	}{{0, &m.Sequence}, {9, &schemaVersion}, {10, &m.AggregateVersion}}
	for _, f := range ints {
		if *f.dest, err = d.int(from + f.column); err != nil {
			return nil, nil, err
		}
	}
	m.SchemaVersion = int(schemaVersion)
	times := []struct {
		column int
		dest   *time.Time
	}{{8, &m.Time}, {16, &m.DeliverAt}, {17, &m.CreatedAt}}
	for _, f := range times {
		if *f.dest, err = d.time(from + f.column); err != nil {
			return nil, nil, err
		}
	}
	if m.Payload, err = d.bytes(from + 15); err != nil {
		return nil, nil, err
	}
	d.texts(from, m)
	m.Headers, fault = readHeaders(d.json(from + 12))
	if wrong := stored.FixTimes(m); wrong != nil {
		fault = errors.Join(wrong, fault)
	}
	d.last = m
	return m, fault, nil
}

// texts fills in the text columns. Values that differ from the previous message share one allocation.
func (d *decoder) texts(from int, m *postrider.Message) {
	const count = 10
	columns := [count]int{1, 2, 3, 4, 5, 6, 7, 11, 13, 14}
	dests := [count]*string{&m.ID, &m.Topic, &m.Key, &m.Type, &m.Source, &m.Subject, &m.Tenant, &m.ContentType,
		&m.CorrelationID, &m.CausationID}
	l := d.last
	before := [count]*string{&l.ID, &l.Topic, &l.Key, &l.Type, &l.Source, &l.Subject, &l.Tenant, &l.ContentType,
		&l.CorrelationID, &l.CausationID}
	var ends [count]int
	d.scratch = d.scratch[:0]
	for i, c := range columns {
		if v := d.values[from+c]; string(v) == *before[i] { // compares without copying
			*dests[i] = *before[i]
		} else {
			d.scratch = append(d.scratch, v...)
			ends[i] = len(d.scratch)
		}
	}
	all, start := string(d.scratch), 0
	for i, end := range ends {
		if end > 0 {
			*dests[i] = all[start:end]
			start = end
		}
	}
}

// readHeaders reads headers, nil if there are none.
func readHeaders(text []byte) (map[string]string, error) {
	if string(text) == "{}" {
		return nil, nil
	}
	if headers := plainHeaders(string(text)); headers != nil {
		return headers, nil
	}
	var values map[string]*string
	if len(text) == 0 || text[0] != '{' {
		return nil, fmt.Errorf("the stored headers are not a JSON object of strings")
	}
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("the stored headers are not a JSON object of strings: %w", err)
	}
	headers := make(map[string]string, len(values))
	for name, value := range values {
		if value == nil {
			return nil, fmt.Errorf("the stored headers are not a JSON object of strings: %q is null", name)
		}
		headers[name] = *value
	}
	return headers, nil
}

// plainHeaders reads headers as the server writes them, unless one has to be unescaped, for which it returns nil. A decoder takes five times as
// long, for each row that is read.
func plainHeaders(text string) map[string]string {
	rest, isObject := strings.CutPrefix(text, "{")
	if !isObject || strings.Contains(rest, `\`) || !utf8.ValidString(rest) {
		return nil
	}
	headers := make(map[string]string, strings.Count(rest, `": "`))
	for {
		opened, named, closed := strings.Cut(rest, `": "`)
		name, quoted := strings.CutPrefix(opened, `"`)
		value, after, ended := strings.Cut(named, `"`)
		if !closed || !quoted || !ended || strings.Contains(name, `"`) {
			return nil
		}
		headers[name] = value
		if after == "}" {
			return headers
		}
		var more bool
		if rest, more = strings.CutPrefix(after, ", "); !more {
			return nil
		}
	}
}

// readHistory reads a stored history; an unreadable one is shown as such instead of hiding the message.
func readHistory(text []byte) []postrider.AttemptInfo {
	var history []postrider.AttemptInfo
	if err := json.Unmarshal(text, &history); err != nil {
		return []postrider.AttemptInfo{{Cause: fmt.Sprintf("the stored history cannot be read: %v", err)}}
	}
	return history
}
