package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

const (
	// resolvedSQL: $1 relay or '', $2 before, after $3.
	resolvedSQL = `d.state <> 'open' and d.resolved_at < $2::timestamptz and ($1::text = '' or d.relay = $1::text)
	and d.number > $3::int8`
	countResolvedSQL = `select count(*) from {dead} d where ` + resolvedSQL

	// removeResolvedSQL removes dead letters, $4 at most, unless the log still has their messages, or a redrive on record has sent the
	// messages back, which counts by their dead letters. It returns how many it removed, and the last number. The sequences of a consumer are not those of the log.
	removeResolvedSQL = `
with found as materialized (
	select d.number, d.relay, d.partition, d.seq from {dead} d where ` + resolvedSQL + `
	order by d.number limit $4::int8 for update
), chosen as materialized (
	select number from found d where (d.relay in (` + consumerNamesSQL + `) or not exists (
		select from {log} l where l.partition = d.partition and l.seq between d.seq and d.seq)) and not exists (
		select from {dead} e join {redrives} r on r.id = e.redrive
		where e.relay = d.relay and e.partition = d.partition and e.seq = d.seq)
), edits as (
	delete from {dead_edits} e using chosen c where e.number = c.number
), gone as (
	delete from {dead} d using chosen c where d.number = c.number returning 1
)
select (select count(*) from gone)::int8, coalesce((select max(number) from found), 0)::int8`
)

// CountResolved implements store.Reader.
func (r records) CountResolved(ctx context.Context, q store.ResolvedQuery) (int64, error) {
	return onlyOf[int64](ctx, r, countResolvedSQL, q.Relay, q.Before, q.After)
}

// RemoveResolved implements store.Writer.
func (r records) RemoveResolved(ctx context.Context, q store.ResolvedQuery) (removed int, last int64, err error) {
	err = r.query(ctx, removeResolvedSQL, []any{q.Relay, q.Before, q.After, int64(q.Limit)}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&removed, &last}, func() error { return nil })
		return err
	})
	return removed, last, err
}
