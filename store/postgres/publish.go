package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
)

const (
	insertColumnsSQL = `
insert into {log} (partition, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
	content_type, headers, correlation_id, causation_id, payload, available_at)`
	fromArraysSQL = `id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
	content_type, headers::jsonb, correlation_id, causation_id, payload,
	case when deliver_after > 0 then clock_timestamp() + deliver_after * interval '1 microsecond' else deliver_at end
from unnest(`
	arraysSQL = `$1::int2[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
	$8::text[], $9::timestamptz[], $10::int4[], $11::int8[], $12::text[], $13::text[], $14::text[], $15::text[],
	$16::bytea[], $17::timestamptz[], $18::int8[]`
	insertIntoSQL = insertColumnsSQL + `
select partition, ` + fromArraysSQL
	insertAsSQL   = `) as m (` + arrayNamesSQL + `) where {partitions}() = `
	arrayNamesSQL = `partition, id, topic, key, type, source, subject, tenant, message_time, schema_version,
	aggregate_version, content_type, headers, correlation_id, causation_id, payload, deliver_at, deliver_after`

	// Every insert compares the number of partitions with the one that it was computed for, and writes nothing when it is
	// another. The log is locked by then, so the number stays until the transaction ends.

	// insertSQL inserts any number of messages by one statement with one text, so that it is prepared once. Rows come out of
	// unnest, and get their sequences, in the order of the arrays.
	insertSQL = insertIntoSQL + arraysSQL + insertAsSQL + `$19::int4`

	// insertOneSQL inserts one message, the common case, for a third of what the arrays cost.
	insertOneSQL = insertColumnsSQL + `
select $1::int2, ` + oneSQL + `
where {partitions}() = $19::int4`
	oneSQL = `$2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::timestamptz, $10::int4, $11::int8,
	$12::text, $13::text::jsonb, $14::text, $15::text, $16::bytea,
	case when $18::int8 > 0 then clock_timestamp() + $18::int8 * interval '1 microsecond' else $17::timestamptz end`

	// insertPlainSQL inserts one message that has none of what most messages do not have (see columns.plain). Parameters cost
	// more than the row that they make.
	insertPlainSQL = plainColumnsSQL + `
select $1::int2, ` + plainSQL + `
where {partitions}() = $11::int4`
	plainColumnsSQL = `
insert into {log} (partition, id, topic, key, type, source, message_time, schema_version, content_type, payload)`
	plainSQL = `$2::text, $3::text, $4::text, $5::text, $6::text, $7::timestamptz, $8::int4, $9::text, $10::bytea`

	// insertPlainTextSQL is insertPlainSQL with text for everything.
	insertPlainTextSQL = plainColumnsSQL + `
select $1::text::int2, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text::timestamptz, $8::text::int4, $9::text,
	$10::text::bytea
where {partitions}() = $11::text::int4`

	// insertTextSQL takes the arrays as text, for drivers that know no arrays.
	insertTextSQL = insertIntoSQL + textArraysSQL + insertAsSQL + `$19::text::int4`
	textArraysSQL = `$1::text::int2[], $2::text::text[], $3::text::text[], $4::text::text[],
	$5::text::text[], $6::text::text[], $7::text::text[], $8::text::text[], $9::text::timestamptz[], $10::text::int4[],
	$11::text::int8[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[], $16::text::bytea[],
	$17::text::timestamptz[], $18::text::int8[]`

	// writtenSQL: $1 ids, in whose order they are returned. A transaction that has written nothing has no id yet.
	writtenSQL = `
select i.id from unnest($1::text[]) with ordinality as i (id, ord)
where i.id in (select l.id from {log} l where l.xid = pg_current_xact_id_if_assigned()) order by i.ord`
)

// One statement inserts at most this many messages and bytes.
const (
	chunkMessages = 1000
	chunkBytes    = 4 << 20
)

// Begin implements outbox.Store and inbox.Transactor. The transaction is READ COMMITTED, whatever the database's default
// is; begin one yourself if you need another level.
func (s *Store) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	return tx, translate("begin", err)
}

// Commit implements outbox.Store. Errors: outbox.ErrNoTransaction.
func (s *Store) Commit(ctx context.Context, tx pgx.Tx) error {
	if tx == nil {
		return outbox.ErrNoTransaction
	}
	return translate("commit", tx.Commit(ctx))
}

// Rollback implements outbox.Store.
func (s *Store) Rollback(ctx context.Context, tx pgx.Tx) error {
	if tx == nil {
		return nil
	}
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return translate("rollback", err)
	}
	return nil
}

// Insert implements outbox.Store.
func (s *Store) Insert(ctx context.Context, tx pgx.Tx, msgs []*postrider.Message) error {
	if tx == nil {
		return outbox.ErrNoTransaction
	}
	partitions, err := s.partitionsIn(ctx, tx)
	if err != nil {
		return err
	}
	insert := func(c *columns) (int64, error) {
		sql, args := s.sql.insert, c.arrays
		switch {
		case c.plain:
			sql, args = s.sql.insertPlain, c.firstPlain
		case len(c.ids) == 1:
			sql, args = s.sql.insertOne, c.first
		}
		tag, err := tx.Exec(ctx, sql, append(args(), int32(c.of))...)
		return tag.RowsAffected(), err
	}
	return s.insertAll(msgs, partitions, insert, func(n *int) error {
		return tx.QueryRow(ctx, s.names.expand(presentPartitionsSQL)).Scan(n)
	})
}

// presentPartitionsSQL is the number of partitions right now, whatever the transaction's snapshot.
const presentPartitionsSQL = `select {partitions}()`

// insertAll inserts in chunks. When the number of partitions has changed it reads the present one and goes on with that.
func (s *Store) insertAll(msgs []*postrider.Message, partitions int, insert func(*columns) (int64, error), present func(*int) error) error {
	for chunk := range chunks(msgs) {
		for again := false; ; again = true {
			c, err := newColumns(chunk, partitions)
			if err != nil {
				return err
			}
			n, err := insert(c)
			if err != nil {
				return translate("insert messages", err)
			}
			if n > 0 {
				break
			}
			if again {
				return errors.New("insert messages: the database wrote none of them; look for a trigger or rule on the outbox's log")
			}
			if err := present(&partitions); err != nil {
				return translate("read the number of partitions", err)
			}
			s.publishing.Store(int32(partitions))
		}
	}
	return nil
}

// partitionsIn is open for the case that the pool has no connection to spare but the caller's.
func (s *Store) partitionsIn(ctx context.Context, tx querier) (int, error) {
	if n := cmp.Or(s.publishing.Load(), s.partitions.Load()); n > 0 {
		return int(n), nil
	}
	n, err := s.checkSchema(ctx, tx)
	if err == nil {
		s.publishing.Store(int32(n)) // a process that publishes and has no relay never opens the store otherwise
	}
	return n, err
}

// chunks cuts messages to what one statement inserts.
func chunks(msgs []*postrider.Message) func(yield func([]*postrider.Message) bool) {
	return func(yield func([]*postrider.Message) bool) {
		start, bytes := 0, 0
		for i, m := range msgs {
			size := m.Size()
			if i > start && (i-start == chunkMessages || bytes+size > chunkBytes) {
				if !yield(msgs[start:i]) {
					return
				}
				start, bytes = i, 0
			}
			bytes += size
		}
		if start < len(msgs) {
			yield(msgs[start:])
		}
	}
}

// columns are messages, by column.
type columns struct {
	of int // the number of partitions that they are computed for
	// plain: it is one message without subject, tenant, aggregate version, headers, correlation, causation and delay.
	plain                                                bool
	partitions                                           []int16
	ids, topics, keys, types, sources, subjects, tenants []string
	contentTypes, headers, correlations, causations      []string
	times                                                []time.Time
	schemaVersions                                       []int32
	aggregateVersions, deliverAfter                      []int64
	payloads                                             [][]byte
	deliverAt                                            []*time.Time
}

func newColumns(msgs []*postrider.Message, partitions int) (*columns, error) {
	n := len(msgs)
	texts := make([]string, 11*n) // one allocation for all of them
	text := func() (column []string) {
		column, texts = texts[:0:n], texts[n:]
		return column
	}
	c := &columns{
		of: partitions, partitions: make([]int16, 0, n), ids: text(), topics: text(), keys: text(), types: text(), sources: text(),
		subjects: text(), tenants: text(), contentTypes: text(), headers: text(), correlations: text(), causations: text(),
		times: make([]time.Time, 0, n), schemaVersions: make([]int32, 0, n), aggregateVersions: make([]int64, 0, n),
		deliverAfter: make([]int64, 0, n), payloads: make([][]byte, 0, n), deliverAt: make([]*time.Time, 0, n),
	}
	for _, m := range msgs {
		if err := c.add(m, partitions); err != nil {
			return nil, err
		}
	}
	c.plain = n == 1 && isPlain(msgs[0])
	return c, nil
}

func isPlain(m *postrider.Message) bool {
	return m.Subject == "" && m.Tenant == "" && m.AggregateVersion == 0 && len(m.Headers) == 0 && m.CorrelationID == "" &&
		m.CausationID == "" && m.DeliverAt.IsZero() && m.DeliverAfter <= 0
}

func (c *columns) add(m *postrider.Message, partitions int) error {
	headers := "{}"
	if len(m.Headers) > 0 {
		text, err := json.Marshal(m.Headers)
		if err != nil {
			return fmt.Errorf("headers of message %s: %w", m.ID, err)
		}
		headers = string(text)
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{} // a nil slice would be null
	}
	var deliverAt *time.Time
	if !m.DeliverAt.IsZero() {
		deliverAt = &m.DeliverAt
	}
	c.partitions = append(c.partitions, int16(postrider.PartitionOf(m.Key, m.ID, partitions)))
	c.ids = append(c.ids, m.ID)
	c.topics = append(c.topics, m.Topic)
	c.keys = append(c.keys, m.Key)
	c.types = append(c.types, m.Type)
	c.sources = append(c.sources, m.Source)
	c.subjects = append(c.subjects, m.Subject)
	c.tenants = append(c.tenants, m.Tenant)
	c.contentTypes = append(c.contentTypes, m.ContentType)
	c.headers = append(c.headers, headers)
	c.correlations = append(c.correlations, m.CorrelationID)
	c.causations = append(c.causations, m.CausationID)
	c.times = append(c.times, m.Time)
	c.schemaVersions = append(c.schemaVersions, int32(m.SchemaVersion))
	c.aggregateVersions = append(c.aggregateVersions, m.AggregateVersion)
	c.deliverAfter = append(c.deliverAfter, deliverAfter(m.DeliverAfter))
	c.payloads = append(c.payloads, payload)
	c.deliverAt = append(c.deliverAt, deliverAt)
	return nil
}

// deliverAfter is in microseconds, at least one for what is positive.
func deliverAfter(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(d.Microseconds(), 1)
}

func (c *columns) arrays() []any {
	return []any{c.partitions, c.ids, c.topics, c.keys, c.types, c.sources, c.subjects, c.tenants, c.times, c.schemaVersions,
		c.aggregateVersions, c.contentTypes, c.headers, c.correlations, c.causations, c.payloads, c.deliverAt, c.deliverAfter}
}

// first is the columns of the first message.
func (c *columns) first() []any {
	return []any{c.partitions[0], c.ids[0], c.topics[0], c.keys[0], c.types[0], c.sources[0], c.subjects[0], c.tenants[0],
		c.times[0], c.schemaVersions[0], c.aggregateVersions[0], c.contentTypes[0], c.headers[0], c.correlations[0],
		c.causations[0], c.payloads[0], c.deliverAt[0], c.deliverAfter[0]}
}

// firstPlain is the columns that a plain message has.
func (c *columns) firstPlain() []any {
	return []any{c.partitions[0], c.ids[0], c.topics[0], c.keys[0], c.types[0], c.sources[0], c.times[0], c.schemaVersions[0],
		c.contentTypes[0], c.payloads[0]}
}

// Written implements outbox.Store.
func (s *Store) Written(ctx context.Context, tx pgx.Tx, ids []string) ([]string, error) {
	if tx == nil {
		return nil, outbox.ErrNoTransaction
	}
	rows, err := tx.Query(ctx, s.sql.written, list(ids))
	if err != nil {
		return nil, translate("read what was written", err)
	}
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return written, translate("read what was written", err)
}
