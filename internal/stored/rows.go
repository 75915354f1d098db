package stored

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/store"
)

// Pairs returns the values of a result with two columns.
func Pairs[A, B any](ctx context.Context, q Query, text string, args ...any) (as []A, bs []B, err error) {
	err = q.Each(ctx, text, args, func(rows *sql.Rows) error {
		var a A
		var b B
		err := rows.Scan(&a, &b)
		as, bs = append(as, a), append(bs, b)
		return err
	})
	return as, bs, err
}

// Records returns the records that a statement selects for a query: ID, revision, time, expiry and body.
func Records(ctx context.Context, q Query, of store.RecordQuery, text string, args ...any) (out []store.Record, err error) {
	err = q.Each(ctx, text, args, func(rows *sql.Rows) error {
		rec := store.Record{Table: of.Table, Kind: of.Kind}
		var at int64
		var expires sql.Null[int64]
		err := rows.Scan(&rec.ID, &rec.Rev, &at, &expires, &rec.Body)
		if rec.At = Time(at); expires.Valid {
			rec.Expires = Time(expires.V)
		}
		out = append(out, rec)
		return err
	})
	return out, err
}

// Positions returns the positions of a consumer that a statement selects: ID, revision, body, and the microseconds since they were
// stored.
func Positions(ctx context.Context, q Query, consumer, text string, args ...any) (out []store.LogPosition, err error) {
	err = q.Each(ctx, text, args, func(rows *sql.Rows) error {
		var id string
		var rev, ago int64
		var body []byte
		if err := rows.Scan(&id, &rev, &body, &ago); err != nil {
			return err
		}
		p, err := Position(consumer, id, rev, body, Duration(ago))
		out = append(out, p)
		return err
	})
	return out, err
}
