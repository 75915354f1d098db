package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// SQLStore publishes and consumes in transactions of database/sql with any driver (pgx's stdlib, lib/pq): it passes only types
// that database/sql itself knows, which are text, numbers, bytes and times. Everything else comes from the Store.
type SQLStore struct {
	*Store
	db *sql.DB
}

var _ store.Outbox[*sql.Tx] = (*SQLStore)(nil)

// SQL returns an outbox and inbox for transactions of database/sql. The db must connect to the database of the Store's pool.
func (s *Store) SQL(db *sql.DB) *SQLStore { return &SQLStore{Store: s, db: db} }

// sqlQuerier is a rowQuerier.
type sqlQuerier struct{ tx *sql.Tx }

// QueryRow implements rowQuerier.
func (q sqlQuerier) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return q.tx.QueryRowContext(ctx, sql, args...)
}

// Begin implements store.Outbox and store.Transactor. The transaction is READ COMMITTED, whatever the database's default
// is; begin one yourself if you need another level.
func (s *SQLStore) Begin(ctx context.Context) (*sql.Tx, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	return tx, translate("begin", err)
}

// Commit implements store.Outbox. Errors: store.ErrNoTransaction, store.ErrUncertain. Drivers cut COMMIT off when the context of Begin
// ends.
func (s *SQLStore) Commit(ctx context.Context, tx *sql.Tx) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(translate("commit", err), s.Rollback(ctx, tx))
	}
	return translate("commit", uncertain(tx.Commit()))
}

// Rollback implements store.Outbox.
func (s *SQLStore) Rollback(_ context.Context, tx *sql.Tx) error {
	if tx == nil {
		return nil
	}
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return translate("rollback", err)
	}
	return nil
}

// Insert implements store.Outbox.
func (s *SQLStore) Insert(ctx context.Context, tx *sql.Tx, msgs []*postrider.Message) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	n, err := s.partitionsIn(ctx, sqlQuerier{tx})
	if err != nil {
		return err
	}
	return insertAll(msgs, s.insertsFor(n).texts, func(sql string, args []any) (int64, error) {
		result, err := tx.ExecContext(ctx, sql, args...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

// writtenTextSQL is writtenSQL with its parameter as text.
const writtenTextSQL = `
select i.id from unnest($1::text::text[]) with ordinality as i (id, ord)
where i.id in (select l.id from {log} l where l.xid = pg_current_xact_id_if_assigned()) order by i.ord`

// Written implements store.Outbox.
func (s *SQLStore) Written(ctx context.Context, tx *sql.Tx, ids []string) (written []string, err error) {
	if tx == nil {
		return nil, store.ErrNoTransaction
	}
	rows, err := tx.QueryContext(ctx, s.Store.names.expand(writtenTextSQL), array(ids, quoted))
	if err != nil {
		return nil, translate("read what was written", err)
	}
	defer func() { err = errors.Join(err, translate("read what was written", rows.Close())) }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, translate("read what was written", err)
		}
		written = append(written, id)
	}
	return written, translate("read what was written", rows.Err())
}

// publishedTextSQL is publishedSQL with columns that every driver can scan, as package stored reads them.
const publishedTextSQL = `
select seq, id, topic, key, type, source, subject, tenant, {micros:message_time}, schema_version, aggregate_version, content_type,
	headers::text, correlation_id, causation_id, payload, case when available_at is null then 0 else {micros:available_at} end, {micros:created_at}
from {log} where xid = pg_current_xact_id_if_assigned() order by seq`

// Published implements store.Outbox. It returns what the transaction has published in SQL, too.
func (s *SQLStore) Published(ctx context.Context, tx *sql.Tx) ([]*postrider.Message, error) {
	if tx == nil {
		return nil, store.ErrNoTransaction
	}
	out, err := stored.Messages(ctx, tx.QueryContext, s.names.expand(microseconds.ReplaceAllString(publishedTextSQL,
		"case when isfinite($1) then (extract(epoch from $1) operator(pg_catalog.*) 1000000)::int8 else "+year10000+" end")))
	return out, translate("read what was published", err)
}

// microseconds matches a column whose value is read as microseconds since 1970, and year10000 stands for infinity.
var microseconds = regexp.MustCompile(`\{micros:(\w+)\}`)

const year10000 = "253402300800000000"

// arraysAsText makes array literals of the slices among arguments, in place, for drivers without array support.
func arraysAsText(args []any) []any {
	for i, arg := range args {
		switch c := arg.(type) {
		case []string:
			args[i] = array(c, quoted)
		case []int16:
			args[i] = array(c, number)
		case []int32:
			args[i] = array(c, number)
		case []int64:
			args[i] = array(c, number)
		case []bool:
			args[i] = array(c, strconv.AppendBool)
		case []time.Time:
			args[i] = array(c, moment)
		case []*time.Time:
			args[i] = array(c, optional)
		case [][]byte:
			args[i] = array(c, hexBytes)
		}
	}
	return args
}

// array writes a PostgreSQL array literal.
func array[T any](values []T, write func(b []byte, v T) []byte) string {
	b := []byte{'{'}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = write(b, v)
	}
	return string(append(b, '}'))
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(b []byte, v string) []byte {
	b = append(b, '"')
	if strings.ContainsAny(v, `\"`) {
		v = arrayEscapes.Replace(v)
	}
	return append(append(b, v...), '"')
}

func number[T int16 | int32 | int64](b []byte, v T) []byte { return strconv.AppendInt(b, int64(v), 10) }

// moment writes microseconds: the server would round more digits, up to the year 10000.
func moment(b []byte, v time.Time) []byte {
	return append(v.UTC().AppendFormat(append(b, '"'), "2006-01-02T15:04:05.999999Z"), '"')
}

func optional(b []byte, v *time.Time) []byte {
	if v == nil {
		return append(b, "NULL"...)
	}
	return moment(b, *v)
}

func hexBytes(b []byte, v []byte) []byte {
	return append(hex.AppendEncode(append(b, `"\\x`...), v), '"')
}
