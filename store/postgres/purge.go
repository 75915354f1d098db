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

	// removeResolvedSQL removes dead letters, $4 at most, unless their messages may be read from the log again. It returns how many
	// it removed, and the last number. Consumers do not read the log; their sequences are not those of the log.
	removeResolvedSQL = `
with found as materialized (
	select d.number, d.relay, d.partition, d.seq from {dead} d where ` + resolvedSQL + `
	order by d.number limit $4::int8 for update
), chosen as materialized (
	select number from found d where d.relay in (` + consumerNamesSQL + `) or not exists (
		select from {log} l where l.partition = d.partition and l.seq between d.seq and d.seq and not exists (
			select from (select position, snapshot from {cursors} c where c.relay = d.relay and c.partition = d.partition order by c.n desc limit 1) as c
			where l.seq <= c.position and pg_visible_in_snapshot(l.xid, c.snapshot)))
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
