package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider"
)

const (
	// plainSQL has the columns that every message has, except its partition. restSQL has those that most messages do not have (see
	// notPlain), except the delivery time; parameters cost more than the row they make.
	plainSQL = `id, topic, key, type, source, message_time, schema_version, content_type, payload`
	restSQL  = `subject, tenant, aggregate_version, headers, correlation_id, causation_id`

	// presentPartitionSQL compares the number of partitions that the partition was computed for, {n}, with the present one. If they
	// differ, the statement computes the partition itself, as postrider.PartitionOf does. The log is locked by then, so the number
	// stays until the transaction ends. PostgreSQL inlines the function when it plans the statement, so the comparison costs nothing
	// at run time; replacing the function invalidates the plan.
	presentPartitionSQL = `case when {partitions}() = {n} then {partition}
	else (('x' || substr(md5(convert_to(coalesce(nullif({key}, ''), {id}), 'UTF8')), 1, 8))::bit(32)::int8 % {partitions}()::int8)::int2 end`
	// availableAtSQL is the delivery time of a message, or null.
	availableAtSQL = `case when {deliver_after} > 0 then clock_timestamp() + {deliver_after}::float8 * interval '1 microsecond'
	else {deliver_at} end`

	insertPlainSQL = `insert into {log} (partition, ` + plainSQL + `)`
	insertSQL      = `insert into {log} (partition, ` + plainSQL + `, ` + restSQL + `, available_at)`

	// The values of one message. A subquery would produce the same plan, but the server walks through the whole statement before it
	// executes a cached plan; that took 1.5% of its time for a short transaction.
	plainValuesSQL = `
values (` + presentPartitionSQL + `, $2::text, $3::text, $4::text, $5::text, $6::text, $7::timestamptz, $8::int4, $9::text, $10::bytea`
	valuesSQL = plainValuesSQL + `, $11::text, $12::text, $13::int8, $14::text::jsonb, $15::text, $16::text, ` + availableAtSQL

	// The values of many messages are the columns of a subquery.
	plainColumnsSQL = `
select ` + presentPartitionSQL + `, ` + plainSQL + ` from (select `
	plainNamesSQL = `) as m (partition, ` + plainSQL + `)`
	columnsSQL    = `
select ` + presentPartitionSQL + `, ` + plainSQL + `, subject, tenant, aggregate_version, headers::jsonb, correlation_id, causation_id,
	` + availableAtSQL + ` from (select `
	namesSQL = `) as m (partition, ` + plainSQL + `, ` + restSQL + `, deliver_at, deliver_after)`

	// Arrays insert any number of messages with one statement text, so it is prepared once. Rows get their sequences in the order of
	// the arrays. Unnest is in the select list, where rows are made one at a time; in the from clause each array is unpacked as a
	// whole first, which takes a sixth more of the server's time.
	plainArraysSQL = `unnest($1::int2[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[]), unnest($5::text[]),
	unnest($6::text[]), unnest($7::timestamptz[]), unnest($8::int4[]), unnest($9::text[]), unnest($10::bytea[])`
	arraysSQL = plainArraysSQL + `, unnest($11::text[]), unnest($12::text[]), unnest($13::int8[]), unnest($14::text[]),
	unnest($15::text[]), unnest($16::text[]), unnest($17::timestamptz[]), unnest($18::int8[])`

	// textArraysSQL holds the arrays as text, for drivers without array support.
	textArraysSQL = `$1::text::int2[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
	$6::text::text[], $7::text::timestamptz[], $8::text::int4[], $9::text::text[], $10::text::bytea[], $11::text::text[],
	$12::text::text[], $13::text::int8[], $14::text::text[], $15::text::text[], $16::text::text[], $17::text::timestamptz[],
	$18::text::int8[]`
)

// inserts are the statements that insert messages whose partitions were computed for a given number of partitions.
type inserts struct {
	partitions                                 int
	plain, one, plainMany, many, manyFromTexts string
	// checked maps the first four to statements that fail with a division by zero unless they write every message.
	checked map[string]string
}

// insertsFor returns the statements for a number of partitions, cached while it stays the same.
func (s *Store) insertsFor(partitions int) *inserts {
	if i := s.inserts.Load(); i != nil && i.partitions == partitions {
		return i
	}
	values := strings.NewReplacer("{n}", strconv.Itoa(partitions), "{partition}", "$1::int2", "{id}", "$2::text", "{key}", "$4::text",
		"{deliver_at}", "$17::timestamptz", "{deliver_after}", "$18::int8")
	columns := strings.NewReplacer("{n}", strconv.Itoa(partitions), "{partition}", "partition", "{id}", "id", "{key}", "key",
		"{deliver_at}", "deliver_at", "{deliver_after}", "deliver_after")
	expand := func(of *strings.Replacer, sql string) string { return s.names.expand(of.Replace(sql)) }
	i := &inserts{
		partitions:    partitions,
		plain:         expand(values, insertPlainSQL+plainValuesSQL+`)`),
		one:           expand(values, insertSQL+valuesSQL+`)`),
		plainMany:     expand(columns, insertPlainSQL+plainColumnsSQL+plainArraysSQL+plainNamesSQL),
		many:          expand(columns, insertSQL+columnsSQL+arraysSQL+namesSQL),
		manyFromTexts: expand(columns, insertSQL+columnsSQL+`* from unnest(`+textArraysSQL+`)`+namesSQL),
	}
	i.checked = map[string]string{
		i.plain: checkedSQL(i.plain, "1"), i.one: checkedSQL(i.one, "1"),
		i.plainMany: checkedSQL(i.plainMany, "cardinality($1::int2[])"), i.many: checkedSQL(i.many, "cardinality($1::int2[])"),
	}
	s.inserts.Store(i)
	return i
}

func checkedSQL(insert, messages string) string {
	return "with written as (" + insert + "\nreturning 1) select 1 / (count(*) = " + messages + ")::int from written"
}

// typed returns the statement that inserts messages, and its parameters.
func (i *inserts) typed(msgs []*postrider.Message) (sql string, args []any, err error) {
	if len(msgs) == 1 {
		return i.single(msgs[0])
	}
	if !slices.ContainsFunc(msgs, notPlain) {
		return i.plainMany, plainColumns(msgs, i.partitions), nil
	}
	args, err = columns(msgs, i.partitions)
	return i.many, args, err
}

// texts is typed with arrays as text.
func (i *inserts) texts(msgs []*postrider.Message) (sql string, args []any, err error) {
	if len(msgs) == 1 {
		return i.single(msgs[0])
	}
	args, err = textColumns(msgs, i.partitions)
	return i.manyFromTexts, args, err
}

// single is typed for one message, with parameters that every driver supports.
func (i *inserts) single(m *postrider.Message) (sql string, args []any, err error) {
	args = []any{int16(postrider.PartitionOf(m.Key, m.ID, i.partitions)), m.ID, m.Topic, m.Key, m.Type, m.Source, m.Time,
		int32(m.SchemaVersion), m.ContentType, payload(m)}
	if !notPlain(m) {
		return i.plain, args, nil
	}
	all, err := headers(m)
	return i.one, append(args, m.Subject, m.Tenant, m.AggregateVersion, all, m.CorrelationID, m.CausationID, deliverAt(m),
		deliverAfter(m)), err
}

// notPlain reports whether a message needs columns beyond plainSQL.
func notPlain(m *postrider.Message) bool {
	return m.Subject != "" || m.Tenant != "" || m.AggregateVersion != 0 || len(m.Headers) > 0 || m.CorrelationID != "" ||
		m.CausationID != "" || !m.DeliverAt.IsZero() || m.DeliverAfter > 0
}

// plainColumns returns the partitions and the columns of plainSQL.
func plainColumns(msgs []*postrider.Message, partitions int) []any {
	return []any{
		each(msgs, func(m *postrider.Message) int16 { return int16(postrider.PartitionOf(m.Key, m.ID, partitions)) }),
		each(msgs, func(m *postrider.Message) string { return m.ID }),
		each(msgs, func(m *postrider.Message) string { return m.Topic }),
		each(msgs, func(m *postrider.Message) string { return m.Key }),
		each(msgs, func(m *postrider.Message) string { return m.Type }),
		each(msgs, func(m *postrider.Message) string { return m.Source }),
		each(msgs, func(m *postrider.Message) time.Time { return m.Time }),
		each(msgs, func(m *postrider.Message) int32 { return int32(m.SchemaVersion) }),
		each(msgs, func(m *postrider.Message) string { return m.ContentType }),
		each(msgs, payload),
	}
}

// columns returns plainColumns, the columns of restSQL, and the delivery times.
func columns(msgs []*postrider.Message, partitions int) (columns []any, err error) {
	all := make([]string, len(msgs))
	for i, m := range msgs {
		if all[i], err = headers(m); err != nil {
			return nil, err
		}
	}
	return append(plainColumns(msgs, partitions),
		each(msgs, func(m *postrider.Message) string { return m.Subject }),
		each(msgs, func(m *postrider.Message) string { return m.Tenant }),
		each(msgs, func(m *postrider.Message) int64 { return m.AggregateVersion }),
		all,
		each(msgs, func(m *postrider.Message) string { return m.CorrelationID }),
		each(msgs, func(m *postrider.Message) string { return m.CausationID }),
		each(msgs, deliverAt),
		each(msgs, deliverAfter),
	), nil
}

// textColumns returns columns as array literals.
func textColumns(msgs []*postrider.Message, partitions int) ([]any, error) {
	texts, err := columns(msgs, partitions)
	return arraysAsText(texts), err
}

func each[V any](msgs []*postrider.Message, of func(m *postrider.Message) V) []V {
	values := make([]V, len(msgs))
	for i, m := range msgs {
		values[i] = of(m)
	}
	return values
}

func headers(m *postrider.Message) (string, error) {
	if len(m.Headers) == 0 {
		return "{}", nil
	}
	text, err := json.Marshal(m.Headers)
	if err != nil {
		return "", fmt.Errorf("headers of message %s: %w", m.ID, err)
	}
	return string(text), nil
}

// payload never returns nil, which would be null.
func payload(m *postrider.Message) []byte {
	if m.Payload == nil {
		return []byte{}
	}
	return m.Payload
}

func deliverAt(m *postrider.Message) *time.Time {
	if m.DeliverAt.IsZero() {
		return nil
	}
	return &m.DeliverAt
}

// deliverAfter is in microseconds, at least one if positive.
func deliverAfter(m *postrider.Message) int64 {
	if m.DeliverAfter <= 0 {
		return 0
	}
	return max(m.DeliverAfter.Microseconds(), 1)
}
